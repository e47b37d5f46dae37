"""The database itself refuses what the state machine does not know, whoever writes it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from mcp_tasks.lifecycle import (
    ANSWERED,
    DONE,
    EXPIRED,
    INPUT_STATES,
    OUTSTANDING,
    PAIRS,
    PARKED,
    PHASES,
    QUEUED,
    RUNNING,
    STATUSES,
)
from mcp_tasks.models import Task, TaskInput, TaskStep
from mcp_tasks.protocol.codec import digest
from mcp_tasks.protocol.tasks import CANCELLED, COMPLETED, FAILED, INPUT_REQUIRED, WORKING

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 7, 28, 12, 0, tzinfo=UTC)
LEGAL = [(phase, status) for phase, statuses in PAIRS.items() for status in statuses]
ILLEGAL = [(phase, status) for phase in PHASES for status in STATUSES if (phase, status) not in LEGAL]

#: What is given up when a task becomes a tombstone.
PAYLOAD = (
    "status_message",
    "asks_json",
    "result_json",
    "error_json",
    "meta_json",
    "arguments_json",
    "context_json",
    "traceback",
)


def columns(phase: str, status: str, **changed: Any) -> dict[str, Any]:
    """A row of this phase and status in which everything else fits them, apart from what is changed."""
    is_kept = phase != EXPIRED
    return {
        "ref": uuid4(),
        "method": "tools/call",
        "tool": "report",
        "phase": phase,
        "status": status,
        "created_at": NOW,
        "updated_at": NOW,
        "phase_at": NOW,
        "poll_interval_ms": 1000,
        "due_at": NOW if phase in (QUEUED, RUNNING) else None,
        "arguments_json": "{}" if is_kept else None,
        "context_json": "{}" if is_kept else None,
        "asks_json": "{}" if is_kept and status == INPUT_REQUIRED else None,
        "result_json": "{}" if is_kept and status == COMPLETED else None,
        "error_json": "{}" if is_kept and status == FAILED else None,
        **changed,
    }


def refused_by(constraint: str, values: dict[str, Any]) -> None:
    """Inserting the row, and changing a legal one into it, both fail by this constraint and no other."""
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Task.objects.create(**values)
    there = Task.objects.create(**columns(QUEUED, WORKING))
    changes = {name: value for name, value in values.items() if name != "ref"}
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Task.objects.filter(pk=there.pk).update(**changes)


@pytest.mark.parametrize(("phase", "status"), LEGAL)
def test_every_legal_pair_of_phase_and_status_is_stored(phase: str, status: str) -> None:
    task = Task.objects.create(**columns(phase, status))
    assert (task.phase, task.status) == (phase, status)


@pytest.mark.parametrize(("phase", "status"), ILLEGAL)
def test_every_other_pair_is_refused(phase: str, status: str) -> None:
    refused_by("mcp_tasks_phase_pair", columns(phase, status))


def test_an_unknown_status_is_refused_in_every_phase() -> None:
    # In a tombstone too, where each known status may stand.
    for phase in PHASES:
        values = columns(phase, "paused")
        refused_by("mcp_tasks_(status_known|phase_pair)", values)


def test_an_unknown_phase_is_refused() -> None:
    refused_by("mcp_tasks_phase_pair", columns("paused", WORKING))


@pytest.mark.parametrize(("phase", "status"), [pair for pair in LEGAL if pair[1] != COMPLETED and pair[0] != EXPIRED])
def test_only_a_completed_task_has_a_result(phase: str, status: str) -> None:
    refused_by("mcp_tasks_result_iff_completed", columns(phase, status, result_json="{}"))


def test_a_completed_task_has_a_result_until_it_expires() -> None:
    refused_by("mcp_tasks_result_iff_completed", columns(DONE, COMPLETED, result_json=None))
    Task.objects.create(**columns(EXPIRED, COMPLETED))


@pytest.mark.parametrize(("phase", "status"), [pair for pair in LEGAL if pair[1] != FAILED and pair[0] != EXPIRED])
def test_only_a_failed_task_has_an_error(phase: str, status: str) -> None:
    refused_by("mcp_tasks_error_iff_failed", columns(phase, status, error_json="{}"))


def test_a_failed_task_has_an_error_until_it_expires() -> None:
    refused_by("mcp_tasks_error_iff_failed", columns(DONE, FAILED, error_json=None))
    Task.objects.create(**columns(EXPIRED, FAILED))


@pytest.mark.parametrize("phase", [RUNNING, PARKED])
def test_a_task_that_waits_for_input_has_open_questions(phase: str) -> None:
    refused_by("mcp_tasks_asks_iff_waiting", columns(phase, INPUT_REQUIRED, asks_json=None))


@pytest.mark.parametrize(
    ("phase", "status"), [pair for pair in LEGAL if pair[1] != INPUT_REQUIRED and pair[0] != EXPIRED]
)
def test_no_other_task_has_open_questions(phase: str, status: str) -> None:
    refused_by("mcp_tasks_asks_iff_waiting", columns(phase, status, asks_json="{}"))


@pytest.mark.parametrize("name", [*PAYLOAD, "idem_hash", "due_at"])
def test_a_tombstone_keeps_nothing(name: str) -> None:
    status = {"result_json": COMPLETED, "error_json": FAILED}.get(name, CANCELLED)
    value = NOW if name == "due_at" else "{}"
    refused_by("mcp_tasks_tombstone_empty", columns(EXPIRED, status, **{name: value}))


def test_a_queued_task_has_a_time_at_which_its_doorbell_rings_again() -> None:
    refused_by("mcp_tasks_due_shape", columns(QUEUED, WORKING, due_at=None))


@pytest.mark.parametrize("status", PAIRS[DONE])
def test_nothing_is_due_of_a_finished_task(status: str) -> None:
    refused_by("mcp_tasks_due_shape", columns(DONE, status, due_at=NOW))


@pytest.mark.parametrize(
    "changed",
    [
        {"ttl_ms": 1000},
        {"expires_at": NOW},
        {"ttl_ms": 0, "expires_at": NOW},
        {"ttl_ms": -1, "expires_at": NOW},
        {"poll_interval_ms": 0},
        {"poll_interval_ms": -1},
        {"revision": 0},
        {"leg": -1},
    ],
    ids=lambda changed: ", ".join(f"{name} {value}" for name, value in changed.items()),
)
def test_a_ttl_has_an_end_and_counters_are_no_less_than_their_start(changed: dict[str, Any]) -> None:
    refused_by("mcp_tasks_ttl_shape", columns(QUEUED, WORKING, **changed))


def test_a_ttl_with_its_end_is_stored() -> None:
    Task.objects.create(**columns(QUEUED, WORKING, ttl_ms=1000, expires_at=NOW + timedelta(seconds=1)))


def test_two_rows_never_have_the_same_idempotency_key() -> None:
    Task.objects.create(**columns(QUEUED, WORKING, idem_hash="a" * 64))
    with pytest.raises(IntegrityError, match="idem_hash"), transaction.atomic():
        Task.objects.create(**columns(QUEUED, WORKING, idem_hash="a" * 64))
    for _ in range(2):
        Task.objects.create(**columns(QUEUED, WORKING, idem_hash=None))


def question(task: Task, key: str = "approval", **changed: Any) -> dict[str, Any]:
    """The columns of an open question."""
    return {
        "task": task,
        "key": key,
        "key_hash": digest(key),
        "request_hash": digest({}),
        "request_json": "{}",
        "state": OUTSTANDING,
        "asked_leg": 1,
        "asked_at": NOW,
        **changed,
    }


def test_a_key_names_one_question_for_the_life_of_a_task() -> None:
    task, other = (Task.objects.create(**columns(QUEUED, WORKING)) for _ in range(2))
    TaskInput.objects.create(**question(task))
    with pytest.raises(IntegrityError, match=r"mcp_tasks_input_key|key_hash"), transaction.atomic():
        TaskInput.objects.create(**question(task))
    TaskInput.objects.create(**question(task, "Approval"))
    TaskInput.objects.create(**question(other))


@pytest.mark.parametrize("state", [state for state in INPUT_STATES if state != ANSWERED])
def test_only_an_answered_question_has_an_answer(state: str) -> None:
    task = Task.objects.create(**columns(QUEUED, WORKING))
    with pytest.raises(IntegrityError, match="mcp_tasks_input_answer"), transaction.atomic():
        TaskInput.objects.create(**question(task, state=state, answer_json="{}"))


def test_an_answered_question_has_an_answer() -> None:
    task = Task.objects.create(**columns(QUEUED, WORKING))
    with pytest.raises(IntegrityError, match="mcp_tasks_input_answer"), transaction.atomic():
        TaskInput.objects.create(**question(task, state=ANSWERED))
    TaskInput.objects.create(**question(task, state=ANSWERED, answer_json="{}"))


def test_an_unknown_state_of_a_question_is_refused() -> None:
    task = Task.objects.create(**columns(QUEUED, WORKING))
    with pytest.raises(IntegrityError, match="mcp_tasks_input_state_known"), transaction.atomic():
        TaskInput.objects.create(**question(task, state="lost"))


def test_a_step_is_recorded_once_in_a_task() -> None:
    task = Task.objects.create(**columns(RUNNING, WORKING))
    values = {"task": task, "name": "charge", "name_hash": digest("charge"), "args_hash": digest([])}
    TaskStep.objects.create(**values, leg=1, at=NOW, result_json="1")
    with pytest.raises(IntegrityError, match=r"mcp_tasks_step_name|name_hash"), transaction.atomic():
        TaskStep.objects.create(**values, leg=2, at=NOW, result_json="2")
