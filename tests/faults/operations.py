"""
What the processes of the hammer do: how a task is brought into a state, and the operations that meet there.

Runs only in those processes. Operations return plain values, which are compared and sent through a pipe.
"""

import itertools
import os
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from mcp_tasks.lifecycle import DONE, LIVE, QUEUED, RUNNING
from mcp_tasks.models import Task
from mcp_tasks.protocol.codec import dumps
from mcp_tasks.protocol.tasks import CANCELLED, COMPLETED
from mcp_tasks.store.database import DatabaseTaskStore
from mcp_tasks.store.locking import record
from mcp_tasks.store.sweep import sweep
from mcp_tasks.store.types import Owner, RunningLimit, TaskLimitReached
from mcp_tasks.testing.timetravel import rewind

State = dict[str, Any]
Operation = Callable[[State], Any]

#: Far more than the age of any task here.
LONG_MS = 3_600_000
#: Beyond every lease of the hammer, and short of the sixty seconds after which a doorbell is rung again.
LAPSE_SECONDS = 50

store = DatabaseTaskStore()
_numbers = itertools.count()


def question(text: str) -> dict[str, Any]:
    """A form with one field."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"method": "elicitation/create", "params": {"message": text, "requestedSchema": schema}}


def result(text: str) -> dict[str, Any]:
    """The result of a tool."""
    return {"content": [{"type": "text", "text": text}]}


def given(text: str) -> dict[str, Any]:
    """An accepted answer."""
    return {"action": "accept", "content": {"text": text}}


# -- preparations ------------------------------------------------------------------------------------------------


def queued(*, max_attempts: int = 3) -> State:
    """A task that nobody has claimed."""
    return {"ref": store.create_task("hammered", {"n": 1}, max_attempts=max_attempts).ref, "leg": 1}


def running(*, max_attempts: int = 3) -> State:
    """A task whose first leg runs."""
    state = queued(max_attempts=max_attempts)
    assert store.claim(state["ref"], holder="prepared") is not None
    return state


def running_once() -> State:
    """A task whose only leg runs."""
    return running(max_attempts=1)


def asked_live() -> State:
    """A task whose first leg runs and has an open question."""
    state = running()
    assert store.require_input(state["ref"], {"a": question("a")}, leg=1, live=True)
    return state


def parked(*keys: str, deadline_seconds: float | None = None) -> State:
    """A task whose first leg has asked these questions and ended."""
    state = running()
    asked = {key: question(key) for key in keys}
    deadlines = {} if deadline_seconds is None else dict.fromkeys(keys, deadline_seconds)
    assert store.require_input(state["ref"], asked, leg=1, deadlines=deadlines)
    return state


def taken_over() -> State:
    """A task whose first leg was lost, though its process is alive, and whose second one runs."""
    state = running()
    lapse(state)
    assert store.recover().recovered == 1
    assert store.claim(state["ref"], holder="successor") is not None
    return state


def deferred() -> State:
    """A task that is about to be handed over to somebody else's job."""
    return {"ref": store.create_task("hammered", {}, deferred=True).ref, "leg": 1}


def three_of_one_tool() -> State:
    """Three queued tasks that can be claimed by the name of their tool."""
    tool = f"tool-{next(_numbers)}-{os.getpid()}"
    refs = [store.create_task(tool, {}).ref for _ in range(3)]
    return {"ref": refs[0], "leg": 1, "tool": tool}


def thirty_of_one_tool() -> State:
    """Three queued tasks of each of ten owners, all of one tool."""
    tool = f"tool-{next(_numbers)}-{os.getpid()}"
    owners = [Owner((tool, str(n))) for n in range(10)] * 3
    refs = [store.create_task(tool, {}, owner=owner).ref for owner in owners]
    return {"ref": refs[0], "leg": 1, "tool": tool, "refs": refs}


def new_owner() -> State:
    """An owner who has never created a task."""
    return {"ref": None, "owner": f"owner-{next(_numbers)}-{os.getpid()}"}


def lapse(state: State) -> None:
    """Time passes: leases of the task have ended, questions with a deadline are overdue."""
    rewind(state["ref"], LAPSE_SECONDS)


def outlive(state: State) -> None:
    """Time passes until the task's ttl is over. Nobody has noticed yet."""
    rewind(state["ref"], 2 * LONG_MS / 1000)


# -- operations --------------------------------------------------------------------------------------------------


def cancel(state: State) -> Any:
    view = store.cancel_task(state["ref"], "no longer wanted", actor="client")
    return None if view is None else view.status


