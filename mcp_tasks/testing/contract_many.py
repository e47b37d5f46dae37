"""The contract of reading many tasks at once: the same answers as one by one."""

import pytest

from ..protocol.errors import internal_error
from ..store.base import TaskStore
from ..store.types import Owner
from .contract_support import (
    ALICE,
    BOB,
    RESULT,
    Advance,
    ContractBase,
    claimed,
    create,
    parked,
    snapshot,
    stranger,
    unchanged,
    view,
)


class ManyContract(ContractBase):
    """Who watches many tasks asks for all of them, and is told of the present ones."""

    # -- owned_refs ------------------------------------------------------------------------------------------

    def test_own_present_ids_come_with_their_refs_in_the_clients_order(self, store: TaskStore) -> None:
        made = [create(store, owner=ALICE) for _ in range(5)]
        wanted = [made[number] for number in (3, 0, 4, 1)]
        found = store.owned_refs([one.task_id for one in wanted], ALICE)
        assert list(found.items()) == [(one.task_id, one.ref) for one in wanted]

    def test_an_id_that_is_named_twice_is_found_once(self, store: TaskStore) -> None:
        first, second = create(store, owner=ALICE), create(store, owner=ALICE)
        wanted = [second.task_id, first.task_id, second.task_id, first.task_id]
        assert list(store.owned_refs(wanted, ALICE)) == [second.task_id, first.task_id]

    def test_ids_that_are_foreign_unknown_or_malformed_are_left_out_alike(self, store: TaskStore) -> None:
        own, foreign, unowned = create(store, owner=ALICE), create(store, owner=BOB), create(store)
        wanted = [foreign.task_id, "A" * 43, "", "\x00", "ü" * 43, str(own.ref), own.task_id, unowned.task_id]
        assert store.owned_refs(wanted, ALICE) == {own.task_id: own.ref}

    @pytest.mark.parametrize("state", ["past its ttl", "swept"])
    def test_ids_of_expired_tasks_are_left_out(self, store: TaskStore, advance: Advance, state: str) -> None:
        old = create(store, owner=ALICE, ttl_ms=100_000)
        advance(old.ref, 101)
        if state == "swept":
            store.expire()
        young = create(store, owner=ALICE)
        assert store.owned_refs([old.task_id, young.task_id], ALICE) == {young.task_id: young.ref}

    @pytest.mark.parametrize("holder", [ALICE, BOB, None], ids=["alice", "bob", "nobody"])
    @pytest.mark.parametrize("caller", [ALICE, BOB, None], ids=["alice", "bob", "nobody"])
    def test_no_owner_is_an_owner_like_any_other(
        self, store: TaskStore, holder: Owner | None, caller: Owner | None
    ) -> None:
        created = create(store, owner=holder)
        found = store.owned_refs([created.task_id], caller)
        assert found == ({created.task_id: created.ref} if holder == caller else {})

    def test_tasks_that_have_ended_are_present_until_they_expire(self, store: TaskStore) -> None:
        created = create(store, owner=ALICE)
        store.complete_task(created.ref, RESULT)
        assert store.owned_refs([created.task_id], ALICE) == {created.task_id: created.ref}

    def test_nothing_asked_is_nothing_found(self, store: TaskStore) -> None:
        create(store)
        assert store.owned_refs([], None) == {}
        assert store.snapshots([]) == {}
        assert store.revisions([]) == {}

    # -- snapshots and revisions -----------------------------------------------------------------------------

    def test_snapshots_are_what_each_would_be_alone(self, store: TaskStore) -> None:
        refs = [create(store, owner=ALICE).ref, claimed(store).ref, parked(store)]
        for settle in (
            lambda ref: store.complete_task(ref, RESULT),
            lambda ref: store.fail_task(ref, internal_error()),
            lambda ref: store.cancel_task(ref, "why"),
        ):
            refs.append(create(store, meta={"k": [1, None]}).ref)
            settle(refs[-1])
        assert store.snapshots(refs) == {ref: snapshot(store, ref) for ref in refs}
        assert store.snapshots({*refs}) == store.snapshots([*reversed(refs), *refs])

    def test_revisions_are_those_of_the_rows(self, store: TaskStore) -> None:
        refs = [create(store).ref for _ in range(3)]
        store.set_status(refs[0], "Reading")
        store.complete_task(refs[1], RESULT)
        assert store.revisions(refs) == {ref: view(store, ref).revision for ref in refs}
        assert [store.revisions(refs)[ref] for ref in refs] == [2, 2, 1]

    @pytest.mark.parametrize("state", ["past its ttl", "swept"])
    def test_absent_tasks_are_left_out_of_both(self, store: TaskStore, advance: Advance, state: str) -> None:
        old = create(store, ttl_ms=100_000).ref
        advance(old, 101)
        if state == "swept":
            store.expire()
        young, unknown = create(store).ref, stranger()
        assert set(store.snapshots([old, unknown, young])) == {young}
        assert store.revisions([old, unknown, young]) == {young: 1}

    def test_reading_many_changes_nothing(self, store: TaskStore) -> None:
        created = create(store, owner=ALICE)
        with unchanged(store, created.ref):
            store.owned_refs([created.task_id], BOB)
            store.snapshots([created.ref])
            store.revisions([created.ref])
