"""Rows in the form in which operators see them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ...models import Process, Task, TaskEvent
from ...operators.numbers import Ended
from ...operators.policy import VERBS
from ...operators.secrecy import message_of
from ...operators.states import is_still_stopping, state_of
from ...operators.why import JANITOR_SILENT, PROCESS_SILENT
from ...protocol.codec import JsonError, loads
from ...store.processes import JANITOR

#: Columns that a list shows as they are, and those that it reads besides; none of them is large.
_ROW = (
    *("ref", "tool", "status", "phase", "attempts", "max_attempts", "revision"),
    *("created_at", "updated_at", "started_at", "finished_at", "expires_at"),
)
COLUMNS = (
    *_ROW,
    *("tool_error", "owner_key", "owner_label", "lease_holder", "progress_done", "progress_total", "due_at"),
    "status_message",
)

#: What else a single task shows.
_FACTS = (
    *("method", "leg", "priority", "phase_at", "not_before", "due_at", "cancel_requested_at", "ttl_ms"),
    *("poll_interval_ms", "queue_ms", "run_ms", "wait_ms", "payload_bytes", "trace_context"),
)

#: Verbs under the names that they have in addresses.
PATHS = {name: "dismiss-inputs" if name == "dismiss" else name for name in VERBS}


def task_row(task: Task, now: datetime, *, shows_payload: bool) -> dict[str, Any]:
    """A task in a list, for who may read payloads or for who may not."""
    progress = None
    if task.progress_done is not None:
        progress = {"done": task.progress_done, "total": task.progress_total}
    return {
        "state": state_of(task, now).name,
        "is_still_stopping": is_still_stopping(task, now),
        "owner": owner(task.owner_key, task.owner_label),
        "worker": task.lease_holder,
        "progress": progress,
        "status_message": message_of(task, now, shows_payload=shows_payload),
        **{name: getattr(task, name) for name in _ROW},
    }


def task_detail(
    task: Task, now: datetime, *, shows_payload: bool, why: str | None, verbs: Iterable[str]
) -> dict[str, Any]:
    """A task by itself, with the sentence on it and what this operator may do to it now."""
    facts = {name: getattr(task, name) for name in _FACTS}
    row = task_row(task, now, shows_payload=shows_payload)
    return {**row, **facts, "why": why, "verbs": [PATHS[verb] for verb in verbs]}


def owner(key: str | None, label: str | None) -> dict[str, Any] | None:
    return None if key is None else {"key": key, "label": label}


def event(row: TaskEvent) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "at": row.at,
        "actor": row.actor,
        "leg": row.leg,
        "revision": row.revision,
        "detail": _object(row.detail),
    }


def process(row: Process, now: datetime) -> dict[str, Any]:
    silent = JANITOR_SILENT if row.kind == JANITOR else PROCESS_SILENT
    names = ("name", "kind", "host", "pid", "started_at", "seen_at", "slots", "busy")
    values = {name: getattr(row, name) for name in names}
    return {**values, "is_silent": row.seen_at <= now - silent, "info": _object(row.info) or {}}


def ended(found: Ended) -> dict[str, Any]:
    return {
        "count": found.count,
        **found.by_outcome,
        "failed_share": found.failed_share,
        "p50_seconds": found.percentile_seconds(0.5),
        "p95_seconds": found.percentile_seconds(0.95),
    }


def _object(text: str | None) -> dict[str, Any] | None:
    """A small object of our own; what somebody else put there is left out."""
    try:
        value = None if text is None else loads(text)
    except JsonError:
        return None
    return value if isinstance(value, dict) else None
