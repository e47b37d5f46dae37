"""The contract under contention: several threads do the same thing at once, and it happens once."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connections

from ..store.base import TaskStore
from ..store.types import AppliedResponses, CreatedTask, TaskLimitReached
from .contract_support import (
    ACCEPT,
    ALICE,
    DECLINE,
    LEASE_SECONDS,
    RESULT,
    Advance,
    ContractBase,
    Heard,
    asked_live,
    claimed,
    configured,
    create,
    parked,
    question,
    snapshot,
    view,
)

ROUNDS = 5


def at_once(*operations: Callable[[], Any]) -> list[Any]:
    """Run each on a thread of its own, all started by one barrier; returns what each returned or raised."""
    barrier = threading.Barrier(len(operations))
    results: list[Any] = [None] * len(operations)

    def run(index: int, operation: Callable[[], Any]) -> None:
        try:
            barrier.wait(30)
            results[index] = operation()
        except Exception as problem:
            results[index] = problem
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(operations)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


class RacesContract(ContractBase):
    """Whoever commits first wins, everybody else is told, and nothing happens twice or not at all."""

    def test_a_leg_is_handed_out_once_however_many_ask(self, store: TaskStore) -> None:
        for _ in range(ROUNDS):
            ref = create(store).ref
            claims = at_once(*[partial(store.claim, ref)] * 6)
            assert [claim.leg for claim in claims if claim is not None] == [1]

    def test_workers_that_look_at_once_get_different_tasks(self, store: TaskStore) -> None:
        refs = {create(store).ref for _ in range(4)}
        claims = at_once(*[store.claim] * 4)
        assert {claim.ref for claim in claims if claim is not None} == refs

    def test_two_parts_of_the_answers_are_both_kept_and_start_one_leg(self, store: TaskStore, heard: Heard) -> None:
        for _ in range(ROUNDS):
            ref = parked(store, {"a": question("A?"), "b": question("B?")})
            heard.forget()
            at_once(
                partial(store.apply_input_responses, ref, {"a": ACCEPT}),
                partial(store.apply_input_responses, ref, {"b": DECLINE}),
            )
            assert store.input_responses(ref) == {"a": ACCEPT, "b": DECLINE}
            assert (view(store, ref).status, view(store, ref).phase) == ("working", "queued")
            assert heard.rung == [ref]

    def test_one_of_several_answers_to_a_key_is_accepted(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store)
        heard.forget()
        answers = [{"action": "accept", "content": {"n": n}} for n in range(6)]
        applied: list[AppliedResponses] = at_once(
            *[partial(store.apply_input_responses, ref, {"approval": answer}) for answer in answers]
        )
        winners = [n for n, item in enumerate(applied) if item.accepted]
        assert len(winners) == 1
        assert store.input_responses(ref) == {"approval": answers[winners[0]]}
        assert heard.rung == [ref]

    def test_a_task_has_one_outcome_and_the_loser_is_told(self, store: TaskStore, heard: Heard) -> None:
        for _ in range(ROUNDS):
            leg = claimed(store)
            heard.forget()
            completed, cancelled = at_once(
                partial(store.complete_task, leg.ref, RESULT, leg=leg.leg),
                partial(store.cancel_task, leg.ref),
            )
            found = snapshot(store, leg.ref)
            assert found.task.status == ("completed" if completed else "cancelled")
            assert found.result == (RESULT if completed else None)
            assert cancelled.status == found.task.status
            assert len(heard.published) == 1

    def test_asking_and_cancelling_leave_no_open_question_behind(self, store: TaskStore) -> None:
        for _ in range(ROUNDS):
            leg = claimed(store)
            at_once(
                partial(store.require_input, leg.ref, {"approval": question()}, leg=leg.leg),
                partial(store.cancel_task, leg.ref),
            )
            assert view(store, leg.ref).status == "cancelled"
            assert store.outstanding_input_requests(leg.ref) == {}

    def test_an_answer_and_the_end_of_a_leg_start_one_leg(self, store: TaskStore, heard: Heard) -> None:
        for _ in range(ROUNDS):
            leg = asked_live(store)
            heard.forget()
            at_once(
                partial(store.apply_input_responses, leg.ref, {"approval": ACCEPT}),
                partial(store.end_leg, leg.ref, leg.leg),
            )
            assert (view(store, leg.ref).status, view(store, leg.ref).phase) == ("working", "queued")
            assert heard.rung == [leg.ref]

    def test_asking_the_same_new_key_at_once_issues_it_once(self, store: TaskStore) -> None:
        ref = create(store).ref
        outcomes = at_once(*[partial(store.require_input, ref, {"ok": question(text)}) for text in ("One?", "Two?")])
        assert [outcome for outcome in outcomes if not isinstance(outcome, Exception)] != []
        asked = store.outstanding_input_requests(ref)
        assert asked in ({"ok": question("One?")}, {"ok": question("Two?")})
        assert sum(isinstance(outcome, Exception) for outcome in outcomes) == 1

    def test_a_lost_leg_is_recovered_once(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        leg = claimed(store, max_attempts=2)
        advance(leg.ref, LEASE_SECONDS + 1)
        heard.forget()
        reports = at_once(*[store.recover] * 3)
        assert sorted(report.recovered for report in reports) == [0, 0, 1]
        assert heard.rung == [leg.ref]

    def test_a_leg_is_renewed_or_lost_but_never_both(self, store: TaskStore, advance: Advance) -> None:
        for _ in range(ROUNDS):
            leg = claimed(store, max_attempts=2)
            advance(leg.ref, LEASE_SECONDS + 1)
            beat, report = at_once(partial(store.heartbeat, leg.ref, leg.leg), store.recover)
            assert bool(beat) is not bool(report.recovered)
            assert view(store, leg.ref).phase == ("running" if beat else "queued")
            store.cancel_task(leg.ref)

    def test_a_cap_holds_under_parallel_calls(self, store: TaskStore) -> None:
        with configured(limits={"LIVE_TASKS_PER_OWNER": 3}):
            results = at_once(*[partial(create, store, owner=ALICE)] * 8)
        kinds = Counter(type(result) for result in results)
        assert kinds == {CreatedTask: 3, TaskLimitReached: 5}
        assert len(list(store.list_tasks())) == 3

    def test_parallel_calls_with_one_key_make_one_task(self, store: TaskStore, heard: Heard) -> None:
        results: list[CreatedTask] = at_once(*[partial(create, store, owner=ALICE, idempotency_key="k")] * 6)
        assert len({(created.task_id, created.ref) for created in results}) == 1
        assert sorted(created.existed for created in results) == [False] + [True] * 5
        assert len(heard.rung) == 1

    @pytest.mark.parametrize("step", ["expire", "purge"])
    def test_janitors_at_once_do_everything_once(self, store: TaskStore, advance: Advance, step: str) -> None:
        with configured(TOMBSTONE_SECONDS=0):
            refs = [create(store, ttl_ms=100_000).ref for _ in range(3)]
            for ref in refs:
                advance(ref, 101)
            if step == "purge":
                store.expire()
            reports = at_once(*[getattr(store, step)] * 3)
        assert sum(report.changed for report in reports) == 3
