"""What answers look like; what requests may say is in ``bodies``."""

from typing import Any

from rest_framework import serializers

from .fields import Instant, Shape


class ProblemShape(Shape):
    """RFC 9457, with a code for programs."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()
    errors = serializers.ListField(  # type: ignore[assignment]
        child=serializers.DictField(child=serializers.CharField())
    )


# -- a client's own task ----------------------------------------------------------------------------------------


class AnswersTaken(Shape):
    """What became of the answers, by key."""

    accepted = serializers.ListField(child=serializers.CharField())
    ignored = serializers.ListField(child=serializers.CharField())
    outstanding = serializers.ListField(child=serializers.CharField())


# -- what operators see -----------------------------------------------------------------------------------------


class OwnerShape(Shape):
    """``key`` is what the list can be filtered by; ``label`` is for people."""

    key = serializers.CharField()
    label = serializers.CharField(allow_null=True)  # type: ignore[assignment]


class ProgressShape(Shape):
    """As the tool reported it."""

    done = serializers.FloatField()
    total = serializers.FloatField(allow_null=True)


class TaskShape(Shape):
    """A task in the list. No payload."""

    ref = serializers.UUIDField()
    tool = serializers.CharField()
    state = serializers.CharField()
    status = serializers.CharField()
    phase = serializers.CharField()
    is_still_stopping = serializers.BooleanField()
    owner = OwnerShape(allow_null=True)
    worker = serializers.CharField(allow_null=True)
    attempts = serializers.IntegerField()
    max_attempts = serializers.IntegerField()
    progress = ProgressShape(allow_null=True)
    status_message = serializers.CharField(allow_null=True)
    revision = serializers.IntegerField()
    created_at = Instant()
    updated_at = Instant()
    started_at = Instant(allow_null=True)
    finished_at = Instant(allow_null=True)
    expires_at = Instant(allow_null=True)


class TaskPage(Shape):
    """``next_cursor`` is null on the last page."""

    results = TaskShape(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class TaskDetail(TaskShape):
    """A task with all that is known of it but its payloads; ``why`` is null once nothing is left to explain."""

    why = serializers.CharField(allow_null=True)
    verbs = serializers.ListField(child=serializers.CharField())
    method = serializers.CharField()
    leg = serializers.IntegerField()
    priority = serializers.IntegerField()
    phase_at = Instant()
    not_before = Instant(allow_null=True)
    due_at = Instant(allow_null=True)
    cancel_requested_at = Instant(allow_null=True)
    ttl_ms = serializers.IntegerField(allow_null=True)
    poll_interval_ms = serializers.IntegerField()
    queue_ms = serializers.IntegerField()
    run_ms = serializers.IntegerField()
    wait_ms = serializers.IntegerField()
    payload_bytes = serializers.IntegerField()
    trace_context = serializers.CharField(allow_null=True)


class EventShape(Shape):
    """One entry of the timeline. ``detail`` depends on ``kind``."""

    kind = serializers.CharField()
    at = Instant()
    actor = serializers.CharField()
    leg = serializers.IntegerField(allow_null=True)
    revision = serializers.IntegerField()
    detail = serializers.DictField(allow_null=True)


class EventPage(Shape):
    """Oldest first; ``next_cursor`` is null on the last page."""

    results = EventShape(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class TracebackShape(Shape):
    """Never sent to the client."""

    traceback = serializers.CharField()


class RefShape(Shape):
    """The name by which operators know a task."""

    ref = serializers.UUIDField()


class BulkResult(Shape):
    """Counts. ``refused``: kept by the policy. ``more``: further tasks match; send the same again with ``as_of``."""

    cancelled = serializers.IntegerField()
    finished_meanwhile = serializers.IntegerField()
    refused = serializers.IntegerField()
    more = serializers.BooleanField()
    as_of = Instant()
    dry_run = serializers.BooleanField()


class ProcessShape(Shape):
    """A process that runs or sweeps tasks. ``is_silent``: not heard of for so long that it may be gone."""

    name = serializers.CharField()
    kind = serializers.CharField()
    host = serializers.CharField()
    pid = serializers.IntegerField()
    started_at = Instant()
    seen_at = Instant()
    is_silent = serializers.BooleanField()
    slots = serializers.IntegerField()
    busy = serializers.IntegerField()
    info = serializers.DictField()


class ProcessList(Shape):
    """All processes by name."""

    results = ProcessShape(many=True)


class LiveShape(Shape):
    """Unfinished tasks by state."""

    queued = serializers.IntegerField()
    running = serializers.IntegerField()
    needs_input = serializers.IntegerField()
    stalled = serializers.IntegerField()
    expire_soon = serializers.IntegerField()
    oldest_queued_at = Instant(allow_null=True)
    oldest_input_at = Instant(allow_null=True)


class EndedShape(Shape):
    """What ended: ``failed_share`` counts failures and tool errors; percentiles are read from buckets."""

    count = serializers.IntegerField()
    completed = serializers.IntegerField()
    tool_error = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    expired = serializers.IntegerField()
    failed_share = serializers.FloatField(allow_null=True)
    p50_seconds = serializers.FloatField(allow_null=True)
    p95_seconds = serializers.FloatField(allow_null=True)


class HourShape(EndedShape):
    """One hour, from ``hour`` on; the last one is still running."""

    hour = Instant()


class ToolShape(EndedShape):
    """One tool."""

    tool = serializers.CharField()


class BusyOwnerShape(Shape):
    """How many unfinished tasks an owner has; ``owner`` is null for tasks of nobody."""

    owner = OwnerShape(allow_null=True)
    live = serializers.IntegerField()


class Overview(Shape):
    """The numbers of the overview page. What ended is null where the policy narrows: counts tell no owner apart."""

    at = Instant()
    live = LiveShape()
    ended = EndedShape(allow_null=True)
    hours = HourShape(many=True, allow_null=True)
    tools = ToolShape(many=True, allow_null=True)
    owners = BusyOwnerShape(many=True)
    oldest_queued = TaskShape(many=True)
    stalled = TaskShape(many=True)
    processes = ProcessShape(many=True)


def rendered(shape: type[Shape], values: Any) -> Any:
    """Values in the form of a shape."""
    return shape(values).data
