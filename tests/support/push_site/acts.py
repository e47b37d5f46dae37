"""What a test lets a process do to tasks: the worker API by name, for servers and for processes without one."""

import time
from typing import Any
from uuid import UUID

from django.db import transaction

from mcp_tasks import observing, tasks
from mcp_tasks.notifications.hub import hub
from mcp_tasks.store import get_store
from mcp_tasks.store.types import ref_of


def act(command: dict[str, Any]) -> Any:
    """Do what a command says; what it returns can be written as JSON."""
    options = dict(command)
    return _ACTS[options.pop("do")](**options)


def progress(task: str, times: int = 1, text: str = "step", pause: float = 0.0) -> int:
    """Report so often, each time something new; returns how often it was applied."""
    applied = 0
    for n in range(times):
        applied += bool(tasks.progress(ref_of(task), f"{text} {n}", done=n))
        if pause:
            time.sleep(pause)
    return applied


def complete(task: str | list[str], text: str = "done", size: int = 0) -> int:
    """Complete one task or several, with a result of about that size."""
    named = [task] if isinstance(task, str) else task
    return sum(bool(tasks.complete(ref_of(one), text + "x" * size)) for one in named)


def ask(task: str) -> bool:
    """Ask the client."""
    schema = {"type": "object", "properties": {"go": {"type": "boolean"}}}
    question = {"method": "elicitation/create", "params": {"message": "Go?", "requestedSchema": schema}}
    return bool(tasks.require_input(ref_of(task), {"go": question}))


def complete_inside(task: str, seconds: float, commit: bool) -> list[float]:
    """Complete within a transaction of one's own that stays open so long; returns when it was done and ended."""
    ref: UUID = ref_of(task)
    try:
        with transaction.atomic():
            outcome = get_store().complete_task(ref, {"content": [{"type": "text", "text": "late"}]}, durable=False)
            assert outcome, outcome
            done_at = time.time()
            time.sleep(seconds)
            ends_at = time.time()
            if not commit:
                raise _Undone
    except _Undone:
        pass
    return [done_at, ends_at]


class _Undone(Exception):
    pass


def wait(task: str, seconds: float) -> list[Any]:
    """Wait for the end of a task; returns its status and when it was known here."""
    snapshot = tasks.wait(ref_of(task), seconds)
    return [None if snapshot is None else snapshot.task.status, time.time()]


def look(times: int) -> int:
    """Let this process look so often at what it watches; returns how often it did."""
    looks: list[int] = []

    class Counts(observing.Observer):
        def happened(self, moment: str, facts: observing.Facts) -> None:
            if moment == "notification" and facts["result"] == "reconciled":
                looks.append(facts["number"])

    counts = Counts()
    observing.add(counts)
    try:
        for number in range(1, times + 1):
            with hub._lock:
                hub._reader.look()
            deadline = time.monotonic() + 5
            while len(looks) < number and time.monotonic() < deadline:
                time.sleep(0.01)
    finally:
        observing.remove(counts)
    return len(looks)


def run() -> None:
    """Run legs in this process."""
    from mcp_tasks.runners.base import get_runner

    get_runner().ensure_started()


_ACTS = {act.__name__: act for act in (progress, complete, ask, complete_inside, wait, look, run)}
