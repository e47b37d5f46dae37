"""How many statements the operations of the hot path are: each is a round trip on a server over the network."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.sweep import sweep
from mcp_tasks.store.types import Owner, RunningLimit

from .statements import IDLE_PASS, counted, hours_are_counted

pytestmark = pytest.mark.django_db

ALICE, BOB = Owner(("issuer", "alice")), Owner(("issuer", "bob"))
RESULT: dict[str, Any] = {"content": []}
ASKED = {"a": {"method": "roots/list"}}
ANSWER: dict[str, Any] = {"action": "decline"}
#: For the tool of all tasks here, and for one that has none.
TWO_OF_EACH = {"report": RunningLimit(total=2, per_owner=2)}
OTHERS = {"other": RunningLimit(total=1)}
#: SQLite has no locking read: there a write comes first, and the read after it.
LOCK = 2 if connection.vendor == "sqlite" else 1
SKIPS = int(connection.features.has_select_for_update_skip_locked)

store = DatabaseTaskStore()


class Tasks:
    """Tasks of Alice in the states that the operations begin in."""

    def queued(self, key: str | None = None) -> Any:
        return store.create_task("report", {}, owner=ALICE, idempotency_key=key)

    def running(self) -> Any:
        ref = self.queued().ref
        assert store.claim(ref)
        return ref

    def parked(self, *keys: str) -> Any:
        ref = self.running()
        assert store.require_input(ref, dict.fromkeys(keys, ASKED["a"]), leg=1)
        return ref

    def waiting(self, running: int) -> Any:
        """A queued task, while so many of its tool run that were claimed under the limit."""
        for _ in range(running):
            assert store.claim(self.queued().ref, limits=TWO_OF_EACH)
        return self.queued().ref

    def finished(self) -> Any:
        ref = self.running()
        assert store.complete_task(ref, RESULT, leg=1)
        return ref


tasks = Tasks()
Prepared = Callable[[], Callable[[], Any]]


def on(prepare: Callable[[], Any], operation: Callable[[Any], Any]) -> Prepared:
    """The operation on what was prepared, which is not counted."""

    def prepared() -> Callable[[], Any]:
        subject = prepare()
        return lambda: operation(subject)

    return prepared


COSTS: dict[str, tuple[int, Prepared]] = {
    # The owner's gate, the count under it, the task, its event.
    "create": (4, on(tasks.queued, lambda _: tasks.queued())),
    "create under a new key": (5, on(tasks.queued, lambda _: tasks.queued("new"))),
    "create under a known key": (2, on(lambda: tasks.queued("known"), lambda _: tasks.queued("known"))),
    # A poll: everything that a client sees of a task, in one read.
    "resolve": (1, on(tasks.queued, lambda made: store.resolve(made.task_id, ALICE, payload=True))),
    # The second one is for the log: a stranger's row itself is never fetched.
    "resolve a foreign task": (2, on(tasks.queued, lambda made: store.resolve(made.task_id, BOB, payload=True))),
    "resolve what is no id": (0, on(tasks.queued, lambda _: store.resolve("x", ALICE, payload=True))),
    "get": (1, on(tasks.queued, lambda made: store.get_task_result(made.ref))),
    "claim": (3, on(tasks.queued, lambda made: store.claim(made.ref))),
    "claim from the table": (3, on(tasks.queued, lambda _: store.claim())),
    "claim from an empty table": (1, on(lambda: None, lambda _: store.claim())),
    "claim the oldest": (3, on(tasks.queued, lambda _: store.claim(oldest_first=True))),
    # What others are limited to costs nothing.
    "claim beside limited tools": (3, on(tasks.queued, lambda _: store.claim(limits=OTHERS))),
    # What runs is counted; then the gate, the count under it, and the two of every claim.
    "claim under a limit": (6, on(lambda: tasks.waiting(1), lambda _: store.claim(limits=TWO_OF_EACH))),
    "claim one task under a limit": (5, on(lambda: tasks.waiting(1), lambda ref: store.claim(ref, limits=TWO_OF_EACH))),
    # Nothing is written while there is no room; where rows can be passed over, only the first is looked at before.
    "claim where the limit is reached": (
        2 + SKIPS,
        on(lambda: tasks.waiting(2), lambda _: store.claim(limits=TWO_OF_EACH)),
    ),
    "heartbeat": (1, on(tasks.running, lambda ref: store.heartbeat(ref, 1))),
    "progress": (1, on(tasks.running, lambda ref: store.set_status(ref, "Reading", done=1, leg=1))),
    # The task, its open questions, its event.
    "complete": (3, on(tasks.running, lambda ref: store.complete_task(ref, RESULT, leg=1))),
    "complete by other code": (3, on(tasks.running, lambda ref: store.complete_task(ref, RESULT))),
    "fail": (3, on(tasks.running, lambda ref: store.fail_task(ref, McpError(-32000, "Broken"), leg=1))),
    # A refused write is followed by a look at why, and by a note for operators that work came too late.
    "complete what is finished": (3, on(tasks.finished, lambda ref: store.complete_task(ref, RESULT, leg=1))),
    # Three as above, and what the caller is shown.
    "cancel": (4, on(tasks.running, lambda ref: store.cancel_task(ref))),
    # The task under the fence of the leg, the step if it was recorded before, the step.
    "record a step": (3, on(tasks.running, lambda ref: store.record_step(ref, 1, "charge", "arguments", RESULT))),
    "read the steps": (1, on(tasks.running, lambda ref: store.recorded_steps(ref))),
    # Lock, questions asked before, one row for each new question, the task, its event.
    "ask": (LOCK + 4, on(tasks.running, lambda ref: store.require_input(ref, ASKED, leg=1))),
    "answer": (LOCK + 4, on(lambda: tasks.parked("a"), lambda ref: store.apply_input_responses(ref, {"a": ANSWER}))),
    "answer one of two": (
        LOCK + 4,
        on(lambda: tasks.parked("a", "b"), lambda ref: store.apply_input_responses(ref, {"a": ANSWER})),
    ),
    "answer what nobody asked": (
        LOCK + 1,
        on(lambda: tasks.parked("a"), lambda ref: store.apply_input_responses(ref, {"ghost": ANSWER})),
    ),
}


@pytest.mark.parametrize("name", COSTS)
def test_an_operation_is_that_many_statements_and_no_more(name: str) -> None:
    expected, prepare = COSTS[name]
    operation = prepare()
    with counted() as statements:
        operation()
    assert len(statements) == expected, "\n".join(statements)


def test_the_janitor_asks_one_question_for_each_of_its_steps_when_nothing_is_due() -> None:
    for _ in range(3):
        tasks.queued()
    with counted() as statements:
        store.recover()
        store.redeliver()
        store.answer_overdue()
        store.expire()
        store.purge()
    assert len(statements) == 5, "\n".join(statements)


def test_a_whole_pass_of_the_janitor_is_that_many_statements_when_nothing_is_due() -> None:
    tasks.queued()
    tasks.finished()
    hours_are_counted()
    sweep(store)  # the first one makes the row of the janitor
    with counted() as statements:
        sweep(store)
    assert len(statements) == IDLE_PASS, "\n".join(statements)
