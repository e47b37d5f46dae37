"""The contract of the signals: each at its moment, once, after the change is visible, and never in its way."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from django.dispatch import Signal

from .. import signals
from ..models import Task
from ..protocol.errors import internal_error
from ..store import effects
from ..store.base import TaskStore
from ..store.types import Missing, TaskSnapshot
from .contract_support import (
    ACCEPT,
    ALICE,
    BOB,
    RESULT,
    Advance,
    ContractBase,
    asked_live,
    claimed,
    create,
    parked,
    question,
    view,
)

SIGNALS = {name: value for name, value in vars(signals).items() if isinstance(value, Signal)}


@dataclass(slots=True)
class Signals:
    """What receivers were sent, in order: names with refs and revisions, and what the task was by then."""

    sent: list[tuple[str, UUID, int | None]] = field(default_factory=list)
    seen: list[TaskSnapshot | None] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    def names(self) -> list[str]:
        """The names of what was sent since the last look, sorted: what belongs together has no order."""
        names = sorted(name for name, _, _ in self.sent)
        self.forget()
        return names

    def forget(self) -> None:
        """From here on."""
        self.sent.clear()
        self.seen.clear()


class SignalsContract(ContractBase):
    """A project that listens hears of every turn of a task's life, and of nothing that did not happen."""

    @pytest.fixture
    def told(self, store: TaskStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signals]:
        """Receivers of every signal; a snapshot is read from the store under test."""
        monkeypatch.setattr(effects, "snapshot_readers", [store.get_task_result])
        told = Signals()

        def receiver(name: str) -> Any:
            def receive(sender: Any, ref: UUID, revision: int | None, snapshot: Any, **_: Any) -> None:
                assert sender is Task
                told.sent.append((name, ref, revision))
                told.seen.append(snapshot())
                told.threads.add(threading.get_ident())

            return receive

        receivers = [(signal, receiver(name)) for name, signal in SIGNALS.items()]
        for signal, receive in receivers:
            signal.connect(receive, weak=False)
        yield told
        for signal, receive in receivers:
            signal.disconnect(receive)

    def test_a_new_task_is_told_once(self, store: TaskStore, told: Signals) -> None:
        created = create(store, owner=ALICE, idempotency_key="k")
        assert told.sent == [("task_created", created.ref, None)]
        assert told.seen == [store.get_task_result(created.ref)]
        told.forget()
        assert create(store, owner=ALICE, idempotency_key="k").existed
        assert told.sent == []
        create(store, deferred=True)
        assert told.names() == ["task_created"]

    @pytest.mark.parametrize("how", ["complete", "fail", "cancel"])
    def test_an_outcome_moves_the_status_and_settles_once(self, store: TaskStore, told: Signals, how: str) -> None:
        ref = create(store).ref
        told.forget()
        outcomes: dict[str, Any] = {
            "complete": lambda: store.complete_task(ref, RESULT),
            "fail": lambda: store.fail_task(ref, internal_error()),
            "cancel": lambda: store.cancel_task(ref),
        }
        outcomes[how]()
        assert {(ref, view(store, ref).revision)} == {(told_ref, revision) for _, told_ref, revision in told.sent}
        assert told.seen == [store.get_task_result(ref)] * 2, "whoever is told finds the outcome"
        assert told.names() == ["task_settled", "task_status_changed"]
        for late in outcomes.values():
            late()
        assert told.names() == []

    def test_the_outcome_of_a_leg_is_told_alike(self, store: TaskStore, told: Signals) -> None:
        leg = claimed(store)
        told.forget()
        store.complete_task(leg.ref, RESULT, leg=leg.leg + 1)
        assert told.names() == [], "a leg that lost its task settles nothing"
        store.complete_task(leg.ref, RESULT, leg=leg.leg)
        assert told.names() == ["task_settled", "task_status_changed"]

    def test_a_question_is_told_and_moves_the_status_once(self, store: TaskStore, told: Signals) -> None:
        leg = claimed(store)
        told.forget()
        assert store.require_input(leg.ref, {"a": question()}, leg=leg.leg, live=True)
        assert {revision for _, _, revision in told.sent} == {view(store, leg.ref).revision}
        assert all(seen is not None and seen.input_requests for seen in told.seen)
        assert told.names() == ["input_requested", "task_status_changed"]
        assert store.require_input(leg.ref, {"b": question()}, leg=leg.leg, live=True)
        assert told.names() == ["input_requested"], "it waits already"

    def test_each_answer_is_told_and_the_last_one_moves_the_status(self, store: TaskStore, told: Signals) -> None:
        ref = parked(store, {"a": question(), "b": question()})
        told.forget()
        store.apply_input_responses(ref, {"a": ACCEPT})
        assert told.sent == [("input_answered", ref, view(store, ref).revision)]
        assert told.names() == ["input_answered"]
        store.apply_input_responses(ref, {"a": ACCEPT, "ghost": ACCEPT})
        assert told.names() == [], "an answer that is not taken is none"
        store.apply_input_responses(ref, {"b": ACCEPT})
        assert told.names() == ["input_answered", "task_status_changed"]

    def test_an_answer_to_a_leg_that_goes_on_is_told_alike(self, store: TaskStore, told: Signals) -> None:
        leg = asked_live(store)
        told.forget()
        store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        assert told.names() == ["input_answered", "task_status_changed"]

    def test_an_answer_of_the_janitor_is_told_like_a_clients(
        self, store: TaskStore, advance: Advance, told: Signals
    ) -> None:
        leg = claimed(store)
        store.require_input(leg.ref, {"a": question()}, leg=leg.leg, deadlines={"a": 10})
        told.forget()
        advance(leg.ref, 11)
        assert store.answer_overdue().timed_out == 1
        assert told.names() == ["input_answered", "task_status_changed"]

    @pytest.mark.parametrize("how", ["retry", "release", "recover"])
    def test_a_leg_that_is_queued_again_is_told(
        self, store: TaskStore, advance: Advance, told: Signals, how: str
    ) -> None:
        leg = claimed(store, max_attempts=2)
        told.forget()
        if how == "recover":
            advance(leg.ref, 61)
            assert store.recover().recovered == 1
        elif how == "retry":
            assert store.retry(leg.ref, leg.leg, after_seconds=5)
        else:
            assert store.release(leg.ref, leg.leg)
        assert told.sent == [("task_requeued", leg.ref, None)]
        assert told.seen == [store.get_task_result(leg.ref)]

    def test_a_leg_that_is_lost_at_its_last_attempt_settles(
        self, store: TaskStore, advance: Advance, told: Signals
    ) -> None:
        leg = claimed(store)
        told.forget()
        advance(leg.ref, 61)
        assert store.recover().failed == 1
        assert {revision for _, _, revision in told.sent} == {view(store, leg.ref).revision}
        assert told.names() == ["task_settled", "task_status_changed"]

    @pytest.mark.parametrize("state", ["live", "done"])
    def test_an_expired_task_is_told_when_it_is_reclaimed_and_is_gone_by_then(
        self, store: TaskStore, advance: Advance, told: Signals, state: str
    ) -> None:
        ref = create(store, ttl_ms=100_000).ref
        if state == "done":
            store.complete_task(ref, RESULT)
        told.forget()
        advance(ref, 101)
        assert told.sent == []
        store.expire()
        assert [(name, told_ref) for name, told_ref, _ in told.sent] == [("task_expired", ref)]
        assert told.seen == [None]
        store.expire()
        store.purge()
        assert told.names() == ["task_expired"]

    def test_what_moves_no_turn_of_a_tasks_life_is_not_told(self, store: TaskStore, told: Signals) -> None:
        leg = claimed(store)
        told.forget()
        store.set_status(leg.ref, "Reading", done=1, leg=leg.leg)
        store.set_task_meta(leg.ref, {"k": 1}, leg=leg.leg)
        store.set_ttl(leg.ref, 7_200_000, leg=leg.leg)
        store.heartbeat(leg.ref, leg.leg)
        store.get_task_result(leg.ref)
        store.redeliver()
        assert told.names() == []

    def test_receivers_run_on_the_thread_that_made_the_change(self, store: TaskStore, told: Signals) -> None:
        store.complete_task(create(store).ref, RESULT)
        assert told.threads == {threading.get_ident()}

    @pytest.mark.parametrize("name", ["task_created", "task_status_changed", "task_settled"])
    def test_a_receiver_that_raises_changes_nothing_and_silences_nobody(
        self, store: TaskStore, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heard: list[str] = []

        def broken(**_: Any) -> None:
            raise ZeroDivisionError

        def whole(**_: Any) -> None:
            heard.append(name)

        signal = SIGNALS[name]
        signal.connect(broken, weak=False)
        signal.connect(whole, weak=False)
        try:
            ref = create(store).ref
            assert store.complete_task(ref, RESULT)
        finally:
            signal.disconnect(broken)
            signal.disconnect(whole)
        assert heard == [name]
        assert view(store, ref).status == "completed"

    def test_a_snapshot_is_read_only_by_who_wants_it(self, store: TaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
        reads: list[UUID] = []
        monkeypatch.setattr(effects, "snapshot_readers", [reads.append])

        def careless(**_: Any) -> None:
            return None

        signals.task_settled.connect(careless, weak=False)
        try:
            store.complete_task(create(store).ref, RESULT)
        finally:
            signals.task_settled.disconnect(careless)
        assert reads == []

    @pytest.mark.parametrize("payload", [False, True])
    def test_a_foreign_id_is_told_to_the_project_and_an_unknown_one_is_not(
        self, store: TaskStore, told: Signals, payload: bool
    ) -> None:
        created, unowned = create(store, owner=ALICE), create(store)
        told.forget()
        assert store.resolve("A" * 43, BOB, payload=payload) == Missing()
        store.resolve(created.task_id, ALICE, payload=payload)
        assert told.sent == []
        for caller, one in ((BOB, created), (None, created), (ALICE, unowned)):
            assert store.resolve(one.task_id, caller, payload=payload) == Missing()
        assert told.sent == [("access_refused", one.ref, None) for one in (created, created, unowned)]
