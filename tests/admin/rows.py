"""Rows in every state, written past the store: these tests look at them only."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from mcp_tasks.lifecycle import DONE, EXPIRED, PARKED, QUEUED, RUNNING
from mcp_tasks.models import Task
from mcp_tasks.protocol.tasks import CANCELLED, COMPLETED, FAILED, INPUT_REQUIRED, WORKING

SECRET = "payload-that-no-list-shows"

#: State of operators: the columns that make it, times as seconds from now.
STATES: dict[str, dict[str, Any]] = {
    "queued": {"phase": QUEUED, "status": WORKING, "due_at": 60},
    "running": {"phase": RUNNING, "status": WORKING, "due_at": 60, "lease_holder": "web-3:654", "attempts": 1},
    "needs-input": {"phase": PARKED, "status": INPUT_REQUIRED, "due_at": None, "asks_json": f'{{"a": "{SECRET}"}}'},
    "stalled": {"phase": RUNNING, "status": WORKING, "due_at": -60, "lease_holder": "web-2:870", "attempts": 1},
    "completed": {"phase": DONE, "status": COMPLETED, "result_json": f'"{SECRET}"', "finished_at": -10},
    "tool-error": {
        "phase": DONE,
        "status": COMPLETED,
        "result_json": f'"{SECRET}"',
        "finished_at": -10,
        "tool_error": True,
    },
    "failed": {"phase": DONE, "status": FAILED, "error_json": f'"{SECRET}"', "finished_at": -10},
    "cancelled": {"phase": DONE, "status": CANCELLED, "finished_at": -1000},
    "stopping": {"phase": DONE, "status": CANCELLED, "finished_at": -1, "lease_holder": "web-1:11"},
    "expired": {"phase": EXPIRED, "status": COMPLETED, "finished_at": -4000, "expires_at": -60, "arguments_json": None},
}


def task(state: str = "running", *, age: float = 30, **columns: Any) -> Task:
    """A row that is not saved yet."""
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "ref": uuid4(),
        "method": "tools/call",
        "tool": "report",
        "owner_key": "a" * 64,
        "owner_label": "alice",
        "created_at": -age,
        "updated_at": -1,
        "phase_at": -1,
        "started_at": None if state == "queued" else -20,
        "poll_interval_ms": 1000,
        "max_attempts": 3,
        "ttl_ms": 3_600_000,
        "expires_at": 1800,
        "arguments_json": f'{{"a": "{SECRET}"}}',
        **STATES[state],
        **columns,
    }
    for name, value in values.items():
        if name.endswith("_at") and isinstance(value, int | float):
            values[name] = now + timedelta(seconds=value)
    if values["expires_at"] is None:
        values["ttl_ms"] = None
    return Task(**values)


def add(state: str = "running", **columns: Any) -> UUID:
    """Store a row; returns its reference."""
    row = task(state, **columns)
    Task.objects.bulk_create([row])
    return UUID(str(row.pk))


def add_one_of_each() -> dict[str, UUID]:
    """A row in every state, by state."""
    return {state: add(state, tool=f"tool-{state}") for state in STATES}


def add_many(number: int, **columns: Any) -> None:
    """Rows of all states in turn, each a second older than the one before."""
    states = list(STATES)
    Task.objects.bulk_create(
        [task(states[index % len(states)], age=index + 1, **columns) for index in range(number)], batch_size=1000
    )
