"""Waiting for the end of a task: woken at once, from anywhere, without a thread or a connection that sleeps."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections

from mcp_tasks import tasks
from mcp_tasks.notifications.hub import Hub
from mcp_tasks.protocol.errors import internal_error
from mcp_tasks.store import (
    DatabaseTaskStore,
    ForwardingTaskStore,
    MemoryTaskStore,
    TaskSnapshot,
    TaskStore,
    get_store,
    waiting,
)
from mcp_tasks.testing import rewind
from tests.support.push import soon

from .conftest import never_looks

RESULT: dict[str, Any] = {"content": []}
OnAThread = Callable[[Callable[[], Any]], threading.Thread]

ENDS: dict[str, Callable[[TaskStore, UUID], Any]] = {
    "completed": lambda store, ref: store.complete_task(ref, RESULT),
    "failed": lambda store, ref: store.fail_task(ref, internal_error()),
    "cancelled": lambda store, ref: store.cancel_task(ref),
}


@pytest.fixture(params=["database", "memory", "forwarding"])
def store(request: pytest.FixtureRequest, transactional_db: None) -> TaskStore:
    """Each store; the database is one that every thread sees."""
    if request.param == "memory":
        return MemoryTaskStore()
    return DatabaseTaskStore() if request.param == "database" else ForwardingTaskStore(DatabaseTaskStore())


@pytest.fixture(params=["wait", "await"])
def wait(request: pytest.FixtureRequest) -> Callable[..., TaskSnapshot | None]:
    """Both ways to wait."""
    if request.param == "wait":
        return lambda store, ref, timeout=None: store.wait_for_completion(ref, timeout)
    return lambda store, ref, timeout=None: asyncio.run(store.await_for_completion(ref, timeout))


@pytest.fixture(autouse=True)
def _told_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds by looking what these tests want told."""
    never_looks(monkeypatch)


def _new(store: TaskStore, **options: Any) -> UUID:
    return store.create_task("report", {}, **options).ref


@pytest.mark.parametrize("how", ENDS)
def test_an_outcome_from_another_thread_wakes_who_waits_at_once(
    store: TaskStore, wait: Callable[..., Any], on_a_thread: OnAThread, process: Hub, how: str
) -> None:
    ref = _new(store)

    def end() -> None:
        assert soon(lambda: process.count() == 1)
        time.sleep(0.1)
        ENDS[how](store, ref)

    on_a_thread(end)
    begun = time.monotonic()
    found = wait(store, ref, 20)
    assert found is not None
    assert found.task.status == how
    assert found == store.get_task_result(ref)
    assert time.monotonic() - begun < 5
    assert process.count() == 0, "nobody listens any more"


def test_a_change_that_is_no_outcome_ends_no_wait(
    store: TaskStore, wait: Callable[..., Any], on_a_thread: OnAThread, process: Hub
) -> None:
    ref = _new(store)

    def work() -> None:
        assert soon(lambda: process.count() == 1)
        store.set_status(ref, "Reading")
        store.require_input(ref, {"k": {"method": "roots/list"}})
        time.sleep(0.1)
        store.complete_task(ref, RESULT)

    on_a_thread(work)
    assert wait(store, ref, 20).task.status == "completed"


def test_expiry_ends_the_wait_with_none(wait: Callable[..., Any], process: Hub) -> None:
    store = MemoryTaskStore()
    begun = time.monotonic()
    assert wait(store, _new(store, ttl_ms=300), 20) is None
    assert 0.2 < time.monotonic() - begun < 5
    assert process.count() == 0


def test_expiry_in_the_database_ends_the_wait_with_none(
    transactional_db: None, wait: Callable[..., Any], process: Hub
) -> None:
    store = DatabaseTaskStore()
    assert wait(store, _new(store, ttl_ms=300), 20) is None


