"""The contract of progress and outcomes: the first outcome wins and nothing changes it afterwards."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ..protocol.errors import McpError, internal_error
from ..store.base import TaskStore
from ..store.types import Outcome, RetentionLimitExceeded
from .contract_support import (
    RESULT,
    Advance,
    ContractBase,
    Heard,
    claim,
    claimed,
    configured,
    create,
    parked,
    question,
    snapshot,
    stranger,
    unchanged,
    view,
)

ERROR = McpError(-32602, "no such region", {"field": "region"})
Finish = Callable[[TaskStore, UUID], Any]

ENDINGS: dict[str, Finish] = {
    "completed": lambda store, ref: store.complete_task(ref, RESULT),
    "failed": lambda store, ref: store.fail_task(ref, ERROR),
    "cancelled": lambda store, ref: store.cancel_task(ref, "No longer needed"),
}
STATES: dict[str, Callable[[TaskStore], UUID]] = {
    "queued": lambda store: create(store).ref,
    "running": lambda store: claimed(store).ref,
    "parked": lambda store: parked(store),
}


class OutcomesContract(ContractBase):
    """A terminal state is immutable; a late transition is answered "not applied" and is no error."""

    # -- progress --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("state", STATES)
    def test_progress_is_shown_in_every_live_state(
        self, store: TaskStore, advance: Advance, heard: Heard, state: str
    ) -> None:
        ref = STATES[state](store)
        advance(ref, 5)
        before = snapshot(store, ref)
        heard.forget()
        outcome = store.set_status(ref, "Reading rows", done=3, total=9.5)
        found = snapshot(store, ref)
        task = found.task
        assert (task.status_message, task.progress_done, task.progress_total) == ("Reading rows", 3, 9.5)
        assert isinstance(task.progress_done, float), "an integer is one number like any other"
        assert (task.status, task.phase, task.due_at) == (before.task.status, state, before.task.due_at)
        assert found.input_requests_json == before.input_requests_json
        assert task.revision == before.task.revision + 1
        assert task.updated_at > before.task.updated_at
        assert outcome == Outcome(True, "ok", task.revision)
        assert (heard.published, heard.rung, heard.tokens) == ([(ref, task.revision)], [], [])

    def test_equal_progress_is_no_change(self, store: TaskStore, heard: Heard) -> None:
        ref = create(store).ref
        with unchanged(store, ref, heard):
            assert store.set_status(ref, None) == Outcome(False, "unchanged")
        assert store.set_status(ref, "Reading", done=1, total=2)
        with unchanged(store, ref, heard):
            assert store.set_status(ref, "Reading", done=1.0, total=2.0).why == "unchanged"

    def test_a_change_of_any_part_of_progress_is_a_change(self, store: TaskStore) -> None:
        ref = create(store).ref
        steps: list[tuple[str | None, float | None, float | None]] = [
            ("Reading", 1, 2),
            ("reading", 1, 2),
            ("reading", 2, 2),
            ("reading", 2, 3),
            ("reading", None, 3),
            ("reading", 0, 3),
            ("reading", 0, None),
            (None, 0, None),
            ("", 0, None),
        ]
        for message, done, total in steps:
            assert store.set_status(ref, message, done=done, total=total)
            task = view(store, ref)
            assert (task.status_message, task.progress_done, task.progress_total) == (message, done, total)
        assert task.revision == 1 + len(steps)

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
    def test_numbers_that_no_json_can_carry_are_refused(self, store: TaskStore, heard: Heard, number: float) -> None:
        ref = create(store).ref
        with unchanged(store, ref, heard):
            with pytest.raises(ValueError, match="done"):
                store.set_status(ref, "Reading", done=number)
            with pytest.raises(ValueError, match="total"):
                store.set_status(ref, "Reading", done=1, total=number)

    def test_progress_can_never_reach_a_terminal_status(self, store: TaskStore) -> None:
        ref = create(store).ref
        for status in ("completed", "failed", "cancelled", "input_required"):
            store.set_status(ref, status)
            assert view(store, ref).status == "working"

    # -- outcomes --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("state", STATES)
    @pytest.mark.parametrize("status", ENDINGS)
    def test_every_live_task_can_end_in_every_way(
        self, store: TaskStore, advance: Advance, heard: Heard, state: str, status: str
    ) -> None:
        ref = STATES[state](store)
        advance(ref, 5)
        before = view(store, ref)
        heard.forget()
        assert ENDINGS[status](store, ref)
        found = snapshot(store, ref)
        task = found.task
        assert (task.status, task.phase, task.due_at) == (status, "done", None)
        assert (task.leg, task.revision) == (before.leg, before.revision + 1)
        assert task.updated_at > before.updated_at
        assert task.finished_at is not None
        assert task.finished_at > before.updated_at
        assert task.expires_at == before.expires_at
        assert found.input_requests_json is None
        assert found.result == (RESULT if status == "completed" else None)
        assert found.error == (ERROR.payload() if status == "failed" else None)
        assert (task.cancel_requested_at is not None) is (status == "cancelled")
        assert heard.published == [(ref, task.revision)]
        assert heard.rung == []
        assert store.outstanding_input_requests(ref) == {}
        assert store.claim(ref) is None

    @pytest.mark.parametrize("status", ["completed", "failed"])
    def test_a_leg_ends_its_task_by_its_number(self, store: TaskStore, heard: Heard, status: str) -> None:
        leg = claimed(store)
        heard.forget()
        if status == "completed":
            outcome = store.complete_task(leg.ref, RESULT, leg=leg.leg)
        else:
            outcome = store.fail_task(leg.ref, ERROR, leg=leg.leg)
        assert outcome == Outcome(True, "ok", view(store, leg.ref).revision)
        assert view(store, leg.ref).status == status
        assert heard.tokens == []
        assert store.heartbeat(leg.ref, leg.leg).why == "terminal"

    def test_a_result_clears_the_message_or_leaves_a_summary(self, store: TaskStore) -> None:
        for summary in (None, "Nine rows read"):
            ref = create(store, status_message="Reading").ref
            store.complete_task(ref, RESULT, status_message=summary)
            assert view(store, ref).status_message == summary

    def test_progress_numbers_outlive_the_outcome(self, store: TaskStore) -> None:
        ref = create(store).ref
        store.set_status(ref, "Reading", done=9, total=9)
        store.complete_task(ref, RESULT)
        assert (view(store, ref).progress_done, view(store, ref).progress_total) == (9, 9)

    def test_a_result_with_is_error_completes_the_task(self, store: TaskStore) -> None:
        ref = create(store).ref
        store.complete_task(ref, {**RESULT, "isError": True})
        assert (view(store, ref).status, view(store, ref).tool_error) == ("completed", True)
        assert snapshot(store, ref).result["isError"] is True
        fine = create(store).ref
        store.complete_task(fine, {**RESULT, "isError": False})
        assert view(store, fine).tool_error is False

    def test_an_error_is_kept_whole(self, store: TaskStore) -> None:
        ref, bare = create(store).ref, create(store).ref
        store.fail_task(ref, ERROR, traceback="Traceback …")
        store.fail_task(bare, internal_error("broken"), status_message="It broke")
        assert snapshot(store, ref).error == {
            "code": -32602,
            "message": "no such region",
            "data": {"field": "region"},
        }
        assert view(store, ref).status_message == "no such region"
        assert snapshot(store, bare).error == {"code": -32603, "message": "broken"}
        assert view(store, bare).status_message == "It broke"
        assert "Traceback" not in repr(snapshot(store, ref))

    # -- the first outcome wins ------------------------------------------------------------------------------

    @pytest.mark.parametrize("status", ENDINGS)
    def test_nothing_changes_a_finished_task(self, store: TaskStore, heard: Heard, status: str) -> None:
        leg = claimed(store, max_attempts=3)
        ENDINGS[status](store, leg.ref)
        late = _writes(store, leg.ref)
        for name, write in late.items():
            for fence in (None, leg.leg):
                with unchanged(store, leg.ref, heard):
                    outcome = write(fence)
                assert (name, bool(outcome), outcome.why) == (name, False, "terminal")

    def test_a_late_result_too_large_to_keep_is_not_applied_either(self, store: TaskStore, heard: Heard) -> None:
        ref = create(store).ref
        store.cancel_task(ref)
        large = {"text": "x" * 2000}
        with configured(limits={"PAYLOAD_BYTES": 1024}), unchanged(store, ref, heard):
            assert store.complete_task(ref, large).why == "terminal"
            assert store.fail_task(ref, McpError(-32000, "large", large)).why == "terminal"
            assert store.complete_task(stranger(), large).why == "gone"

    def test_a_write_says_why_it_was_refused(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        for write in _writes(store, stranger()).values():
            assert (write(None).why, write(1).why) == ("gone", "gone")
        expired = claimed(store, ttl_ms=100_000)
        advance(expired.ref, 101)
        heard.forget()
        for _ in ("past its ttl", "swept"):
            for write in _writes(store, expired.ref).values():
                assert (write(None).why, write(expired.leg).why) == ("expired", "expired")
                assert heard.nothing
            store.expire()
            heard.forget()

    # -- cancel ----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("state", STATES)
    def test_cancel_settles_at_once_and_raises_the_token(self, store: TaskStore, heard: Heard, state: str) -> None:
        ref = STATES[state](store)
        context = store.resume_context(ref)
        assert context is not None
        heard.forget()
        task = store.cancel_task(ref, "No longer needed")
        assert task == view(store, ref)
        assert task.status == "cancelled"
        assert task.status_message == "No longer needed"
        assert task.cancel_requested_at == task.finished_at
        assert heard.tokens == [(ref, "cancelled")]
        assert context.token.cancelled is True
        assert context.token.reason == "cancelled"

    def test_cancel_without_a_reason_leaves_no_message(self, store: TaskStore) -> None:
        ref = create(store, status_message="Queued").ref
        store.cancel_task(ref, actor="client")
        assert view(store, ref).status_message is None

    def test_a_cancelled_leg_is_told_so(self, store: TaskStore) -> None:
        leg = claimed(store)
        store.cancel_task(leg.ref)
        assert store.heartbeat(leg.ref, leg.leg).why == "terminal"
        assert store.resume_context(leg.ref, leg.leg) is None

    @pytest.mark.parametrize("status", ENDINGS)
    def test_cancelling_a_finished_task_only_raises_its_token(
        self, store: TaskStore, heard: Heard, status: str
    ) -> None:
        created = create(store)
        ENDINGS[status](store, created.ref)
        before = snapshot(store, created.ref)
        for _ in range(2):
            heard.forget()
            task = store.cancel_task(created.ref, "Too late")
            after = snapshot(store, created.ref)
            assert task == after.task
            assert after.task.cancel_requested_at is not None
            assert after.result_json == before.result_json
            assert after.error_json == before.error_json
            for name in ("status", "phase", "status_message", "revision", "updated_at", "finished_at"):
                assert getattr(after.task, name) == getattr(before.task, name)
            assert heard.tokens == [(created.ref, "cancelled")]
            assert (heard.published, heard.rung) == ([], [])
        assert created.token.cancelled is True

    def test_the_moment_of_the_first_cancel_stays(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store).ref
        store.complete_task(ref, RESULT)
        store.cancel_task(ref)
        advance(ref, 5)
        moment = view(store, ref).cancel_requested_at
        store.cancel_task(ref)
        assert view(store, ref).cancel_requested_at == moment

    def test_an_absent_task_cannot_be_cancelled(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        assert store.cancel_task(stranger()) is None
        assert heard.nothing
        ref = create(store, ttl_ms=100_000).ref
        advance(ref, 101)
        for _ in ("past its ttl", "swept"):
            heard.forget()
            assert store.cancel_task(ref) is None
            assert heard.nothing
            store.expire()

    # -- meta ------------------------------------------------------------------------------------------------

    def test_meta_is_shown_and_replaced_whole(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        ref = create(store, meta={"a": 1}).ref
        advance(ref, 5)
        before = view(store, ref)
        heard.forget()
        outcome = store.set_task_meta(ref, {"b": 2})
        found = snapshot(store, ref)
        assert found.meta_json == '{"b":2}'
        assert outcome == Outcome(True, "ok", before.revision + 1)
        assert (found.task.revision, found.task.status) == (before.revision + 1, "working")
        assert found.task.updated_at > before.updated_at
        assert heard.published == [(ref, found.task.revision)]

    def test_meta_beyond_the_limit_is_refused(self, store: TaskStore, heard: Heard) -> None:
        ref = create(store, meta={"a": 1}).ref
        with (
            configured(limits={"PAYLOAD_BYTES": 1024}),
            unchanged(store, ref, heard),
            pytest.raises(RetentionLimitExceeded),
        ):
            store.set_task_meta(ref, {"text": "x" * 2000})

    def test_a_leg_writes_progress_and_meta_by_its_number(self, store: TaskStore) -> None:
        leg = claimed(store)
        assert store.set_status(leg.ref, "Mine", leg=leg.leg)
        assert store.set_task_meta(leg.ref, {"mine": True}, leg=leg.leg)
        store.require_input(leg.ref, {"approval": question()}, leg=leg.leg)
        store.apply_input_responses(leg.ref, {"approval": {"action": "accept"}})
        second = claim(store, leg.ref)
        assert store.set_status(leg.ref, "Not mine", leg=leg.leg).why == "fenced"
        assert store.set_task_meta(leg.ref, {"mine": False}, leg=leg.leg).why == "fenced"
        assert store.set_status(leg.ref, "Mine again", leg=second.leg)


def _writes(store: TaskStore, ref: UUID) -> dict[str, Callable[[int | None], Outcome]]:
    """Every write that may be fenced, and the ones that always are, as functions of the leg."""
    return {
        "complete_task": lambda leg: store.complete_task(ref, {"another": "result"}, leg=leg),
        "fail_task": lambda leg: store.fail_task(ref, internal_error("another"), leg=leg),
        "set_status": lambda leg: store.set_status(ref, "Late", done=1, leg=leg),
        "set_task_meta": lambda leg: store.set_task_meta(ref, {"late": True}, leg=leg),
        "require_input": lambda leg: store.require_input(ref, {"late": question("Late?")}, leg=leg),
        "heartbeat": lambda leg: store.heartbeat(ref, leg or 1),
        "end_leg": lambda leg: store.end_leg(ref, leg or 1),
        "release": lambda leg: store.release(ref, leg or 1),
        "retry": lambda leg: store.retry(ref, leg or 1, after_seconds=1),
        "hand_over": lambda leg: store.hand_over(ref, leg or 1),
    }
