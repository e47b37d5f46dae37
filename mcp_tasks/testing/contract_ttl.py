"""The contract of lifetimes and sizes: another ttl, its last moments, results and errors too large to keep."""

from collections.abc import Callable
from typing import Any

import pytest

from ..protocol.errors import McpError
from ..store.base import TaskStore
from ..store.types import Expired, RetentionLimitExceeded
from .contract_support import (
    MAX_TTL_MS,
    RESULT,
    TTL_MS,
    Advance,
    ContractBase,
    Heard,
    claim,
    claimed,
    configured,
    create,
    parked,
    seconds_between,
    snapshot,
    stranger,
    unchanged,
    view,
)


class TtlContract(ContractBase):
    """The ttl runs from creation, whatever happens meanwhile, and what is beyond a limit is not kept."""

    @pytest.mark.parametrize("ttl_ms", [7_200_000, 600_000])
    def test_a_live_task_can_be_given_more_or_less_time(
        self, store: TaskStore, advance: Advance, heard: Heard, ttl_ms: int
    ) -> None:
        ref = create(store).ref
        advance(ref, 5)
        before = view(store, ref)
        heard.forget()
        assert store.set_ttl(ref, ttl_ms) is True
        task = view(store, ref)
        assert task.ttl_ms == ttl_ms
        assert seconds_between(task.created_at, task.expires_at) * 1000 == ttl_ms
        assert task.revision == before.revision + 1
        assert task.updated_at > before.updated_at
        assert (task.status, task.phase, task.due_at) == (before.status, before.phase, before.due_at)
        assert (heard.published, heard.rung, heard.tokens) == ([(ref, task.revision)], [], [])

    def test_a_new_ttl_is_measured_from_creation(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store, ttl_ms=100_000).ref
        advance(ref, 80)
        assert store.set_ttl(ref, 200_000)
        advance(ref, 100)
        assert store.get_task(ref) is not None
        advance(ref, 21)
        assert store.get_task(ref) is None

    @pytest.mark.parametrize("ttl_ms", [40_000, 1, 0, -5])
    def test_a_ttl_below_the_age_expires_the_task_at_once(
        self, store: TaskStore, advance: Advance, heard: Heard, ttl_ms: int
    ) -> None:
        ref = create(store).ref
        advance(ref, 50)
        heard.forget()
        assert store.set_ttl(ref, ttl_ms) is True
        assert store.get_task(ref) is None
        assert isinstance(store.task_presence(ref), Expired)
        assert len(heard.published) == 1
        assert store.expire().expired == 1

    @pytest.mark.parametrize("ttl_ms", [MAX_TTL_MS + 1, 10**15, None])
    def test_no_task_is_given_more_than_the_maximum(self, store: TaskStore, ttl_ms: int | None) -> None:
        ref = create(store).ref
        assert store.set_ttl(ref, ttl_ms)
        assert view(store, ref).ttl_ms == MAX_TTL_MS

    def test_a_task_can_be_kept_for_ever_where_there_is_no_maximum(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store, ttl_ms=100_000).ref
        with configured(MAX_TTL_MS=None):
            assert store.set_ttl(ref, None)
        assert (view(store, ref).ttl_ms, view(store, ref).expires_at) == (None, None)
        advance(ref, 1000)
        assert store.expire().expired == 0
        assert view(store, ref).status == "working"
        assert store.set_ttl(ref, TTL_MS)
        assert view(store, ref).ttl_ms == TTL_MS

    @pytest.mark.parametrize("ttl_ms", ["60000", 1.5, True], ids=repr)
    def test_what_is_no_number_of_milliseconds_is_an_error(self, store: TaskStore, heard: Heard, ttl_ms: Any) -> None:
        ref = create(store).ref
        with unchanged(store, ref, heard), pytest.raises(ValueError, match="ttl_ms"):
            store.set_ttl(ref, ttl_ms)

    def test_a_finished_task_is_only_kept_for_another_time(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        ref = create(store, ttl_ms=100_000).ref
        store.complete_task(ref, RESULT)
        advance(ref, 5)
        before = snapshot(store, ref)
        heard.forget()
        assert store.set_ttl(ref, 200_000)
        after = snapshot(store, ref)
        assert (after.task.ttl_ms, after.task.revision) == (200_000, before.task.revision + 1)
        for name in ("status", "phase", "updated_at", "finished_at", "status_message", "due_at"):
            assert getattr(after.task, name) == getattr(before.task, name)
        assert after.result_json == before.result_json
        assert heard.published == [(ref, after.task.revision)]
        advance(ref, 150)
        assert view(store, ref).status == "completed"
        advance(ref, 51)
        assert store.get_task(ref) is None

    @pytest.mark.parametrize("state", ["queued", "running", "parked", "done"])
    def test_the_ttl_that_a_task_has_is_no_news(
        self, store: TaskStore, advance: Advance, heard: Heard, state: str
    ) -> None:
        ref = parked(store) if state == "parked" else create(store).ref
        fence = claim(store, ref).leg if state == "running" else None
        if state == "done":
            store.complete_task(ref, RESULT)
        advance(ref, 5)
        with unchanged(store, ref, heard):
            assert store.set_ttl(ref, TTL_MS, leg=fence) is True
        assert store.set_ttl(ref, MAX_TTL_MS + 1, leg=fence) is True
        with unchanged(store, ref, heard):
            assert store.set_ttl(ref, None, leg=fence) is True, "no time at all is the maximum here, which it has"

    def test_no_ttl_again_is_no_news_where_there_is_no_maximum(self, store: TaskStore, heard: Heard) -> None:
        ref = create(store).ref
        with configured(MAX_TTL_MS=None):
            assert store.set_ttl(ref, None) is True
            with unchanged(store, ref, heard):
                assert store.set_ttl(ref, None) is True

    def test_the_ttl_that_a_task_has_is_refused_as_any_other(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        leg = claimed(store, ttl_ms=100_000)
        with unchanged(store, leg.ref, heard):
            assert store.set_ttl(leg.ref, 100_000, leg=leg.leg + 1) is False
        advance(leg.ref, 99.85)
        assert store.set_ttl(leg.ref, 100_000) is False

    def test_finishing_does_not_prolong_a_task(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store, ttl_ms=100_000).ref
        advance(ref, 80)
        store.complete_task(ref, RESULT)
        assert view(store, ref).status == "completed"
        advance(ref, 21)
        assert store.get_task(ref) is None

    def test_an_absent_task_is_given_no_time(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        assert store.set_ttl(stranger(), TTL_MS) is False
        refs = [create(store, ttl_ms=100_000).ref, create(store, ttl_ms=100_000).ref]
        store.complete_task(refs[1], RESULT)
        for ref in refs:
            advance(ref, 101)
        for _ in ("past its ttl", "swept"):
            heard.forget()
            for ref in refs:
                assert store.set_ttl(ref, TTL_MS) is False
                assert store.get_task(ref) is None
            assert heard.nothing
            store.expire()

    def test_in_its_last_moments_a_task_is_given_no_more_time(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store, ttl_ms=100_000).ref
        advance(ref, 99.85)
        assert store.set_ttl(ref, TTL_MS) is False
        task = store.get_task(ref)
        assert task is None or task.ttl_ms == 100_000

    def test_a_leg_prolongs_only_the_task_that_it_runs(self, store: TaskStore) -> None:
        leg = claimed(store, max_attempts=3)
        assert store.set_ttl(leg.ref, 2 * TTL_MS, leg=leg.leg) is True
        for other in (leg.leg - 1, leg.leg + 1):
            assert store.set_ttl(leg.ref, TTL_MS, leg=other) is False
        store.release(leg.ref, leg.leg)
        assert store.set_ttl(leg.ref, TTL_MS, leg=leg.leg) is False
        leg = claim(store, leg.ref)
        store.complete_task(leg.ref, RESULT, leg=leg.leg)
        assert store.set_ttl(leg.ref, TTL_MS, leg=leg.leg) is False
        assert view(store, leg.ref).ttl_ms == 2 * TTL_MS
        assert store.set_ttl(leg.ref, TTL_MS) is True

    # -- sizes -----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("fenced", [False, True], ids=["unfenced", "fenced"])
    @pytest.mark.parametrize("part", ["result", "error"])
    def test_what_is_too_large_to_keep_fails_the_task_and_none_of_it_is_stored(
        self, store: TaskStore, heard: Heard, part: str, fenced: bool
    ) -> None:
        leg = claimed(store)
        fence = leg.leg if fenced else None
        heard.forget()
        text = "hunter2" * 300
        writes: dict[str, Callable[[], Any]] = {
            "result": lambda: store.complete_task(leg.ref, {"text": text}, leg=fence, status_message="hunter2"),
            "error": lambda: store.fail_task(leg.ref, McpError(-32000, "hunter2", text), leg=fence),
        }
        with configured(limits={"PAYLOAD_BYTES": 1024}), pytest.raises(RetentionLimitExceeded) as refused:
            writes[part]()
        found = snapshot(store, leg.ref)
        assert (found.task.status, found.task.phase) == ("failed", "done")
        assert found.error["code"] == -32603
        assert found.result_json is None
        assert found.task.status_message
        assert "hunter2" not in repr(found)
        assert "hunter2" not in str(refused.value)
        assert heard.published == [(leg.ref, found.task.revision)], "whoever waits was woken before the error"
        assert store.wait_for_completion(leg.ref, 0) == found

    def test_a_result_too_large_to_keep_ends_a_waiting_task_too(self, store: TaskStore) -> None:
        ref = parked(store)
        with configured(limits={"PAYLOAD_BYTES": 1024}), pytest.raises(RetentionLimitExceeded):
            store.complete_task(ref, {"text": "x" * 2000})
        assert view(store, ref).status == "failed"
        assert store.outstanding_input_requests(ref) == {}

    def test_a_foreign_leg_with_too_large_an_outcome_does_not_fail_the_task(
        self, store: TaskStore, heard: Heard
    ) -> None:
        leg = claimed(store)
        with configured(limits={"PAYLOAD_BYTES": 1024}), unchanged(store, leg.ref, heard):
            assert store.complete_task(leg.ref, {"text": "x" * 2000}, leg=leg.leg + 1).why == "fenced"
            error = McpError(-32000, "broken", "x" * 2000)
            assert store.fail_task(leg.ref, error, leg=leg.leg + 1).why == "fenced"

    def test_a_message_of_the_callers_own_stays_with_an_error_too_large_to_keep(self, store: TaskStore) -> None:
        ref = create(store).ref
        with configured(limits={"PAYLOAD_BYTES": 1024}), pytest.raises(RetentionLimitExceeded):
            store.fail_task(ref, McpError(-32000, "broken", "x" * 2000), status_message="The disk is full")
        assert view(store, ref).status_message == "The disk is full"

    def test_sizes_are_those_of_utf_8(self, store: TaskStore) -> None:
        fits, exceeds = {"t": "é" * 508}, {"t": "é" * 508 + "x"}
        with configured(limits={"PAYLOAD_BYTES": 1024}):
            assert store.complete_task(create(store).ref, fits)
            with pytest.raises(RetentionLimitExceeded, match="1025"):
                store.complete_task(create(store).ref, exceeds)

    def test_a_limit_of_none_is_no_limit(self, store: TaskStore) -> None:
        ref = create(store).ref
        with configured(limits={"PAYLOAD_BYTES": None}):
            assert store.complete_task(ref, {"text": "x" * 5_000_000})
        assert view(store, ref).status == "completed"