def test_a_task_that_is_removed_ends_the_wait_with_none(
    transactional_db: None, wait: Callable[..., Any], on_a_thread: OnAThread, process: Hub, monkeypatch: Any
) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.2)
    store = DatabaseTaskStore()
    ref = _new(store, ttl_ms=100_000)

    def remove() -> None:
        assert soon(lambda: process.count() == 1)
        rewind(ref, 101)
        store.expire()

    on_a_thread(remove)
    assert wait(store, ref, 20) is None


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_time_that_is_over_is_an_error(
    store: TaskStore, wait: Callable[..., Any], process: Hub, timeout: float
) -> None:
    ref = _new(store)
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        wait(store, ref, timeout)
    assert timeout <= time.monotonic() - begun < 3
    assert process.count() == 0


def test_who_waits_for_nothing_waits_for_no_time(store: TaskStore, wait: Callable[..., Any], process: Hub) -> None:
    assert wait(store, uuid4()) is None
    ref = _new(store)
    store.complete_task(ref, RESULT)
    assert wait(store, ref).task.status == "completed"
    assert wait(store, ref, 0).task.status == "completed"
    assert process._reader.thread is None, "no listener was made"


def test_what_nobody_told_is_found_by_a_look(
    store: TaskStore, wait: Callable[..., Any], on_a_thread: OnAThread, process: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr("mcp_tasks.store.effects.publish_hooks", [])
    ref = _new(store)

    def end() -> None:
        assert soon(lambda: process.count() == 1)
        time.sleep(0.1)
        store.complete_task(ref, RESULT)

    on_a_thread(end)
    assert wait(store, ref, 20).task.status == "completed"


def test_without_anybody_who_tells_a_wait_still_ends(
    store: TaskStore, wait: Callable[..., Any], on_a_thread: OnAThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "tellers", [])
    ref = _new(store)
    on_a_thread(lambda: (time.sleep(0.2), store.complete_task(ref, RESULT)))
    assert wait(store, ref, 20).task.status == "completed"


# -- what a wait holds --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("transactional_db")
def test_a_thread_that_waits_holds_no_connection(process: Hub) -> None:
    store = DatabaseTaskStore()
    ref = _new(store)
    mine: list[Any] = []
    ended = threading.Event()

    def work() -> None:
        mine.append(connections[connection.alias])
        try:
            store.wait_for_completion(ref, 20)
        finally:
            connections.close_all()
            ended.set()

    threading.Thread(target=work, daemon=True).start()
    assert soon(lambda: mine and process.count() == 1)
    assert soon(lambda: mine[0].connection is None)
    time.sleep(0.1)
    assert mine[0].connection is None
    store.complete_task(ref, RESULT)
    assert ended.wait(5)


def test_coroutines_that_wait_hold_no_threads(process: Hub) -> None:
    store = MemoryTaskStore()
    refs = [_new(store) for _ in range(200)]

    async def story() -> int:
        waits = [asyncio.ensure_future(store.await_for_completion(ref, 20)) for ref in refs]
        while process.count() < 200:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        threads = threading.active_count()
        for ref in refs:
            store.complete_task(ref, RESULT)
        found = await asyncio.gather(*waits)
        assert {snapshot.task.status for snapshot in found if snapshot} == {"completed"}
        return threads

    before = threading.active_count()
    assert asyncio.run(story()) < before + 10
    assert process.count() == 0


def test_a_coroutine_that_is_cancelled_leaves_no_listener(process: Hub) -> None:
    store = MemoryTaskStore()
    ref = _new(store)

    async def story() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.await_for_completion(ref), 0.1)

    asyncio.run(story())
    assert process.count() == 0


