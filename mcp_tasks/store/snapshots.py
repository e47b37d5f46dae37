"""Rows to views, and the one builder of what every transport shows of a task."""

from typing import Any

from ..models import Task
from ..protocol.capabilities import PROGRESS_KEY
from ..protocol.codec import dumps, merge_objects
from ..protocol.tasks import WireTask
from .types import TaskSnapshot, TaskView

#: Columns of a TaskView. None is large, and all are read from the left of a row.
VIEW_COLUMNS: tuple[str, ...] = tuple(
    field.name for field in Task._meta.concrete_fields if field.name in TaskView.__dataclass_fields__
)
PAYLOAD_COLUMNS = ("asks_json", "result_json", "error_json", "meta_json")


def to_view(values: dict[str, Any]) -> TaskView:
    """A TaskView from the values of VIEW_COLUMNS; further values are ignored."""
    return TaskView(**{name: values[name] for name in VIEW_COLUMNS})


def to_snapshot(values: dict[str, Any]) -> TaskSnapshot:
    """A TaskSnapshot from the values of VIEW_COLUMNS and PAYLOAD_COLUMNS."""
    return TaskSnapshot(
        task=to_view(values),
        input_requests_json=values["asks_json"],
        result_json=values["result_json"],
        error_json=values["error_json"],
        meta_json=values["meta_json"],
    )


def to_wire(snapshot: TaskSnapshot) -> WireTask:
    """What a client may see; payloads go through as the text they were stored as."""
    task = snapshot.task
    progress = None
    if task.progress_done is not None:
        numbers = {"done": _number(task.progress_done)}
        if task.progress_total is not None:
            numbers["total"] = _number(task.progress_total)
        progress = dumps({PROGRESS_KEY: numbers})
    return WireTask(
        status=task.status,
        status_message=task.status_message,
        created_at=task.created_at,
        updated_at=task.updated_at,
        ttl_ms=task.ttl_ms,
        poll_interval_ms=task.poll_interval_ms,
        input_requests=snapshot.input_requests_json,
        result=snapshot.result_json,
        error=snapshot.error_json,
        meta=merge_objects(snapshot.meta_json, progress) if snapshot.meta_json or progress else None,
    )


def _number(value: float) -> float:
    """Whole numbers are written as integers."""
    return int(value) if value.is_integer() else value
