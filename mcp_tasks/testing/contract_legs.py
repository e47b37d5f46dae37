"""The contract of legs: one number for each run of a handler, and a fence that only the running one passes."""

from collections.abc import Callable
from uuid import UUID

import pytest

from ..protocol.errors import internal_error
from ..store.base import TaskStore
from ..store.types import Claim, Outcome
from .contract_support import (
    ACCEPT,
    LEASE_SECONDS,
    REDELIVER_SECONDS,
    RESULT,
    Advance,
    ContractBase,
    Heard,
    asked_live,
    claim,
    claimed,
    create,
    parked,
    question,
    seconds_between,
    stranger,
    unchanged,
    view,
)


class LegsContract(ContractBase):
    """A leg is handed out once; what it writes counts only while it is the running one."""

    # -- claim -----------------------------------------------------------------------------------------------

    def test_a_claim_hands_out_a_leg_under_a_lease(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        ref = create(store, "scan", max_attempts=3).ref
        advance(ref, 5)
        before = view(store, ref)
        heard.forget()
        assert store.claim(ref, holder="host:1") == Claim(ref, 1, "scan", 1, 3)
        task = view(store, ref)
        assert (task.status, task.phase, task.leg, task.attempts) == ("working", "running", 1, 1)
        assert task.started_at is not None
        assert task.started_at > task.created_at
        assert seconds_between(task.started_at, task.due_at) == pytest.approx(LEASE_SECONDS, abs=1)
        assert (task.revision, task.updated_at) == (before.revision, before.updated_at)
        assert heard.nothing

    def test_a_leg_is_handed_out_once(self, store: TaskStore) -> None:
        ref = create(store).ref
        assert store.claim(ref) is not None
        assert store.claim(ref) is None
        assert store.claim() is None

    def test_only_a_queued_task_can_be_claimed(self, store: TaskStore, advance: Advance) -> None:
        finished, expired = create(store).ref, create(store, ttl_ms=100_000).ref
        store.cancel_task(finished)
        advance(expired, 101)
        for ref in (finished, expired, parked(store), asked_live(store).ref, stranger()):
            assert store.claim(ref) is None
        assert store.claim() is None
        store.expire()
        assert store.claim(expired) is None

    def test_the_first_start_is_remembered_and_leg_numbers_only_grow(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store, max_attempts=3).ref
        numbers = [claim(store, ref).leg]
        advance(ref, 10)
        started_at = view(store, ref).started_at
        store.release(ref, 1)
        numbers.append(claim(store, ref).leg)
        store.require_input(ref, {"approval": question()}, leg=2)
        store.apply_input_responses(ref, {"approval": ACCEPT})
        numbers.append(claim(store, ref).leg)
        assert numbers == [1, 2, 3]
        assert view(store, ref).started_at == started_at

    # -- heartbeat -------------------------------------------------------------------------------------------

    def test_a_heartbeat_renews_the_lease_and_nothing_else(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = claimed(store)
        advance(leg.ref, LEASE_SECONDS - 10)
        before = view(store, leg.ref)
        heard.forget()
        assert store.heartbeat(leg.ref, leg.leg)
        task = view(store, leg.ref)
        assert seconds_between(before.due_at, task.due_at) == pytest.approx(LEASE_SECONDS - 10, abs=2)
        assert (task.revision, task.updated_at, task.phase) == (before.revision, before.updated_at, "running")
        assert heard.nothing
        advance(leg.ref, LEASE_SECONDS - 10)
        assert store.recover().changed == 0
        advance(leg.ref, 20)
        assert store.recover().changed == 1

    def test_a_leg_whose_lease_lapsed_is_still_the_running_one_until_somebody_takes_it_away(
        self, store: TaskStore, advance: Advance
    ) -> None:
        leg = claimed(store)
        advance(leg.ref, LEASE_SECONDS + 10)
        assert store.heartbeat(leg.ref, leg.leg)
        assert store.recover().changed == 0
        advance(leg.ref, LEASE_SECONDS + 10)
        assert store.complete_task(leg.ref, RESULT, leg=leg.leg)

    # -- the fence -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["recovered", "released", "retried", "parked", "answered", "taken over"])
    def test_a_leg_that_was_taken_away_changes_nothing(
        self, store: TaskStore, advance: Advance, heard: Heard, how: str
    ) -> None:
        leg = claimed(store, max_attempts=3)
        if how in ("recovered", "taken over"):
            advance(leg.ref, LEASE_SECONDS + 1)
            assert store.recover().recovered == 1
        if how == "taken over":
            claim(store, leg.ref)
        if how == "released":
            store.release(leg.ref, leg.leg)
        if how == "retried":
            store.retry(leg.ref, leg.leg, after_seconds=30)
        if how in ("parked", "answered"):
            store.require_input(leg.ref, {"approval": question()}, leg=leg.leg)
        if how == "answered":
            store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        _assert_fenced(store, heard, leg.ref, leg.leg)

    @pytest.mark.parametrize("number", [0, -1, 2])
    def test_a_number_that_is_not_the_running_legs_is_no_fence_pass(
        self, store: TaskStore, heard: Heard, number: int
    ) -> None:
        leg = claimed(store)
        _assert_fenced(store, heard, leg.ref, number)

    @pytest.mark.parametrize("number", [0, 1])
    def test_nobody_is_the_leg_of_a_task_that_has_not_started(
        self, store: TaskStore, heard: Heard, number: int
    ) -> None:
        _assert_fenced(store, heard, create(store).ref, number)

    # -- end of leg ------------------------------------------------------------------------------------------

    def test_a_leg_that_asked_live_ends_by_parking(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        leg = asked_live(store)
        advance(leg.ref, 5)
        before = view(store, leg.ref)
        heard.forget()
        assert store.end_leg(leg.ref, leg.leg)
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.due_at) == ("input_required", "parked", None)
        assert (task.revision, task.updated_at) == (before.revision, before.updated_at)
        assert heard.nothing
        assert store.outstanding_input_requests(leg.ref) == {"approval": question()}

    def test_a_leg_that_was_answered_meanwhile_ends_by_queueing_the_next(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = asked_live(store)
        store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        advance(leg.ref, 5)
        before = view(store, leg.ref)
        heard.forget()
        outcome = store.end_leg(leg.ref, leg.leg)
        task = view(store, leg.ref)
        assert outcome == Outcome(True, "ok", before.revision)
        assert (task.status, task.phase) == ("working", "queued")
        assert seconds_between(before.due_at, task.due_at) == pytest.approx(REDELIVER_SECONDS - 55, abs=2)
        assert (task.revision, task.updated_at) == (before.revision, before.updated_at)
        assert (heard.rung, heard.published) == ([leg.ref], [])
        assert claim(store, leg.ref).leg == leg.leg + 1

    @pytest.mark.parametrize("max_attempts", [1, 2])
    def test_a_leg_that_did_not_ask_does_not_end_once_its_attempts_are_used_up(
        self, store: TaskStore, heard: Heard, max_attempts: int
    ) -> None:
        leg = claimed(store, max_attempts=max_attempts)
        while leg.attempts < max_attempts:
            assert store.end_leg(leg.ref, leg.leg)
            leg = claim(store, leg.ref)
        with unchanged(store, leg.ref, heard):
            assert store.end_leg(leg.ref, leg.leg).why == "not_applicable"
        assert store.complete_task(leg.ref, RESULT, leg=leg.leg), "it is still the running one"

    @pytest.mark.parametrize("max_attempts", [1, 2])
    def test_the_last_leg_that_may_be_tried_ends_as_any_other_once_its_question_was_answered(
        self, store: TaskStore, max_attempts: int
    ) -> None:
        leg = claimed(store, max_attempts=max_attempts)
        while leg.attempts < max_attempts:
            assert store.retry(leg.ref, leg.leg, after_seconds=0)
            leg = claim(store, leg.ref)
        assert store.require_input(leg.ref, {"approval": question()}, leg=leg.leg, live=True)
        store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        assert store.end_leg(leg.ref, leg.leg)
        assert store.claim(leg.ref) == Claim(leg.ref, leg.leg + 1, "report", 1, max_attempts)

    # -- release and retry -----------------------------------------------------------------------------------

    def test_a_released_leg_does_not_count(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        leg = claimed(store, max_attempts=2)
        advance(leg.ref, 30)
        before = view(store, leg.ref)
        heard.forget()
        outcome = store.release(leg.ref, leg.leg)
        task = view(store, leg.ref)
        assert outcome == Outcome(True, "ok", before.revision)
        assert (task.status, task.phase, task.leg, task.attempts) == ("working", "queued", 1, 0)
        assert seconds_between(before.due_at, task.due_at) == pytest.approx(30, abs=2)
        assert (task.revision, task.updated_at) == (before.revision, before.updated_at)
        assert (heard.rung, heard.published, heard.tokens) == ([leg.ref], [], [])
        assert store.claim(leg.ref) == Claim(leg.ref, 2, "report", 1, 2)

    def test_a_release_takes_back_one_attempt_and_not_those_before(self, store: TaskStore) -> None:
        leg = claimed(store, max_attempts=3)
        store.retry(leg.ref, leg.leg, after_seconds=0)
        leg = claim(store, leg.ref)
        assert store.release(leg.ref, leg.leg)
        assert view(store, leg.ref).attempts == 1

    def test_a_leg_that_may_not_be_run_again_is_not_released(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store, max_attempts=1)
        with unchanged(store, leg.ref, heard):
            assert store.release(leg.ref, leg.leg).why == "not_applicable"
        assert store.heartbeat(leg.ref, leg.leg)

    def test_a_leg_whose_handler_was_never_called_may_be_given_back_in_any_case(
        self, store: TaskStore, advance: Advance
    ) -> None:
        leg = claimed(store, max_attempts=1)
        assert store.release(leg.ref, leg.leg, unstarted_seconds=20)
        assert view(store, leg.ref).attempts == 0
        assert store.claim(leg.ref) is None
        assert store.redeliver().redelivered == 0
        advance(leg.ref, 21)
        assert store.redeliver().redelivered == 1, "nobody is told that it may be claimed by now"
        assert store.claim(leg.ref) == Claim(leg.ref, 2, "report", 1, 1)

    def test_a_release_after_an_answered_live_question_leaves_no_attempts_in_credit(self, store: TaskStore) -> None:
        leg = asked_live(store, max_attempts=2)
        store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        assert store.release(leg.ref, leg.leg)
        assert view(store, leg.ref).attempts == 0

    def test_a_transient_error_queues_the_leg_again_after_a_back_off(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = claimed(store, max_attempts=3)
        advance(leg.ref, 30)
        before = view(store, leg.ref)
        heard.forget()
        assert store.retry(leg.ref, leg.leg, after_seconds=120)
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.attempts) == ("working", "queued", 1)
        assert seconds_between(before.due_at, task.due_at) == pytest.approx(90, abs=2)
        assert (task.revision, task.updated_at) == (before.revision, before.updated_at)
        assert heard.nothing
        advance(leg.ref, 100)
        assert store.redeliver().changed == 0
        assert store.claim(leg.ref) is None
        assert store.claim() is None
        advance(leg.ref, 21)
        assert store.redeliver().redelivered == 1
        assert heard.rung == [leg.ref]
        assert store.claim(leg.ref) == Claim(leg.ref, 2, "report", 2, 3)

    def test_a_back_off_holds_only_for_the_next_leg(self, store: TaskStore, advance: Advance) -> None:
        leg = claimed(store, max_attempts=5)
        store.retry(leg.ref, leg.leg, after_seconds=100)
        assert store.require_input(leg.ref, {"approval": question()}), "server code asks meanwhile"
        store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        assert claim(store, leg.ref).leg == 2

    @pytest.mark.parametrize("max_attempts", [1, 2])
    def test_a_leg_is_not_retried_once_its_attempts_are_used_up(
        self, store: TaskStore, heard: Heard, max_attempts: int
    ) -> None:
        leg = claimed(store, max_attempts=max_attempts)
        while leg.attempts < max_attempts:
            assert store.retry(leg.ref, leg.leg, after_seconds=0)
            leg = claim(store, leg.ref)
        with unchanged(store, leg.ref, heard):
            assert store.retry(leg.ref, leg.leg, after_seconds=0).why == "not_applicable"
        assert store.fail_task(leg.ref, internal_error("The error stands"), leg=leg.leg)

    def test_a_leg_with_open_questions_is_neither_released_nor_retried(self, store: TaskStore, heard: Heard) -> None:
        leg = asked_live(store, max_attempts=3)
        with unchanged(store, leg.ref, heard):
            assert store.release(leg.ref, leg.leg).why == "not_applicable"
            assert store.retry(leg.ref, leg.leg, after_seconds=1).why == "not_applicable"

    # -- let go ----------------------------------------------------------------------------------------------

    def test_a_handler_is_let_go_once_after_an_outcome_from_elsewhere(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store)
        assert store.let_go(leg.ref, leg.leg).why == "not_applicable"
        store.cancel_task(leg.ref)
        with unchanged(store, leg.ref, heard):
            assert not store.let_go(leg.ref, leg.leg + 1)
            assert store.let_go(leg.ref, leg.leg)
            assert store.let_go(leg.ref, leg.leg).why == "terminal"
        assert store.let_go(stranger(), 1).why == "gone"

    def test_after_the_end_of_its_ttl_nobody_lets_a_task_go(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = claimed(store, ttl_ms=100_000)
        store.cancel_task(leg.ref)
        advance(leg.ref, 101)
        heard.forget()
        for _ in ("past its ttl", "swept"):
            assert store.let_go(leg.ref, leg.leg) == Outcome(False, "expired")
            assert heard.nothing
            store.expire()
            heard.forget()

    @pytest.mark.parametrize("how", ["parked", "ended", "released", "retried", "lost"])
    def test_a_leg_that_was_over_before_the_outcome_has_nothing_to_let_go(
        self, store: TaskStore, advance: Advance, how: str
    ) -> None:
        leg = claimed(store, max_attempts=1 if how == "lost" else 3)
        if how in ("parked", "ended"):
            asked = {"approval": question()}
            assert store.require_input(leg.ref, asked, leg=leg.leg, live=how == "ended")
        ends: dict[str, Callable[[], Outcome]] = {
            "parked": lambda: Outcome(True),
            "ended": lambda: store.end_leg(leg.ref, leg.leg),
            "released": lambda: store.release(leg.ref, leg.leg),
            "retried": lambda: store.retry(leg.ref, leg.leg, after_seconds=0),
            "lost": lambda: Outcome(store.recover().failed == 1),
        }
        if how == "lost":
            advance(leg.ref, LEASE_SECONDS + 1)
        assert ends[how]()
        store.cancel_task(leg.ref)
        assert store.let_go(leg.ref, leg.leg).why == "terminal"

    def test_a_leg_that_settled_its_task_itself_has_nothing_to_let_go(self, store: TaskStore) -> None:
        leg = claimed(store)
        store.complete_task(leg.ref, RESULT, leg=leg.leg)
        assert store.let_go(leg.ref, leg.leg).why == "terminal"


def _assert_fenced(store: TaskStore, heard: Heard, ref: UUID, leg: int) -> None:
    """No write of this leg is applied, and each is told that it was fenced out."""
    writes: dict[str, Callable[[], Outcome]] = {
        "heartbeat": lambda: store.heartbeat(ref, leg),
        "set_status": lambda: store.set_status(ref, "Zombie", leg=leg),
        "set_task_meta": lambda: store.set_task_meta(ref, {"zombie": True}, leg=leg),
        "complete_task": lambda: store.complete_task(ref, RESULT, leg=leg),
        "fail_task": lambda: store.fail_task(ref, internal_error(), leg=leg),
        "require_input": lambda: store.require_input(ref, {"zombie": question()}, leg=leg),
        "require_input live": lambda: store.require_input(ref, {"zombie": question()}, leg=leg, live=True),
        "end_leg": lambda: store.end_leg(ref, leg),
        "release": lambda: store.release(ref, leg),
        "retry": lambda: store.retry(ref, leg, after_seconds=1),
        "hand_over": lambda: store.hand_over(ref, leg),
        "let_go": lambda: store.let_go(ref, leg),
    }
    for name, write in writes.items():
        with unchanged(store, ref, heard):
            outcome = write()
        assert (name, bool(outcome), outcome.why) == (name, False, "fenced")
    with unchanged(store, ref, heard):
        assert store.set_ttl(ref, 1, leg=leg) is False
        assert store.resume_context(ref, leg) is None