@pytest.mark.django_db
def test_within_a_test_transaction_a_live_task_is_waited_for_and_is_not_gone(process: Hub) -> None:
    """The teller looks from outside of the transaction, where the task is not; the caller knows better."""
    store = DatabaseTaskStore()
    ref = store.create_task("report", {}, durable=False).ref
    with pytest.raises(TimeoutError):
        store.wait_for_completion(ref, 0.5)
    with pytest.raises(TimeoutError):
        async_to_sync(store.await_for_completion)(ref, 0.5)
    assert store.cancel_task(ref) is not None
    found = store.wait_for_completion(ref, 0.5)
    assert found is not None
    assert found.task.status == "cancelled"


# -- stores that wait in their own way ----------------------------------------------------------------------------


class Waits(MemoryTaskStore):
    """Waits in its own way, and remembers where."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def wait_for_completion(self, ref: UUID, timeout: float | None = None) -> TaskSnapshot | None:
        self.threads.append(threading.get_ident())
        return super().wait_for_completion(ref, timeout)


@pytest.mark.parametrize(
    "wrap", [lambda inner: inner, ForwardingTaskStore, lambda s: ForwardingTaskStore(ForwardingTaskStore(s))]
)
def test_a_store_that_waits_in_its_own_way_is_asked_also_by_coroutines(process: Hub, wrap: Callable[..., Any]) -> None:
    inner = Waits()
    store = wrap(inner)
    ref = _new(store)
    store.complete_task(ref, RESULT)
    assert store.wait_for_completion(ref).task.status == "completed"
    found = asyncio.run(store.await_for_completion(ref))
    assert found.task.status == "completed"
    assert len(inner.threads) == 2
    assert inner.threads[1] != threading.get_ident(), "not on the event loop, which would stand still"


def test_a_forwarding_store_that_overrides_the_wait_is_asked_too(process: Hub) -> None:
    class Impatient(ForwardingTaskStore):
        def wait_for_completion(self, ref: UUID, timeout: float | None = None) -> TaskSnapshot | None:
            raise TimeoutError("no patience")

    store = Impatient(MemoryTaskStore())
    for ask in (store.wait_for_completion, lambda ref: asyncio.run(store.await_for_completion(ref))):
        with pytest.raises(TimeoutError, match="no patience"):
            ask(_new(store))


def test_a_forwarding_store_tells_what_it_shows_itself(process: Hub, on_a_thread: OnAThread) -> None:
    """What is told is read through the store that was asked, not through the one inside of it."""

    class Marking(ForwardingTaskStore):
        def snapshots(self, refs: Any) -> Any:
            return {ref: self._marked(found) for ref, found in super().snapshots(refs).items()}

        def get_task_result(self, ref: UUID) -> TaskSnapshot | None:
            found = super().get_task_result(ref)
            return None if found is None else self._marked(found)

        def wait_for_completion(self, ref: UUID, timeout: float | None = None) -> TaskSnapshot | None:
            return TaskStore.wait_for_completion(self, ref, timeout)

        @staticmethod
        def _marked(found: TaskSnapshot) -> TaskSnapshot:
            return replace(found, meta_json='{"marked":true}')

    store = Marking(MemoryTaskStore())
    ref = _new(store)

    def end() -> None:
        assert soon(lambda: process.count() == 1)
        store.complete_task(ref, RESULT)

    on_a_thread(end)
    found = store.wait_for_completion(ref, 20)
    assert found is not None
    assert found.meta_json == '{"marked":true}'


# -- the worker API -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("transactional_db")
def test_the_worker_api_waits_too(process: Hub, on_a_thread: OnAThread) -> None:
    first, second = _new(get_store()), _new(get_store())

    def end() -> None:
        for ref in (first, second):
            assert soon(lambda: process.count() == 1)
            time.sleep(0.05)
            get_store().cancel_task(ref)

    on_a_thread(end)
    found = tasks.wait(first, 20)
    assert found is not None
    assert found.task.status == "cancelled"
    found = asyncio.run(tasks.await_completion(second, 20))
    assert found is not None
    assert found.task.status == "cancelled"
    with pytest.raises(TimeoutError):
        tasks.wait(_new(get_store()), 0)
