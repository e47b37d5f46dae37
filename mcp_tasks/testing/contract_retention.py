"""The contract of retention: tombstones, what is kept of a finished task, and for how long."""

from uuid import UUID

import pytest

from ..protocol.errors import internal_error
from ..store.base import TaskStore
from ..store.types import Expired, Missing, RetentionLimitExceeded
from .contract_support import (
    ACCEPT,
    ALICE,
    LEASE_SECONDS,
    MAX_TTL_MS,
    RESULT,
    RETENTION_SECONDS,
    TOMBSTONE_SECONDS,
    Advance,
    ContractBase,
    Heard,
    claim,
    claimed,
    configured,
    create,
    parked,
    question,
    view,
)

LAPSED = LEASE_SECONDS + 1


class RetentionContract(ContractBase):
    """Nothing goes before its time, and after it nothing is left."""

    # -- expire ----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("state", ["queued", "running", "asking", "parked", "completed", "cancelled"])
    def test_a_task_of_every_kind_becomes_a_tombstone_after_its_ttl(
        self, store: TaskStore, advance: Advance, heard: Heard, state: str
    ) -> None:
        created = create(store, owner=ALICE, ttl_ms=100_000, meta={"k": "v"})
        revision = _bring(store, created.ref, state)
        advance(created.ref, 80)
        assert store.expire().changed == 0
        assert view(store, created.ref).revision == revision
        advance(created.ref, 21)
        heard.forget()
        assert store.expire().expired == 1
        assert heard.tokens == [(created.ref, "expired")]
        assert heard.published == [(created.ref, revision + 1)]
        assert heard.rung == []
        assert store.resolve(created.task_id, ALICE) == Expired(created.ref, ALICE.key)
        assert store.input_responses(created.ref) == {}
        assert store.get_task_result(created.ref) is None
        assert created.token.cancelled is True
        for _ in range(2):
            assert store.expire().changed == 0
            assert store.recover().changed == store.redeliver().changed == store.answer_overdue().changed == 0

    def test_a_held_token_goes_up_when_the_ttl_is_over_even_before_a_sweep(
        self, store: TaskStore, advance: Advance
    ) -> None:
        created = create(store, ttl_ms=100_000)
        advance(created.ref, 101)
        assert created.token.cancelled is True
        assert created.token.reason == "expired"

    def test_a_task_without_ttl_never_expires(self, store: TaskStore, advance: Advance) -> None:
        with configured(MAX_TTL_MS=None):
            ref = create(store, ttl_ms=None).ref
        advance(ref, 10**7)
        assert store.cleanup_expired().changed == 0
        assert view(store, ref).phase == "queued"

    # -- purge -----------------------------------------------------------------------------------------------

    def test_a_tombstone_is_kept_for_its_owner_and_then_removed(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        created = create(store, owner=ALICE, ttl_ms=100_000)
        advance(created.ref, 101)
        assert store.purge().changed == 0
        store.expire()
        advance(created.ref, TOMBSTONE_SECONDS - 20)
        assert store.purge().changed == 0
        assert store.resolve(created.task_id, ALICE) == Expired(created.ref, ALICE.key)
        advance(created.ref, 21)
        heard.forget()
        assert store.purge().purged == 1
        assert heard.nothing
        assert store.resolve(created.task_id, ALICE) == Missing()
        assert store.set_status(created.ref, "Anybody there?").why == "gone"
        assert store.purge().changed == 0

    @pytest.mark.parametrize("how", ["complete", "fail", "cancel", "leg", "lost", "start failed", "oversized"])
    def test_a_task_without_ttl_that_ended_is_removed_after_its_retention(
        self, store: TaskStore, advance: Advance, how: str
    ) -> None:
        with configured(MAX_TTL_MS=None, limits={"PAYLOAD_BYTES": 1024}):
            ref = create(store, ttl_ms=None, deferred=how == "start failed").ref
            advance(ref, 1000)
            _end(store, advance, ref, how)
        assert view(store, ref).phase == "done"
        advance(ref, RETENTION_SECONDS - 20)
        assert store.cleanup_expired().changed == 0
        assert view(store, ref).phase == "done"
        advance(ref, 21)
        report = store.cleanup_expired()
        assert (report.expired, report.purged) == (0, 1)
        assert store.task_presence(ref) == Missing()

    def test_a_finished_task_with_a_ttl_is_kept_until_its_ttl(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store, ttl_ms=MAX_TTL_MS).ref
        store.complete_task(ref, RESULT)
        advance(ref, 2 * RETENTION_SECONDS)
        assert store.cleanup_expired().changed == 0
        assert view(store, ref).status == "completed"

    def test_taking_the_ttl_of_a_finished_task_away_leaves_its_retention(
        self, store: TaskStore, advance: Advance
    ) -> None:
        ref = create(store).ref
        store.complete_task(ref, RESULT)
        advance(ref, 1000)
        with configured(MAX_TTL_MS=None):
            assert store.set_ttl(ref, None)
        advance(ref, RETENTION_SECONDS - 1020)
        assert store.cleanup_expired().changed == 0
        advance(ref, 21)
        assert store.cleanup_expired().purged == 1

    def test_giving_a_finished_task_a_ttl_replaces_its_retention(self, store: TaskStore, advance: Advance) -> None:
        with configured(MAX_TTL_MS=None):
            ref = create(store, ttl_ms=None).ref
            store.complete_task(ref, RESULT)
            assert store.set_ttl(ref, 1000 * (RETENTION_SECONDS + 1000))
        advance(ref, RETENTION_SECONDS + 10)
        assert store.cleanup_expired().changed == 0
        advance(ref, 1000)
        assert store.cleanup_expired().expired == 1

    def test_cleaning_up_is_expiring_and_purging(self, store: TaskStore, advance: Advance) -> None:
        with configured(TOMBSTONE_SECONDS=0):
            refs = [parked(store, ttl_ms=100_000), claimed(store, ttl_ms=100_000).ref]
            kept = create(store, ttl_ms=MAX_TTL_MS).ref
            for ref in refs:
                advance(ref, 101)
            report = store.cleanup_expired()
            assert (report.expired, report.purged, report.changed) == (2, 2, 4)
            assert store.cleanup_expired().changed == 0
        assert [task.ref for task in store.list_tasks()] == [kept]
        assert all(store.task_presence(ref) == Missing() for ref in refs)

    def test_one_pass_treats_every_task_that_is_due(self, store: TaskStore, advance: Advance) -> None:
        lost = [claimed(store, max_attempts=2).ref for _ in range(3)]
        for ref in lost:
            advance(ref, LAPSED)
        assert store.recover().recovered == 3
        assert {view(store, ref).phase for ref in lost} == {"queued"}


def _bring(store: TaskStore, ref: UUID, state: str) -> int:
    """Bring a queued task into a state; returns its revision."""
    if state in ("running", "asking", "parked"):
        leg = claim(store, ref)
        if state != "running":
            asked = {"a": question("A?"), "b": question("B?")}
            store.require_input(ref, asked, leg=leg.leg, live=state == "asking", deadlines={"b": 50})
            store.apply_input_responses(ref, {"a": ACCEPT})
    elif state == "completed":
        store.complete_task(ref, RESULT)
    elif state == "cancelled":
        store.cancel_task(ref, "No longer needed")
    return view(store, ref).revision


def _end(store: TaskStore, advance: Advance, ref: UUID, how: str) -> None:
    if how == "complete":
        store.complete_task(ref, RESULT)
    elif how == "fail":
        store.fail_task(ref, internal_error())
    elif how == "cancel":
        store.cancel_task(ref)
    elif how == "leg":
        store.complete_task(ref, RESULT, leg=claim(store, ref).leg)
    elif how == "lost":
        claim(store, ref)
        advance(ref, LAPSED)
        assert store.recover().failed == 1
    elif how == "start failed":
        store.fail_task(ref, internal_error(), leg=1, kind="start_failed")
    else:
        with pytest.raises(RetentionLimitExceeded):
            store.complete_task(ref, {"text": "x" * 2000})
