"""The contract of claims: in which order legs are handed out, and that a tool's running limit is never exceeded."""

from collections.abc import Callable
from uuid import UUID

import pytest

from ..store.base import TaskStore
from ..store.types import Claim, RunningLimit
from .contract_support import (
    ACCEPT,
    ALICE,
    BOB,
    LEASE_SECONDS,
    RESULT,
    Advance,
    ContractBase,
    Heard,
    create,
    question,
    unchanged,
)

#: Of the tool "scan"; other tools are free.
ONE, TWO, ONE_EACH = (
    {"scan": limit} for limit in (RunningLimit(total=1), RunningLimit(total=2), RunningLimit(per_owner=1))
)


class ClaimsContract(ContractBase):
    """Which task is next."""

    # -- order -----------------------------------------------------------------------------------------------

    def test_the_oldest_of_the_highest_priority_comes_first(self, store: TaskStore, advance: Advance) -> None:
        refs = _of_priorities(store, advance)
        order = [claim.ref for claim in iter(store.claim, None)]
        assert order == [refs[name] for name in ("urgent", "urgent too", "old", "new", "idle")]

    def test_the_oldest_of_all_comes_first_where_that_is_asked_for(self, store: TaskStore, advance: Advance) -> None:
        refs = _of_priorities(store, advance)
        order = [claim.ref for claim in iter(lambda: store.claim(oldest_first=True), None)]
        assert order == list(refs.values())

    def test_a_worker_claims_only_tools_it_knows(self, store: TaskStore) -> None:
        scan, report = create(store, "scan").ref, create(store, "report").ref
        assert store.claim(tools=()) is None
        assert store.claim(tools=("other", "Scan")) is None
        assert store.claim(scan, tools=("report",)) is None
        first = store.claim(tools=("report", "other"))
        assert first is not None
        assert first.ref == report
        assert store.claim(tools=("report", "other")) is None
        second = store.claim(scan, tools=("scan",))
        assert second is not None
        assert second.ref == scan

    # -- limits ----------------------------------------------------------------------------------------------

    def test_no_more_legs_of_a_tool_run_than_its_limit(self, store: TaskStore, heard: Heard) -> None:
        waiting = [create(store, "scan").ref for _ in range(4)]
        assert len(_claimed(store, TWO)) == 2
        for ref in waiting[2:]:
            with unchanged(store, ref, heard):
                assert store.claim(limits=TWO) is None
                assert store.claim(ref, limits=TWO) is None
                assert store.claim(tools=("scan", "report"), limits=TWO, oldest_first=True) is None

    def test_without_the_limit_the_same_tool_is_free(self, store: TaskStore) -> None:
        for _ in range(3):
            create(store, "scan")
        assert len(_claimed(store, {"report": RunningLimit(total=1), "scan": RunningLimit()})) == 3

    def test_a_limit_of_nothing_holds_a_tool_back(self, store: TaskStore) -> None:
        create(store, "scan", owner=ALICE)
        assert store.claim(limits={"scan": RunningLimit(total=0)}) is None
        assert store.claim(limits={"scan": RunningLimit(per_owner=0)}) is None

    def test_a_full_tool_with_a_long_queue_does_not_hold_others_back(self, store: TaskStore, advance: Advance) -> None:
        for _ in range(20):
            advance(create(store, "scan", priority=5).ref, 10)
        free = create(store, "report").ref
        assert _claimed(store, ONE)[-1].ref == free
        assert store.claim(limits=ONE) is None

    def test_limits_of_several_tools_hold_at_once(self, store: TaskStore) -> None:
        for _ in range(3):
            create(store, "scan")
            create(store, "report", owner=ALICE)
        limits = {"scan": RunningLimit(total=2), "report": RunningLimit(total=3, per_owner=1)}
        assert sorted(claim.tool for claim in _claimed(store, limits)) == ["report", "scan", "scan"]

    def test_each_owner_has_a_share_and_all_anonymous_callers_have_one_together(self, store: TaskStore) -> None:
        refs = {owner: [create(store, "scan", owner=owner).ref for _ in range(12)] for owner in (ALICE, BOB, None)}
        claims = {claim.ref for claim in _claimed(store, ONE_EACH)}
        assert [len(claims & set(of_owner)) for of_owner in refs.values()] == [1, 1, 1]
        for of_owner in refs.values():
            assert all(store.claim(ref, limits=ONE_EACH) is None for ref in of_owner)

    def test_the_share_of_an_owner_is_counted_for_each_tool(self, store: TaskStore) -> None:
        create(store, "scan", owner=ALICE)
        create(store, "report", owner=ALICE)
        limits = {**ONE_EACH, "report": RunningLimit(per_owner=1)}
        assert len(_claimed(store, limits)) == 2

    def test_of_both_limits_the_narrower_one_holds(self, store: TaskStore) -> None:
        for owner in (ALICE, ALICE, BOB, BOB, None):
            create(store, "scan", owner=owner)
        assert len(_claimed(store, {"scan": RunningLimit(total=2, per_owner=1)})) == 2
        assert len(_claimed(store, {"scan": RunningLimit(total=9, per_owner=1)})) == 1

    @pytest.mark.parametrize("how", ["completed", "cancelled", "asked", "released", "retried", "lost", "expired"])
    def test_room_is_there_again_once_a_leg_is_over(self, store: TaskStore, advance: Advance, how: str) -> None:
        first = create(store, "scan", max_attempts=3, ttl_ms=1_000_000).ref
        assert len(_claimed(store, ONE)) == 1
        second = create(store, "scan", priority=1).ref
        assert store.claim(limits=ONE) is None
        if how in ("lost", "expired"):
            advance(first, LEASE_SECONDS + 1 if how == "lost" else 1_001)
        ends: dict[str, Callable[[], object]] = {
            "completed": lambda: store.complete_task(first, RESULT, leg=1),
            "cancelled": lambda: store.cancel_task(first),
            "asked": lambda: store.require_input(first, {"approval": question()}, leg=1),
            "released": lambda: store.release(first, 1),
            "retried": lambda: store.retry(first, 1, after_seconds=60),
            "lost": lambda: store.recover().changed,
            "expired": lambda: store.expire().changed,
        }
        assert ends[how]()
        claim = store.claim(limits=ONE)
        assert claim is not None
        assert claim.ref == second

    def test_a_stalled_leg_and_one_that_waits_live_still_take_room(self, store: TaskStore, advance: Advance) -> None:
        stalled, asking = (create(store, "scan").ref for _ in range(2))
        assert len(_claimed(store, TWO)) == 2
        advance(stalled, LEASE_SECONDS + 1)
        assert store.require_input(asking, {"approval": question()}, leg=1, live=True)
        waiting = create(store, "scan").ref
        assert store.claim(limits=TWO) is None
        store.apply_input_responses(asking, {"approval": ACCEPT})
        assert store.claim(waiting, limits=TWO) is None

    def test_a_task_that_was_handed_over_takes_room_until_it_ends(self, store: TaskStore) -> None:
        elsewhere = create(store, "scan").ref
        assert len(_claimed(store, TWO)) == 1
        assert store.hand_over(elsewhere, 1)
        deferred = create(store, "scan", deferred=True).ref
        waiting = create(store, "scan").ref
        assert store.claim(limits=TWO) is None
        assert store.complete_task(elsewhere, RESULT)
        claim = store.claim(limits=TWO)
        assert claim is not None
        assert claim.ref == waiting
        assert store.complete_task(deferred, RESULT)


def _claimed(store: TaskStore, limits: dict[str, RunningLimit]) -> list[Claim]:
    """All that can be claimed, until there is nothing or no room."""
    return list(iter(lambda: store.claim(limits=limits), None))


def _of_priorities(store: TaskStore, advance: Advance) -> dict[str, UUID]:
    """Queued tasks in the order of their age."""
    refs: dict[str, UUID] = {}
    for name, priority in (("old", 0), ("urgent", 5), ("new", 0), ("urgent too", 5), ("idle", -1)):
        for ref in refs.values():
            advance(ref, 2)
        refs[name] = create(store, priority=priority).ref
    return refs
