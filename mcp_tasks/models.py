"""
Tables, constraints and indexes of the state machine.

No instance of Task is ever saved after its creation: all changes are guarded UPDATEs of ``store``, and the
database itself refuses the pairs of columns that must not exist. Large columns come last, since SQLite reads
a row from the left. Index conditions are avoided on purpose: MySQL and MariaDB ignore them.
"""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from . import lifecycle
from .protocol.tasks import COMPLETED, FAILED, INPUT_REQUIRED
from .querysets import TaskQuerySet


class Task(models.Model):
    """One task. Named by ``ref``, a hash of the client's id, which itself is nowhere stored."""

    ref = models.UUIDField(primary_key=True, editable=False)
    owner_key = models.CharField(max_length=64, null=True)
    # Text, no foreign key: deleting a user must not collect tasks.
    owner_label = models.CharField(max_length=lifecycle.OWNER_LABEL_LENGTH, null=True)
    idem_hash = models.CharField(max_length=64, null=True, unique=True)
    idem_print = models.CharField(max_length=64, null=True)
    id_nonce = models.CharField(max_length=32, null=True)
    method = models.CharField(max_length=32)
    tool = models.CharField(max_length=200)
    status = models.CharField(max_length=16)
    phase = models.CharField(max_length=8)
    status_message = models.CharField(max_length=lifecycle.STATUS_MESSAGE_LENGTH, null=True)
    leg = models.IntegerField(default=0)
    attempts = models.SmallIntegerField(default=0)
    max_attempts = models.SmallIntegerField(default=1)
    priority = models.SmallIntegerField(default=0)
    progress_done = models.FloatField(null=True)
    progress_total = models.FloatField(null=True)
    deliveries = models.SmallIntegerField(default=0)
    revision = models.BigIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    phase_at = models.DateTimeField()
    queue_ms = models.BigIntegerField(default=0)
    run_ms = models.BigIntegerField(default=0)
    wait_ms = models.BigIntegerField(default=0)
    not_before = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    ttl_ms = models.BigIntegerField(null=True)
    expires_at = models.DateTimeField(null=True)
    sweep_at = models.DateTimeField(null=True)
    poll_interval_ms = models.IntegerField()
    tool_error = models.BooleanField(default=False)
    payload_bytes = models.BigIntegerField(default=0)
    trace_context = models.CharField(max_length=512, null=True)
    lease_holder = models.CharField(max_length=100, null=True)
    asks_json = models.TextField(null=True)
    result_json = models.TextField(null=True)
    error_json = models.TextField(null=True)
    meta_json = models.TextField(null=True)
    arguments_json = models.TextField(null=True)
    context_json = models.TextField(null=True)
    traceback = models.TextField(null=True)

    objects = TaskQuerySet.as_manager()

    class Meta:
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        indexes = [
            models.Index(fields=["due_at"], name="mcp_tasks_due"),
            models.Index(fields=["sweep_at"], name="mcp_tasks_sweep"),
            models.Index(fields=["owner_key", "phase"], name="mcp_tasks_owner"),
            models.Index(fields=["phase", "created_at", "ref"], name="mcp_tasks_phase"),
            # A claim in order of priority. With the tool, so that who passes over some tools need not read their rows.
            models.Index(fields=["phase", "-priority", "created_at", "tool"], name="mcp_tasks_claim"),
            # For the pages and counts of operators.
            models.Index(fields=["created_at", "ref"], name="mcp_tasks_created"),
            models.Index(fields=["status", "tool_error", "created_at", "ref"], name="mcp_tasks_status"),
            models.Index(fields=["tool", "created_at", "ref"], name="mcp_tasks_tool"),
            models.Index(fields=["owner_key", "created_at", "ref"], name="mcp_tasks_of_owner"),
            models.Index(fields=["finished_at"], name="mcp_tasks_finished"),
        ]
        permissions = [
            ("view_task_payload", _("Can read arguments, questions, answers, results and errors, masked")),
            ("view_task_secrets", _("Can download payloads unmasked")),
            ("view_task_traceback", _("Can read tracebacks")),
            ("cancel_task", _("Can cancel tasks")),
            ("fail_task", _("Can mark tasks as failed")),
            ("extend_task", _("Can extend the time to live of tasks")),
            ("requeue_task", _("Can queue stalled tasks again")),
            ("dismiss_task_input", _("Can dismiss open questions of tasks")),
        ]
        constraints = [
            models.CheckConstraint(name="mcp_tasks_status_known", condition=Q(status__in=lifecycle.STATUSES)),
            models.CheckConstraint(
                name="mcp_tasks_phase_pair",
                condition=Q(*[Q(phase=p, status__in=s) for p, s in lifecycle.PAIRS.items()], _connector=Q.OR),
            ),
            models.CheckConstraint(
                name="mcp_tasks_result_iff_completed",
                condition=(Q(result_json=None) | Q(status=COMPLETED))
                & (~Q(status=COMPLETED) | Q(phase=lifecycle.EXPIRED) | Q(result_json__isnull=False)),
            ),
            models.CheckConstraint(
                name="mcp_tasks_error_iff_failed",
                condition=(Q(error_json=None) | Q(status=FAILED))
                & (~Q(status=FAILED) | Q(phase=lifecycle.EXPIRED) | Q(error_json__isnull=False)),
            ),
            models.CheckConstraint(
                name="mcp_tasks_asks_iff_waiting",
                condition=Q(phase=lifecycle.EXPIRED)
                | Q(status=INPUT_REQUIRED, asks_json__isnull=False)
                | (~Q(status=INPUT_REQUIRED) & Q(asks_json=None)),
            ),
            models.CheckConstraint(
                name="mcp_tasks_tombstone_empty",
                condition=~Q(phase=lifecycle.EXPIRED)
                | Q(
                    status_message=None,
                    asks_json=None,
                    result_json=None,
                    error_json=None,
                    meta_json=None,
                    arguments_json=None,
                    context_json=None,
                    traceback=None,
                    idem_hash=None,
                    due_at=None,
                ),
            ),
            models.CheckConstraint(
                name="mcp_tasks_due_shape",
                condition=(~Q(phase=lifecycle.QUEUED) | Q(due_at__isnull=False))
                & (~Q(phase=lifecycle.DONE) | Q(due_at=None)),
            ),
            models.CheckConstraint(
                name="mcp_tasks_ttl_shape",
                # "NULL > 0" is unknown, and what is unknown passes a check: so it is said that it is set.
                condition=(
                    Q(ttl_ms=None, expires_at=None) | Q(ttl_ms__isnull=False, ttl_ms__gt=0, expires_at__isnull=False)
                )
                & Q(poll_interval_ms__gt=0, revision__gte=1, leg__gte=0),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.ref}"


class TaskInput(models.Model):
    """One row per key ever issued. The unique pair is the promise that a key names one question for life."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="inputs", db_index=False)
    key = models.CharField(max_length=128)
    # Hashed, because collations may fold case or pad spaces.
    key_hash = models.CharField(max_length=64)
    request_hash = models.CharField(max_length=64)
    state = models.CharField(max_length=12)
    asked_leg = models.IntegerField()
    asked_at = models.DateTimeField()
    deadline_at = models.DateTimeField(null=True)
    answered_at = models.DateTimeField(null=True)
    request_json = models.TextField()
    answer_json = models.TextField(null=True)

    class Meta:
        verbose_name = _("question")
        verbose_name_plural = _("questions")
        constraints = [
            models.UniqueConstraint(fields=["task", "key_hash"], name="mcp_tasks_input_key"),
            models.CheckConstraint(name="mcp_tasks_input_state_known", condition=Q(state__in=lifecycle.INPUT_STATES)),
            models.CheckConstraint(
                name="mcp_tasks_input_answer",
                condition=Q(state=lifecycle.ANSWERED, answer_json__isnull=False)
                | (~Q(state=lifecycle.ANSWERED) & Q(answer_json=None)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.task_id}"


class TaskEvent(models.Model):
    """Append-only timeline, written in the transaction of the transition. Never holds a payload or a client's id."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="events", db_index=False)
    revision = models.BigIntegerField()
    kind = models.CharField(max_length=32)
    leg = models.IntegerField(null=True)
    actor = models.CharField(max_length=64)
    at = models.DateTimeField()
    detail = models.TextField(null=True)

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes = [models.Index(fields=["task", "id"], name="mcp_tasks_event")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.task_id}"


class TaskStep(models.Model):
    """The recorded result of a step that runs once per task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="steps", db_index=False)
    name = models.CharField(max_length=128)
    name_hash = models.CharField(max_length=64)
    args_hash = models.CharField(max_length=64)
    leg = models.IntegerField()
    at = models.DateTimeField()
    result_json = models.TextField()

    class Meta:
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        constraints = [models.UniqueConstraint(fields=["task", "name_hash"], name="mcp_tasks_step_name")]

    def __str__(self) -> str:
        return f"{self.name} of {self.task_id}"


class Process(models.Model):
    """A process that runs legs or sweeps, and when it was last heard of: who is alive, for operators."""

    name = models.CharField(max_length=100, primary_key=True)
    kind = models.CharField(max_length=16)
    host = models.CharField(max_length=100)
    pid = models.IntegerField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    slots = models.IntegerField(default=0)
    busy = models.IntegerField(default=0)
    # Tells processes of two versions of the code apart: a hash of the names of the tools they know.
    tools_hash = models.CharField(max_length=64, default="")
    info = models.TextField(default="{}")

    class Meta:
        verbose_name = _("process")
        verbose_name_plural = _("processes")

    def __str__(self) -> str:
        return self.name


class TaskStat(models.Model):
    """
    How many tasks of a tool ended how in one hour, kept longer than the tasks themselves.

    The buckets ``b0`` to ``b11`` count by running time, see ``lifecycle.DURATION_BOUNDS_SECONDS``. ``early`` rows are
    of tasks that were removed before their hour was counted; the hour's count takes them in.
    """

    hour = models.DateTimeField()
    tool = models.CharField(max_length=200)
    outcome = models.CharField(max_length=16)
    early = models.BooleanField(default=False)
    count = models.BigIntegerField(default=0)
    run_ms_sum = models.BigIntegerField(default=0)
    queue_ms_sum = models.BigIntegerField(default=0)
    b0 = models.BigIntegerField(default=0)
    b1 = models.BigIntegerField(default=0)
    b2 = models.BigIntegerField(default=0)
    b3 = models.BigIntegerField(default=0)
    b4 = models.BigIntegerField(default=0)
    b5 = models.BigIntegerField(default=0)
    b6 = models.BigIntegerField(default=0)
    b7 = models.BigIntegerField(default=0)
    b8 = models.BigIntegerField(default=0)
    b9 = models.BigIntegerField(default=0)
    b10 = models.BigIntegerField(default=0)
    b11 = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = _("hourly count")
        verbose_name_plural = _("hourly counts")
        indexes = [models.Index(fields=["hour", "tool", "outcome"], name="mcp_tasks_stat")]

    def __str__(self) -> str:
        return f"{self.tool} {self.outcome} {self.hour:%Y-%m-%d %H}h"


class OwnerGate(models.Model):
    """A mutex per bucket of tasks: creations of one owner pass it one by one, so that a cap is exact."""

    key = models.CharField(max_length=64, primary_key=True)
    n = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = _("owner gate")
        verbose_name_plural = _("owner gates")

    def __str__(self) -> str:
        return self.key
