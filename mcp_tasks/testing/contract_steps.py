"""The contract of steps: recorded once under the fence of a leg, and seen by every later one."""

import pytest

from ..protocol.codec import Json, digest, dumps
from ..store.base import TaskStore
from ..store.types import InvalidTransition, Outcome, RetentionLimitExceeded
from ..tools.steps import RecordedStep
from .contract_support import (
    ACCEPT,
    ALICE,
    LEASE_SECONDS,
    RESULT,
    TOMBSTONE_SECONDS,
    Advance,
    ContractBase,
    Heard,
    asked_live,
    claim,
    claimed,
    configured,
    create,
    parked,
    question,
    stranger,
    unchanged,
)

ARGUMENTS = digest([[1, "a"], {}])
OTHERS = digest([[2, "a"], {}])
VALUES: list[Json] = [None, True, 0, -0.0, 1e16, 2**70, "", "\x00\ud800\u2028", [], {"b": [1], "a": {}, "": None}]


class StepsContract(ContractBase):
    """What a leg did, and need not be done again."""

    @pytest.mark.parametrize("result", VALUES, ids=repr)
    def test_a_step_is_recorded_exactly_and_nobody_is_told(self, store: TaskStore, heard: Heard, result: Json) -> None:
        leg = claimed(store)
        assert store.recorded_steps(leg.ref) == {}
        with unchanged(store, leg.ref, heard):
            assert store.record_step(leg.ref, leg.leg, "charge", ARGUMENTS, result)
        assert store.recorded_steps(leg.ref) == {"charge": RecordedStep(ARGUMENTS, dumps(result))}

    def test_steps_are_listed_in_the_order_in_which_they_were_recorded(self, store: TaskStore) -> None:
        leg = claimed(store)
        for name in ("b", "a", "A", "c"):
            assert store.record_step(leg.ref, leg.leg, name, ARGUMENTS, name)
        assert list(store.recorded_steps(leg.ref)) == ["b", "a", "A", "c"]

    def test_the_same_step_is_recorded_once(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store)
        store.record_step(leg.ref, leg.leg, "charge", ARGUMENTS, "first")
        with unchanged(store, leg.ref, heard):
            outcome = store.record_step(leg.ref, leg.leg, "charge", ARGUMENTS, "second")
        assert outcome == Outcome(False, "unchanged")
        assert store.recorded_steps(leg.ref) == {"charge": RecordedStep(ARGUMENTS, '"first"')}

    def test_a_step_with_other_arguments_is_refused_by_name(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store)
        store.record_step(leg.ref, leg.leg, "charge", ARGUMENTS, "first")
        with unchanged(store, leg.ref, heard), pytest.raises(InvalidTransition, match="charge"):
            store.record_step(leg.ref, leg.leg, "charge", OTHERS, "first")
        assert store.recorded_steps(leg.ref) == {"charge": RecordedStep(ARGUMENTS, '"first"')}

    @pytest.mark.parametrize("name", ["", "two words", "n\u00e4me", "line\n", "x" * 129])
    def test_a_malformed_name_is_refused(self, store: TaskStore, name: str) -> None:
        leg = claimed(store)
        with pytest.raises(InvalidTransition, match="malformed_step"):
            store.record_step(leg.ref, leg.leg, name, ARGUMENTS, 1)
        assert store.recorded_steps(leg.ref) == {}

    def test_too_large_a_result_is_refused_without_a_word_of_it(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store)
        with configured(limits={"PAYLOAD_BYTES": 1024}):
            assert store.record_step(leg.ref, leg.leg, "fits", ARGUMENTS, "x" * 1022)
            with unchanged(store, leg.ref, heard), pytest.raises(RetentionLimitExceeded, match="step") as refusal:
                store.record_step(leg.ref, leg.leg, "charge", ARGUMENTS, "x" * 1023)
        assert "xx" not in str(refusal.value)
        assert list(store.recorded_steps(leg.ref)) == ["fits"]

    def test_two_tasks_have_steps_of_their_own(self, store: TaskStore) -> None:
        one, other = claimed(store), claimed(store)
        assert store.record_step(one.ref, one.leg, "charge", ARGUMENTS, 1)
        assert store.record_step(other.ref, other.leg, "charge", OTHERS, 2)
        assert store.recorded_steps(one.ref) == {"charge": RecordedStep(ARGUMENTS, "1")}
        assert store.recorded_steps(other.ref) == {"charge": RecordedStep(OTHERS, "2")}

    @pytest.mark.parametrize("how", ["lost", "answered", "retried", "released"])
    def test_later_legs_see_the_steps_of_earlier_ones(self, store: TaskStore, advance: Advance, how: str) -> None:
        leg = claimed(store, max_attempts=3)
        store.record_step(leg.ref, leg.leg, "first", ARGUMENTS, {"n": 1})
        match how:
            case "lost":
                advance(leg.ref, LEASE_SECONDS + 1)
                store.recover()
            case "answered":
                store.require_input(leg.ref, {"approval": question()}, leg=leg.leg)
                store.apply_input_responses(leg.ref, {"approval": ACCEPT})
            case "retried":
                store.retry(leg.ref, leg.leg, after_seconds=0)
            case "released":
                store.release(leg.ref, leg.leg)
        second = claim(store, leg.ref)
        assert store.record_step(leg.ref, second.leg, "second", ARGUMENTS, 2)
        assert {name: step.result_json for name, step in store.recorded_steps(leg.ref).items()} == {
            "first": '{"n":1}',
            "second": "2",
        }

    @pytest.mark.parametrize("how", ["cancelled", "completed", "parked", "lost", "taken over", "expired", "unknown"])
    def test_a_leg_that_is_over_records_nothing(
        self, store: TaskStore, advance: Advance, heard: Heard, how: str
    ) -> None:
        leg = claimed(store, max_attempts=3, ttl_ms=1_000_000)
        ref = stranger() if how == "unknown" else leg.ref
        match how:
            case "cancelled":
                store.cancel_task(ref)
            case "completed":
                store.complete_task(ref, RESULT, leg=leg.leg)
            case "parked":
                store.require_input(ref, {"approval": question()}, leg=leg.leg)
            case "lost" | "taken over":
                advance(ref, LEASE_SECONDS + 1)
                store.recover()
            case "expired":
                advance(ref, 1_001)
        if how == "taken over":
            claim(store, ref)
        with unchanged(store, ref, heard):
            outcome = store.record_step(ref, leg.leg, "charge", ARGUMENTS, 1)
        why = {"cancelled": "terminal", "completed": "terminal", "expired": "expired", "unknown": "gone"}
        assert (outcome.applied, outcome.why) == (False, why.get(how, "fenced"))
        assert store.recorded_steps(ref) == {}

    def test_a_leg_that_asks_live_still_records(self, store: TaskStore) -> None:
        leg = asked_live(store)
        assert store.record_step(leg.ref, leg.leg, "charge", ARGUMENTS, 1)

    def test_steps_outlast_the_outcome_and_end_with_the_ttl(self, store: TaskStore, advance: Advance) -> None:
        leg = claimed(store, owner=ALICE, ttl_ms=1_000_000)
        store.record_step(leg.ref, leg.leg, "charge", ARGUMENTS, 1)
        store.complete_task(leg.ref, RESULT, leg=leg.leg)
        assert list(store.recorded_steps(leg.ref)) == ["charge"]
        advance(leg.ref, 1_001)
        assert store.recorded_steps(leg.ref) == {}, "before a sweep"
        store.expire()
        assert store.recorded_steps(leg.ref) == {}
        advance(leg.ref, TOMBSTONE_SECONDS + 1)
        store.purge()
        assert store.recorded_steps(leg.ref) == {}

    def test_nothing_is_recorded_where_there_never_was_a_leg(self, store: TaskStore) -> None:
        assert store.record_step(create(store).ref, 0, "charge", ARGUMENTS, 1).why == "fenced"
        waiting = parked(store)
        assert store.record_step(waiting, 1, "charge", ARGUMENTS, 1).why == "fenced"
        assert store.recorded_steps(stranger()) == {}
