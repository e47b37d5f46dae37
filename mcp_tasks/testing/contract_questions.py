"""The contract of asking: parking, live and unfenced questions, and that a key names one question for life."""

import pytest

from ..protocol.codec import dumps
from ..store.base import TaskStore
from ..store.types import InvalidTransition, RetentionLimitExceeded
from .contract_support import (
    ACCEPT,
    LEASE_SECONDS,
    RESULT,
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
    seconds_between,
    snapshot,
    stranger,
    unchanged,
    view,
)


class QuestionsContract(ContractBase):
    """Asking replaces the whole outstanding set at once, or changes nothing."""

    # -- parking ---------------------------------------------------------------------------------------------

    def test_a_leg_that_asks_is_over_and_its_task_waits(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        leg = claimed(store)
        advance(leg.ref, 5)
        before = view(store, leg.ref)
        heard.forget()
        outcome = store.require_input(leg.ref, {"approval": question()}, "Approve?", leg=leg.leg)
        found = snapshot(store, leg.ref)
        assert outcome
        assert (outcome.why, outcome.revision) == ("ok", found.task.revision)
        assert (found.task.status, found.task.phase) == ("input_required", "parked")
        assert (found.task.leg, found.task.attempts, found.task.due_at) == (leg.leg, 0, None)
        assert found.task.status_message == "Approve?"
        assert found.input_requests == {"approval": question()}
        assert found.task.revision == before.revision + 1
        assert found.task.updated_at > before.updated_at
        assert heard.published == [(leg.ref, found.task.revision)]
        assert (heard.rung, heard.tokens) == ([], [])
        assert store.heartbeat(leg.ref, leg.leg).why == "fenced"
        assert store.claim(leg.ref) is None

    def test_a_question_without_a_message_leaves_the_one_before(self, store: TaskStore) -> None:
        ref = create(store, status_message="Half way").ref
        store.require_input(ref, {"approval": question()})
        assert view(store, ref).status_message == "Half way"

    def test_the_questions_are_shown_in_the_order_and_form_they_were_asked_in(self, store: TaskStore) -> None:
        requests = {"b": question("B?"), "a": {"method": "roots/list"}, "aa": question("AA?")}
        ref = parked(store, requests)
        assert snapshot(store, ref).input_requests_json == dumps(requests)
        assert store.outstanding_input_requests(ref) == requests

    def test_there_are_no_open_questions_before_the_first_and_after_the_end(self, store: TaskStore) -> None:
        ref = create(store).ref
        assert store.outstanding_input_requests(ref) == {}
        assert snapshot(store, ref).input_requests_json is None
        store.require_input(ref, {"approval": question()})
        store.cancel_task(ref)
        assert store.outstanding_input_requests(ref) == {}
        assert snapshot(store, ref).input_requests == {}

    def test_attempts_are_counted_anew_after_a_question(self, store: TaskStore) -> None:
        ref = parked(store, max_attempts=1)
        store.apply_input_responses(ref, {"approval": ACCEPT})
        assert view(store, ref).attempts == 0
        leg = claim(store, ref)
        assert (leg.leg, leg.attempts) == (2, 1)

    # -- live and unfenced -----------------------------------------------------------------------------------

    def test_a_live_question_keeps_the_leg_and_its_lease(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store)
        before = view(store, leg.ref)
        heard.forget()
        assert store.require_input(leg.ref, {"approval": question()}, leg=leg.leg, live=True)
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.leg) == ("input_required", "running", leg.leg)
        assert (task.due_at, task.revision) == (before.due_at, before.revision + 1)
        assert heard.published == [(leg.ref, task.revision)]
        assert heard.rung == []
        assert store.heartbeat(leg.ref, leg.leg)
        assert store.complete_task(leg.ref, RESULT, leg=leg.leg)

    def test_server_code_that_is_no_leg_parks_a_queued_task(self, store: TaskStore) -> None:
        ref = create(store).ref
        assert store.require_input(ref, {"approval": question()}, "Approve?")
        task = view(store, ref)
        assert (task.status, task.phase, task.leg, task.due_at) == ("input_required", "parked", 0, None)
        assert store.claim(ref) is None

    def test_server_code_that_is_no_leg_leaves_a_running_leg_running(self, store: TaskStore) -> None:
        leg = claimed(store)
        due_at = view(store, leg.ref).due_at
        assert store.require_input(leg.ref, {"approval": question()})
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.due_at) == ("input_required", "running", due_at)
        assert store.heartbeat(leg.ref, leg.leg)

    def test_server_code_that_is_no_leg_replaces_the_set_of_a_waiting_task(self, store: TaskStore) -> None:
        ref = parked(store, {"a": question("A?"), "b": question("B?")})
        revision = view(store, ref).revision
        assert store.require_input(ref, {"b": question("B?"), "c": question("C?")})
        task = view(store, ref)
        assert (task.status, task.phase, task.revision) == ("input_required", "parked", revision + 1)
        assert store.outstanding_input_requests(ref) == {"b": question("B?"), "c": question("C?")}

    # -- key rules -------------------------------------------------------------------------------------------

    def test_asking_for_nothing_is_refused(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store)
        for fence in (leg.leg, None):
            with unchanged(store, leg.ref, heard), pytest.raises(InvalidTransition):
                store.require_input(leg.ref, {}, "Anything?", leg=fence)
        assert store.heartbeat(leg.ref, leg.leg)

    def test_an_answered_key_can_never_be_asked_again(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store)
        store.apply_input_responses(ref, {"approval": ACCEPT})
        leg = claim(store, ref)
        for asked in ({"approval": question()}, {"fresh": question("F?"), "approval": question()}):
            with unchanged(store, ref, heard), pytest.raises(InvalidTransition, match="approval"):
                store.require_input(ref, asked, leg=leg.leg)
        assert store.heartbeat(ref, leg.leg)
        assert store.require_input(ref, {"fresh": question("another")}, leg=leg.leg), "nothing had been written"

    def test_a_superseded_key_can_never_be_asked_again(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store, {"ok": question("OK?"), "where": question("Where?")})
        assert store.require_input(ref, {"where": question("Where?")})
        with unchanged(store, ref, heard), pytest.raises(InvalidTransition, match="ok"):
            store.require_input(ref, {"ok": question("OK?"), "where": question("Where?")})

    def test_an_open_key_cannot_be_pointed_at_another_question(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store, {"ok": question("Deploy?")})
        asked = {"fresh": question("F?"), "ok": question("Delete?")}
        with unchanged(store, ref, heard), pytest.raises(InvalidTransition, match="ok"):
            store.require_input(ref, asked)
        assert store.require_input(ref, {"ok": question("Deploy?"), "fresh": question("another")})

    def test_an_open_question_asked_again_in_another_order_of_members_is_the_same(self, store: TaskStore) -> None:
        ref = parked(store, {"ok": question()})
        turned = dict(reversed(question().items()))
        assert dumps(turned) != dumps(question())
        assert store.require_input(ref, {"ok": turned})
        assert store.apply_input_responses(ref, {"ok": ACCEPT})
        assert view(store, ref).status == "working"

    def test_a_refused_ask_does_not_supersede_what_it_left_out(self, store: TaskStore) -> None:
        ref = parked(store, {"a": question("A?"), "b": question("B?")})
        with pytest.raises(InvalidTransition):
            store.require_input(ref, {"b": question("Another?")})
        applied = store.apply_input_responses(ref, {"a": ACCEPT})
        assert applied is not None
        assert applied.accepted == ("a",)

    def test_an_answer_to_a_superseded_key_is_ignored(self, store: TaskStore) -> None:
        ref = parked(store, {"a": question("A?"), "b": question("B?")})
        store.require_input(ref, {"b": question("B?")})
        applied = store.apply_input_responses(ref, {"a": ACCEPT})
        assert applied is not None
        assert (applied.accepted, applied.ignored, applied.still_outstanding) == ((), ("a",), ("b",))

    def test_keys_differ_when_any_letter_does(self, store: TaskStore) -> None:
        requests = {key: question(key) for key in ("ok", "OK", "Ok", "ok.", "~" * 128)}
        ref = parked(store, requests)
        assert store.outstanding_input_requests(ref) == requests
        applied = store.apply_input_responses(ref, {"OK": ACCEPT})
        assert applied is not None
        assert applied.accepted == ("OK",)
        assert set(applied.still_outstanding) == {"ok", "Ok", "ok.", "~" * 128}

    @pytest.mark.parametrize("key", ["", " ", "a b", "a\n", "é", "a\x00", "\ud800", "k" * 129], ids=ascii)
    def test_a_key_is_visible_ascii_of_bounded_length(self, store: TaskStore, heard: Heard, key: str) -> None:
        leg = claimed(store)
        with unchanged(store, leg.ref, heard), pytest.raises(InvalidTransition):
            store.require_input(leg.ref, {"ok": question(), key: question()}, leg=leg.leg)

    # -- limits ----------------------------------------------------------------------------------------------

    def test_a_task_may_ask_so_many_keys_in_all(self, store: TaskStore, heard: Heard) -> None:
        with configured(limits={"INPUT_KEYS": 3}):
            ref = parked(store, {"a": question("A?"), "b": question("B?")})
            store.apply_input_responses(ref, {"a": ACCEPT, "b": ACCEPT})
            leg = claim(store, ref)
            two = {"c": question("C?"), "d": question("D?")}
            with unchanged(store, ref, heard), pytest.raises(RetentionLimitExceeded):
                store.require_input(ref, two, leg=leg.leg)
            assert store.require_input(ref, {"c": question("C?")}, leg=leg.leg)
            assert store.require_input(ref, {"c": question("C?")}), "an open key counts once"

    def test_a_question_beyond_the_limit_is_refused(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store)
        with configured(limits={"PAYLOAD_BYTES": 2_000}):
            with unchanged(store, leg.ref, heard), pytest.raises(RetentionLimitExceeded) as refused:
                store.require_input(leg.ref, {"ok": question("hunter2" * 300)}, leg=leg.leg)
            assert "hunter2" not in str(refused.value)
            assert store.require_input(leg.ref, {"ok": question("Deploy?")}, leg=leg.leg)

    # -- refusals --------------------------------------------------------------------------------------------

    def test_asking_too_late_is_no_error(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        finished = create(store).ref
        store.complete_task(finished, RESULT)
        replaced = claimed(store, max_attempts=2)
        store.release(replaced.ref, replaced.leg)
        cases = [(finished, None, "terminal"), (stranger(), None, "gone"), (stranger(), 1, "gone")]
        cases += [(replaced.ref, replaced.leg, "fenced"), (parked(store), 1, "fenced")]
        for ref, leg, why in cases:
            with unchanged(store, ref, heard):
                outcome = store.require_input(ref, {"late": question()}, leg=leg)
                assert (bool(outcome), outcome.why) == (False, why)
        expired = create(store, ttl_ms=100_000).ref
        advance(expired, 101)
        assert store.require_input(expired, {"late": question()}).why == "expired"

    # -- deadlines -------------------------------------------------------------------------------------------

    def test_the_timer_of_a_waiting_task_is_its_earliest_deadline(self, store: TaskStore) -> None:
        leg = claimed(store)
        asked = {key: question(key) for key in ("a", "b", "c")}
        store.require_input(leg.ref, asked, leg=leg.leg, deadlines={"a": 300, "b": 200})
        task = view(store, leg.ref)
        assert seconds_between(task.updated_at, task.due_at) == pytest.approx(200, abs=1)
        store.apply_input_responses(leg.ref, {"b": ACCEPT})
        task = view(store, leg.ref)
        assert seconds_between(task.updated_at, task.due_at) == pytest.approx(300, abs=5)
        store.apply_input_responses(leg.ref, {"a": ACCEPT})
        assert view(store, leg.ref).due_at is None

    def test_a_carried_question_keeps_its_deadline_and_a_dropped_one_takes_its_along(self, store: TaskStore) -> None:
        leg = claimed(store)
        asked = {"a": question("A?"), "b": question("B?")}
        store.require_input(leg.ref, asked, leg=leg.leg, deadlines={"a": 300, "b": 200})
        store.require_input(leg.ref, {"a": question("A?"), "c": question("C?")})
        task = view(store, leg.ref)
        assert seconds_between(task.updated_at, task.due_at) == pytest.approx(300, abs=5)

    def test_a_live_question_leaves_the_timer_to_the_lease(self, store: TaskStore) -> None:
        leg = claimed(store)
        store.require_input(leg.ref, {"a": question()}, leg=leg.leg, live=True, deadlines={"a": 10})
        task = view(store, leg.ref)
        assert seconds_between(task.started_at, task.due_at) == pytest.approx(LEASE_SECONDS, abs=1)
        assert store.end_leg(leg.ref, leg.leg)
        task = view(store, leg.ref)
        assert seconds_between(task.updated_at, task.due_at) == pytest.approx(10, abs=5)

    def test_a_live_question_may_be_followed_by_another(self, store: TaskStore) -> None:
        leg = asked_live(store, {"a": question("A?")})
        asked = {"a": question("A?"), "b": question("B?")}
        assert store.require_input(leg.ref, asked, leg=leg.leg, live=True)
        assert store.outstanding_input_requests(leg.ref) == asked
        assert store.require_input(leg.ref, {"b": question("B?")}, leg=leg.leg)
        assert view(store, leg.ref).phase == "parked"
