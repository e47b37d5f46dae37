"""The contract of reading: who may see a task, when it is absent, and waiting for its end."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from ..protocol.errors import internal_error
from ..store.base import TaskStore
from ..store.twins import twin
from ..store.types import Expired, Missing, Owner, Present, TaskSnapshot
from .contract_support import (
    ACCEPT,
    ALICE,
    BOB,
    RESULT,
    TOMBSTONE_SECONDS,
    Advance,
    ContractBase,
    claimed,
    create,
    parked,
    question,
    snapshot,
    stranger,
    view,
)


class ReadingContract(ContractBase):
    """The owner is checked first, absent is absent everywhere, and one read is one state."""

    # -- resolve ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("owner", [ALICE, None], ids=["owned", "anonymous"])
    def test_a_task_is_there_for_its_owner(self, store: TaskStore, owner: Owner | None) -> None:
        created = create(store, owner=owner)
        key = None if owner is None else owner.key
        assert store.resolve(created.task_id, owner) == Present(created.ref, key, "report")
        with_payload = store.resolve(created.task_id, owner, payload=True)
        assert with_payload == Present(created.ref, key, "report", snapshot(store, created.ref))

    @pytest.mark.parametrize(
        ("owner", "caller"),
        [(ALICE, BOB), (ALICE, None), (None, ALICE)],
        ids=["other", "anonymous", "unowned"],
    )
    @pytest.mark.parametrize("state", ["present", "past its ttl", "swept"])
    def test_for_everybody_else_a_task_does_not_exist(
        self, store: TaskStore, advance: Advance, owner: Owner | None, caller: Owner | None, state: str
    ) -> None:
        created = create(store, owner=owner, ttl_ms=100_000)
        if state != "present":
            advance(created.ref, 101)
        if state == "swept":
            store.expire()
        for payload in (False, True):
            assert store.resolve(created.task_id, caller, payload=payload) == Missing()

    def test_an_owner_is_its_parts_and_nothing_else(self, store: TaskStore) -> None:
        created = create(store, owner=Owner(("ab", "c", None), "A"))
        assert isinstance(store.resolve(created.task_id, Owner(("ab", "c", None), "Another label")), Present)
        for parts in (
            ("a", "bc", None),
            ("ab", "c"),
            ("ab", "c", "None"),
            ("ab", "c", ""),
            ("AB", "c", None),
        ):
            assert store.resolve(created.task_id, Owner(parts, "A")) == Missing()

    @pytest.mark.parametrize(
        "task_id", ["", "x", "A" * 43, "A" * 10_000, "a\x00b", "\ud800" * 43, "é" * 43, "*" * 43], ids=ascii
    )
    def test_an_id_that_was_never_handed_out_names_nothing(self, store: TaskStore, task_id: str) -> None:
        create(store, owner=ALICE)
        assert store.resolve(task_id, ALICE) == Missing()
        assert store.resolve(task_id, None) == Missing()

    def test_ids_are_compared_letter_by_letter(self, store: TaskStore) -> None:
        created = create(store)
        for task_id in (created.task_id.swapcase(), created.task_id + " ", created.task_id + "\n"):
            assert store.resolve(task_id, None) == Missing()

    def test_the_ref_is_not_the_id(self, store: TaskStore) -> None:
        created = create(store)
        assert store.resolve(str(created.ref), None) == Missing()
        assert store.resolve(created.ref.hex, None) == Missing()

    # -- expiry ----------------------------------------------------------------------------------------------

    def test_a_task_is_present_until_its_ttl_and_not_longer(self, store: TaskStore, advance: Advance) -> None:
        created = create(store, owner=ALICE, ttl_ms=100_000)
        advance(created.ref, 80)
        assert isinstance(store.resolve(created.task_id, ALICE), Present)
        assert isinstance(store.task_presence(created.ref), Present)
        advance(created.ref, 21)
        for _ in ("past its ttl", "swept"):
            assert store.resolve(created.task_id, ALICE) == Expired(created.ref, ALICE.key)
            assert store.resolve(created.task_id, ALICE, payload=True) == Expired(created.ref, ALICE.key)
            assert store.task_presence(created.ref) == Expired(created.ref, ALICE.key)
            store.expire()
        advance(created.ref, TOMBSTONE_SECONDS + 1)
        store.purge()
        assert store.resolve(created.task_id, ALICE) == Missing()
        assert store.task_presence(created.ref) == Missing()

    @pytest.mark.parametrize("state", ["queued", "running", "parked", "done"])
    @pytest.mark.parametrize("swept", [False, True], ids=["unswept", "swept"])
    def test_an_expired_task_reads_as_absent_whether_it_was_swept_or_not(
        self, store: TaskStore, advance: Advance, state: str, swept: bool
    ) -> None:
        ref = _in_state(store, state)
        assert store.get_task(ref) is not None
        advance(ref, 101)
        if swept:
            store.expire()
        assert store.get_task(ref) is None
        assert store.get_task_result(ref) is None
        assert store.outstanding_input_requests(ref) is None
        assert store.input_responses(ref) == {}
        assert store.resume_context(ref) is None
        assert list(store.list_tasks()) == []
        assert store.wait_for_completion(ref, 0) is None

    # -- presence, owner, views ------------------------------------------------------------------------------

    def test_presence_by_ref_says_whose_the_task_is_and_of_which_tool(self, store: TaskStore) -> None:
        owned, anonymous = create(store, owner=ALICE).ref, create(store, "scan").ref
        assert store.task_presence(owned) == Present(owned, ALICE.key, "report")
        assert store.task_presence(anonymous) == Present(anonymous, None, "scan")
        assert store.task_presence(stranger()) == Missing()

    def test_an_owner_can_be_told_from_no_owner_and_from_no_task(self, store: TaskStore, advance: Advance) -> None:
        owned, anonymous = create(store, owner=ALICE, ttl_ms=100_000).ref, create(store).ref
        assert store.task_owner(owned) == (True, ALICE.key)
        assert store.task_owner(anonymous) == (True, None)
        assert store.task_owner(stranger()) == (False, None)
        advance(owned, 101)
        assert store.task_owner(owned) == (True, ALICE.key)

    def test_the_task_object_is_the_one_of_the_snapshot(self, store: TaskStore) -> None:
        ref = parked(store, owner=ALICE)
        assert store.get_task(ref) == snapshot(store, ref).task

    def test_an_unknown_task_is_none(self, store: TaskStore) -> None:
        assert store.get_task(stranger()) is None
        assert store.get_task_result(stranger()) is None
        assert store.outstanding_input_requests(stranger()) is None
        assert store.input_responses(stranger()) == {}
        assert store.resume_context(stranger()) is None
        assert store.resume_context(stranger(), 1) is None

    def test_reading_changes_nothing(self, store: TaskStore) -> None:
        ref = create(store).ref
        store.complete_task(ref, RESULT)
        assert snapshot(store, ref) == snapshot(store, ref)
        assert snapshot(store, ref).result == RESULT

    # -- lists -----------------------------------------------------------------------------------------------

    def test_the_list_has_every_present_task_once(self, store: TaskStore, advance: Advance) -> None:
        refs = [_in_state(store, state) for state in ("queued", "running", "parked", "done")]
        expired = create(store, ttl_ms=100_000).ref
        for ref in refs:
            store.set_ttl(ref, None)
        advance(expired, 101)
        listed = list(store.list_tasks())
        assert sorted(task.ref for task in listed) == sorted(refs)
        assert sorted(listed, key=lambda task: task.ref) == [view(store, ref) for ref in sorted(refs)]

    def test_the_list_can_be_narrowed_to_a_status(self, store: TaskStore) -> None:
        queued, waiting = create(store).ref, parked(store)
        done, failed = create(store).ref, create(store).ref
        store.complete_task(done, RESULT)
        store.cancel_task(failed)
        statuses = {"working": queued, "input_required": waiting, "completed": done, "cancelled": failed}
        for status, ref in statuses.items():
            assert [task.ref for task in store.list_tasks(status=status)] == [ref]
        assert list(store.list_tasks(status="failed")) == []

    def test_the_list_is_read_as_it_is_walked(self, store: TaskStore) -> None:
        create(store)
        listed = store.list_tasks()
        assert iter(listed) is listed
        assert next(listed).tool == "report"
        assert next(listed, None) is None

    # -- waiting ---------------------------------------------------------------------------------------------

    def test_waiting_for_a_finished_task_returns_at_once(self, store: TaskStore) -> None:
        ref = create(store).ref
        store.complete_task(ref, RESULT)
        assert store.wait_for_completion(ref) == snapshot(store, ref)
        assert store.wait_for_completion(ref, 0) == snapshot(store, ref)

    def test_waiting_for_an_unknown_task_returns_none(self, store: TaskStore) -> None:
        assert store.wait_for_completion(stranger()) is None

    @pytest.mark.parametrize("state", ["queued", "running", "parked"])
    def test_waiting_ends_with_an_error_at_the_timeout(self, store: TaskStore, state: str) -> None:
        with pytest.raises(TimeoutError):
            store.wait_for_completion(_in_state(store, state), 0)

    @pytest.mark.parametrize("how", ["complete", "fail", "cancel"])
    def test_a_waiter_is_given_the_outcome(self, store: TaskStore, how: str) -> None:
        ref = create(store).ref
        with _Waiter(store, ref) as waiter:
            _finish(store, ref, how)
        assert waiter.found == snapshot(store, ref)

    def test_expiry_ends_the_waiting(self, store: TaskStore, advance: Advance) -> None:
        ref = create(store, ttl_ms=100_000).ref
        with _Waiter(store, ref) as waiter:
            advance(ref, 101)
            store.expire()
        assert waiter.found is None

    # -- twins -----------------------------------------------------------------------------------------------

    def test_every_method_of_the_interface_that_has_a_twin_can_be_awaited(self, store: TaskStore) -> None:
        twins = [name for name, value in vars(TaskStore).items() if isinstance(value, twin)]
        assert len(twins) >= 20
        for name in twins:
            assert name.startswith("a")
            assert callable(getattr(store, name.removeprefix("a")))
            assert callable(getattr(store, name))

    def test_a_twin_does_what_its_method_does(self, store: TaskStore) -> None:
        async def story() -> TaskSnapshot | None:
            created = await store.acreate_task("report", {"n": 1}, owner=ALICE)
            assert await store.aresolve(created.task_id, ALICE) == Present(created.ref, ALICE.key, "report")
            assert await store.aset_status(created.ref, "Half way", done=1, total=2)
            assert await store.acomplete_task(created.ref, RESULT)
            return await store.await_for_completion(created.ref, 0)

        found = async_to_sync(story)()
        assert found is not None
        assert found.result == RESULT
        assert found == snapshot(store, found.task.ref)


def _in_state(store: TaskStore, state: str) -> UUID:
    """A task in one of the phases, with a ttl of 100 seconds."""
    if state == "running":
        return claimed(store, ttl_ms=100_000).ref
    if state == "parked":
        ref = parked(store, {"a": question("A?"), "b": question("B?")}, ttl_ms=100_000)
        store.apply_input_responses(ref, {"a": ACCEPT})
        return ref
    ref = create(store, ttl_ms=100_000).ref
    if state == "done":
        store.complete_task(ref, RESULT)
    return ref


def _finish(store: TaskStore, ref: UUID, how: str) -> None:
    actions: dict[str, Callable[[], Any]] = {
        "complete": lambda: store.complete_task(ref, RESULT),
        "fail": lambda: store.fail_task(ref, internal_error()),
        "cancel": lambda: store.cancel_task(ref),
    }
    actions[how]()


class _Waiter:
    """Waits for a task on a thread of its own, until the block is over and the waiting has ended."""

    def __init__(self, store: TaskStore, ref: UUID) -> None:
        self.found: TaskSnapshot | Exception | None = TimeoutError("never returned")
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._wait, args=(store, ref), daemon=True)

    def _wait(self, store: TaskStore, ref: UUID) -> None:
        self._started.set()
        try:
            self.found = store.wait_for_completion(ref, 30)
        except Exception as problem:
            self.found = problem
        finally:
            connections.close_all()

    def __enter__(self) -> "_Waiter":
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(40)