def complete(text: str, *, leg: int | None = None) -> Operation:
    return lambda state: store.complete_task(state["ref"], result(text), leg=leg).why


def answer(*keys: str, text: str = "yes") -> Operation:
    def operation(state: State) -> Any:
        applied = store.apply_input_responses(state["ref"], {key: given(text) for key in keys})
        return None if applied is None else (applied.accepted, applied.still_outstanding)

    return operation


def claim(state: State) -> Any:
    claimed = store.claim(state["ref"], holder="hammer")
    return None if claimed is None else claimed.leg


def claim_of_tool(state: State) -> Any:
    claimed = store.claim(tools=(state["tool"],), holder="hammer")
    return None if claimed is None else str(claimed.ref)


def claim_within(limit: RunningLimit, number: int) -> Operation:
    """A claim of a task of its own, so that no lock of the task lets the claims meet one after the other."""

    def operation(state: State) -> Any:
        claimed = store.claim(state["refs"][number], limits={state["tool"]: limit}, holder="hammer")
        return None if claimed is None else str(claimed.ref)

    return operation


def work_within(limit: RunningLimit) -> Operation:
    """A worker's life until nothing is queued: how many legs it ran, the most that ran at once, also of one owner."""

    def operation(state: State) -> Any:
        mine = Task.objects.filter(tool=state["tool"])
        ran = most = most_of_owner = 0
        while mine.filter(phase=QUEUED).exists():
            claimed = store.claim(tools=(state["tool"],), limits={state["tool"]: limit}, holder="hammer")
            if claimed is None:
                continue
            running = Counter(mine.filter(phase=RUNNING).values_list("owner_key", flat=True))
            most, most_of_owner = max(most, running.total()), max(most_of_owner, *running.values())
            ran += bool(store.complete_task(claimed.ref, result("done"), leg=claimed.leg))
        return ran, most, most_of_owner

    return operation


def step(result: str) -> Operation:
    return lambda state: store.record_step(state["ref"], 1, "charge", "of the same arguments", result).why


def recover(state: State) -> Any:
    report = store.recover()
    return report.recovered + report.failed


def janitor(state: State) -> Any:
    report = sweep(store)
    assert not report.errors, report.errors
    return report.recovered + report.failed + report.timed_out + report.expired


def heartbeat(state: State) -> Any:
    return store.heartbeat(state["ref"], 1).why


def end_leg(state: State) -> Any:
    return store.end_leg(state["ref"], 1).why


def release(state: State) -> Any:
    return store.release(state["ref"], 1).why


def retry(state: State) -> Any:
    return store.retry(state["ref"], 1, after_seconds=5).why


def park(state: State) -> Any:
    return store.require_input(state["ref"], {"a": question("a")}, leg=1).why


def ask_instead(state: State) -> Any:
    return store.require_input(state["ref"], {"b": question("b")}).why


def hand_over(state: State) -> Any:
    return store.hand_over(state["ref"], 1).why


def discard(state: State) -> Any:
    return store.discard_task(state["ref"])


def set_ttl(ttl_ms: int) -> Operation:
    return lambda state: store.set_ttl(state["ref"], ttl_ms)


def create_owned(state: State) -> Any:
    try:
        store.create_task("hammered", {}, owner=Owner((state["owner"],), "hammered"))
    except TaskLimitReached:
        return "refused"
    return "created"


def create_keyed(state: State) -> Any:
    owner = Owner((state["owner"],), "hammered")
    created = store.create_task("hammered", {"n": 1}, owner=owner, idempotency_key="one")
    return (created.task_id, created.existed)


# -- what must be caught -----------------------------------------------------------------------------------------


def naive_complete(state: State) -> Any:
    """Read, decide, save: what nobody may do, with everything else as it should be."""
    return _save(state["ref"], COMPLETED, result_json=dumps(result("naive")))


def naive_cancel(state: State) -> Any:
    return _save(state["ref"], CANCELLED)


def _save(ref: UUID, status: str, **values: Any) -> str:
    task = Task.objects.get(pk=ref)
    if task.phase not in LIVE:
        return "terminal" if status == COMPLETED else task.status
    assert task.phase == RUNNING
    task.phase, task.status, task.due_at, task.revision = DONE, status, None, task.revision + 1
    task.finished_at = task.updated_at
    for name, value in values.items():
        setattr(task, name, value)
    task.save()
    record("default", ref, status, revision=task.revision, actor="worker")
    return "ok" if status == COMPLETED else status
