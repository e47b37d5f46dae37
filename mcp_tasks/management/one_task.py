"""One task for a terminal or a ticket: facts, the sentence on its state, its timeline; never a payload or an id."""

from datetime import datetime
from typing import Any

from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.operators.states import state_of
from mcp_tasks.operators.vitals import facts_about
from mcp_tasks.operators.why import span, why
from mcp_tasks.store.locking import database

from .printing import columns, plain

#: The newest entries of the timeline that are shown.
EVENTS = 50


def facts_of_task(task: Task, now: datetime) -> dict[str, Any]:
    """Everything that may be shown, as JSON can hold it. ``task`` has its payload columns deferred."""
    newest = TaskEvent.objects.using(database()).filter(task_id=task.pk).order_by("-id")
    events = list(newest.values_list("at", "kind", "leg", "actor")[:EVENTS])
    return {
        "ref": str(task.pk),
        "tool": task.tool,
        "state": state_of(task, now).name,
        "status": task.status,
        "phase": task.phase,
        "why": why(task, facts_about(task, now)),
        "owner_key": task.owner_key,
        "owner_label": task.owner_label,
        "revision": task.revision,
        "leg": task.leg,
        "attempts": task.attempts,
        "max_attempts": task.max_attempts,
        "worker": task.lease_holder,
        "progress_done": task.progress_done,
        "progress_total": task.progress_total,
        "payload_bytes": task.payload_bytes,
        "created_at": _stamp(task.created_at),
        "updated_at": _stamp(task.updated_at),
        "started_at": _stamp(task.started_at),
        "finished_at": _stamp(task.finished_at),
        "expires_at": _stamp(task.expires_at),
        "queue_ms": task.queue_ms + _running_sum(task, now, "queued"),
        "run_ms": task.run_ms + _running_sum(task, now, "running"),
        "wait_ms": task.wait_ms + _running_sum(task, now, "parked"),
        "trace": task.trace_context,
        "events": [
            {"at": _stamp(at), "kind": kind, "leg": leg, "actor": actor} for at, kind, leg, actor in reversed(events)
        ],
    }


def text_of_task(found: dict[str, Any]) -> str:
    """The same for eyes."""
    spent = (("in the queue", "queue_ms"), ("running", "run_ms"), ("waiting", "wait_ms"))
    facts = (
        ("task", f"{found['tool']} {found['ref']}"),
        ("state", found["state"]),
        ("why", found["why"]),
        ("owner", " ".join(filter(None, (found["owner_label"], found["owner_key"]))) or "nobody"),
        ("created", found["created_at"]),
        ("finished", found["finished_at"]),
        ("expires", found["expires_at"]),
        ("leg", f"{found['leg']}, try {found['attempts']} of {found['max_attempts']}"),
        ("worker", found["worker"]),
        ("progress", _progress(found["progress_done"], found["progress_total"])),
        ("payloads", f"{found['payload_bytes']} bytes"),
        ("time", ", ".join(f"{word} {span(found[name] / 1000)}" for word, name in spent)),
        ("trace", found["trace"]),
    )
    lines = columns([(name, plain(value)) for name, value in facts if value])
    events = [
        (event["at"], event["kind"], "" if event["leg"] is None else f"leg {event['leg']}", plain(event["actor"]))
        for event in found["events"]
    ]
    return "\n".join([*lines, *(["", *columns(events)] if events else [])])


def _stamp(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")


def _running_sum(task: Task, now: datetime, phase: str) -> int:
    """What the current phase adds to its sum, which is booked only when the phase is left."""
    return max(0, int((now - task.phase_at).total_seconds() * 1000)) if task.phase == phase else 0


def _progress(done: float | None, total: float | None) -> str | None:
    if done is None:
        return None
    return f"{done:g}" if not total else f"{done:g} of {total:g}"
