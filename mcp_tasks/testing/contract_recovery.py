"""The contract of recovery: lost legs come back, doorbells ring again, questions do not wait for ever."""

import pytest

from ..store.base import TaskStore
from ..store.types import Claim, Expired, Outcome
from .contract_support import (
    ACCEPT,
    CANCEL,
    DECLINE,
    LEASE_SECONDS,
    MAX_TTL_MS,
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
    snapshot,
    unchanged,
    view,
)

LAPSED = LEASE_SECONDS + 1


class RecoveryContract(ContractBase):
    """No acknowledged task is forgotten: it ends, expires, or waits for somebody."""

    # -- recover ---------------------------------------------------------------------------------------------

    def test_a_lost_leg_is_queued_again_while_it_has_attempts_left(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = claimed(store, max_attempts=2)
        advance(leg.ref, LAPSED)
        before = view(store, leg.ref)
        heard.forget()
        report = store.recover()
        assert (report.recovered, report.failed, report.changed) == (1, 0, 1)
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.leg, task.attempts) == ("working", "queued", 1, 1)
        assert seconds_between(before.due_at, task.due_at) == pytest.approx(REDELIVER_SECONDS + 1, abs=2)
        assert (task.revision, task.updated_at) == (before.revision, before.updated_at)
        assert (heard.rung, heard.published) == ([leg.ref], [])
        assert store.recover().changed == 0
        assert store.claim(leg.ref) == Claim(leg.ref, 2, "report", 2, 2)

    @pytest.mark.parametrize("max_attempts", [1, 3])
    def test_a_leg_lost_once_too_often_fails_its_task(
        self, store: TaskStore, advance: Advance, heard: Heard, max_attempts: int
    ) -> None:
        ref = create(store, max_attempts=max_attempts).ref
        for attempt in range(1, max_attempts + 1):
            leg = claim(store, ref)
            assert leg.attempts == attempt
            advance(ref, LAPSED)
            before = view(store, ref)
            heard.forget()
            report = store.recover()
        assert (report.recovered, report.failed) == (0, 1)
        found = snapshot(store, ref)
        assert (found.task.status, found.task.phase, found.task.due_at) == ("failed", "done", None)
        assert found.error["code"] == -32603
        # True of a tool that may not be repeated, and of one that was repeated as often as it may.
        assert found.error["message"] == "The process that ran this task was lost, and the task may not be tried again"
        assert found.task.status_message == found.error["message"]
        assert found.task.finished_at is not None
        assert found.task.revision == before.revision + 1
        assert found.task.updated_at > before.updated_at
        assert (heard.rung, heard.published) == ([], [(ref, found.task.revision)])
        assert store.heartbeat(ref, leg.leg) == Outcome(False, "terminal")
        assert store.recover().changed == 0

    def test_a_lost_leg_with_open_questions_is_parked_and_not_run_again(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = asked_live(store)
        advance(leg.ref, LAPSED)
        before = view(store, leg.ref)
        heard.forget()
        assert store.recover().recovered == 1
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.due_at) == ("input_required", "parked", None)
        assert (task.revision, task.updated_at) == (before.revision, before.updated_at)
        assert (heard.rung, heard.published) == ([], [])
        assert store.outstanding_input_requests(leg.ref) == {"approval": question()}
        assert store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        assert claim(store, leg.ref).leg == 2

    def test_a_leg_lost_after_its_live_question_was_answered_is_a_new_stretch_of_work(
        self, store: TaskStore, advance: Advance
    ) -> None:
        leg = asked_live(store, max_attempts=1)
        store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        advance(leg.ref, LAPSED)
        assert store.recover().recovered == 1
        assert claim(store, leg.ref).attempts == 1

    def test_only_running_legs_with_a_lapsed_lease_are_lost(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        handed_over = create(store, deferred=True).ref
        store.hand_over(handed_over, 1)
        finished = claimed(store).ref
        store.cancel_task(finished)
        for ref in (create(store).ref, parked(store), handed_over, finished):
            advance(ref, 1000)
            with unchanged(store, ref, heard):
                assert store.recover().changed == 0
        expired = claimed(store, ttl_ms=100_000, max_attempts=3).ref
        advance(expired, 101)
        assert store.recover().changed == 0
        assert isinstance(store.task_presence(expired), Expired)

    def test_the_token_of_a_task_that_will_run_again_is_not_raised_by_its_recovery(
        self, store: TaskStore, advance: Advance
    ) -> None:
        created = create(store, max_attempts=2)
        claim(store, created.ref)
        advance(created.ref, LAPSED)
        store.recover()
        leg = claim(store, created.ref)
        context = store.resume_context(created.ref, leg.leg)
        assert context is not None
        assert context.token.cancelled is False

    # -- redeliver -------------------------------------------------------------------------------------------

    def test_the_doorbell_is_rung_again_ever_more_slowly(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        ref = create(store, ttl_ms=MAX_TTL_MS).ref
        before = view(store, ref)
        advance(ref, REDELIVER_SECONDS - 5)
        for pause in (60, 120, 240, 480, 900, 900, 900):
            heard.forget()
            assert store.redeliver().changed == 0
            assert heard.nothing
            advance(ref, 10)
            due_at = view(store, ref).due_at
            assert store.redeliver().redelivered == 1
            assert heard.rung == [ref]
            assert heard.published == []
            assert seconds_between(due_at, view(store, ref).due_at) == pytest.approx(pause + 5, abs=4)
            advance(ref, pause - 5)
        assert view(store, ref).revision == before.revision
        assert view(store, ref).updated_at - view(store, ref).created_at == before.updated_at - before.created_at

    def test_each_time_in_the_queue_begins_with_a_short_pause(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store, max_attempts=3, ttl_ms=MAX_TTL_MS).ref
        for _ in range(3):
            advance(ref, 1000)
            assert store.redeliver().redelivered == 1
        leg = claim(store, ref)
        store.release(ref, leg.leg)
        advance(ref, REDELIVER_SECONDS + 1)
        due_at = view(store, ref).due_at
        assert store.redeliver().redelivered == 1
        assert seconds_between(due_at, view(store, ref).due_at) == pytest.approx(61, abs=4)

    def test_only_queued_tasks_are_rung_for(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        finished = create(store).ref
        store.complete_task(finished, RESULT)
        for ref in (claimed(store).ref, parked(store), finished):
            advance(ref, 1000)
            with unchanged(store, ref, heard):
                assert store.redeliver().changed == 0
        expired = create(store, ttl_ms=100_000).ref
        advance(expired, 101)
        assert store.redeliver().changed == 0

    # -- overdue questions -----------------------------------------------------------------------------------

    def test_a_question_that_nobody_answered_in_time_is_answered_with_cancel(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = claimed(store)
        store.require_input(leg.ref, {"approval": question()}, leg=leg.leg, deadlines={"approval": 100})
        advance(leg.ref, 80)
        before = view(store, leg.ref)
        with unchanged(store, leg.ref, heard):
            assert store.answer_overdue().changed == 0
        advance(leg.ref, 21)
        assert store.answer_overdue().timed_out == 1
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.revision) == ("working", "queued", before.revision + 1)
        assert task.updated_at > before.updated_at
        assert (heard.rung, heard.published) == ([leg.ref], [(leg.ref, task.revision)])
        assert store.input_responses(leg.ref) == {"approval": CANCEL}
        assert store.outstanding_input_requests(leg.ref) == {}
        late = store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        assert late is not None
        assert late.ignored == ("approval",)
        assert store.answer_overdue().changed == 0
        context = store.resume_context(leg.ref, claim(store, leg.ref).leg)
        assert context is not None
        assert context.answers["approval"].answer == CANCEL

    def test_each_question_has_its_own_deadline(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        leg = claimed(store)
        asked = {key: question(key) for key in ("soon", "later", "never")}
        store.require_input(leg.ref, asked, leg=leg.leg, deadlines={"soon": 100, "later": 200})
        advance(leg.ref, 101)
        heard.forget()
        assert store.answer_overdue().timed_out == 1
        assert store.outstanding_input_requests(leg.ref) == {"later": asked["later"], "never": asked["never"]}
        assert view(store, leg.ref).phase == "parked"
        assert heard.rung == []
        assert store.answer_overdue().changed == 0
        advance(leg.ref, 100)
        assert store.answer_overdue().timed_out == 1
        assert store.outstanding_input_requests(leg.ref) == {"never": asked["never"]}
        assert view(store, leg.ref).due_at is None
        advance(leg.ref, 1000)
        assert store.answer_overdue().changed == 0

    def test_an_answer_in_time_takes_its_deadline_along(self, store: TaskStore, advance: Advance) -> None:
        leg = claimed(store)
        asked = {"soon": question("S?"), "open": question("O?")}
        store.require_input(leg.ref, asked, leg=leg.leg, deadlines={"soon": 100})
        store.apply_input_responses(leg.ref, {"soon": DECLINE})
        advance(leg.ref, 101)
        assert store.answer_overdue().changed == 0
        assert store.input_responses(leg.ref) == {"soon": DECLINE}
        assert store.outstanding_input_requests(leg.ref) == {"open": asked["open"]}

    @pytest.mark.parametrize("how", ["ended", "lost"])
    def test_the_deadline_of_a_live_question_counts_once_its_leg_is_over(
        self, store: TaskStore, advance: Advance, how: str
    ) -> None:
        leg = claimed(store)
        asked = {"a": question("A?"), "b": question("B?")}
        deadlines = {"a": LEASE_SECONDS + 100, "b": 10}
        store.require_input(leg.ref, asked, leg=leg.leg, live=True, deadlines=deadlines)
        advance(leg.ref, LAPSED)
        assert store.answer_overdue().changed == 0
        if how == "ended":
            assert store.end_leg(leg.ref, leg.leg)
        else:
            assert store.recover().recovered == 1
        assert store.answer_overdue().timed_out == 1
        assert store.outstanding_input_requests(leg.ref) == {"a": asked["a"]}
        advance(leg.ref, 100)
        assert store.answer_overdue().timed_out == 1
        assert view(store, leg.ref).phase == "queued"

    def test_the_questions_of_an_expired_task_are_not_answered(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = claimed(store, ttl_ms=100_000)
        store.require_input(leg.ref, {"approval": question()}, leg=leg.leg, deadlines={"approval": 10})
        advance(leg.ref, 101)
        heard.forget()
        assert store.answer_overdue().changed == 0
        assert heard.nothing

    def test_a_late_beat_gives_a_handed_over_task_no_lease_again(self, store: TaskStore, advance: Advance) -> None:
        created = create(store, deferred=True)
        store.hand_over(created.ref, 1)
        assert not store.heartbeat(created.ref, 1)
        advance(created.ref, 10 * LEASE_SECONDS)
        store.recover()
        assert (view(store, created.ref).phase, view(store, created.ref).due_at) == ("running", None)
