"""A subscription and its reader: a slow one finds the newest states, memory is bounded, outcomes always arrive."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from mcp_tasks.notifications import subscription as subscription_module
from mcp_tasks.notifications.groups import ListChanged
from mcp_tasks.notifications.hub import Hub
from mcp_tasks.notifications.subscription import Subscription, end_all
from mcp_tasks.protocol.tasks import WireTask
from mcp_tasks.store import MemoryTaskStore
from tests.support.push import LoopThread, soon

from .conftest import never_looks

RESULT: dict[str, Any] = {"content": []}


class Reader:
    """Reads one subscription from the test's thread, when the test wants to."""

    def __init__(self, loop: LoopThread, store: MemoryTaskStore, refs: list[UUID], **options: Any) -> None:
        self._loop = loop
        self.subscription = Subscription(
            options.pop("request_id", "S"),
            store=store,
            tasks={ref: f"T{number}" for number, ref in enumerate(refs)},
            lists=options.pop("lists", ()),
        )

    def start(self) -> "Reader":
        self._loop.call(self.subscription.start)
        return self

    def read(self, timeout: float = 5.0) -> list[Any]:
        frames = self._loop.run(self.subscription.frames(timeout))
        return [json.loads(frame.text(self.subscription.id_text)) for frame in frames]

    def read_until(self, wanted: Callable[[list[Any]], bool]) -> list[Any]:
        """Read until what was read is enough."""
        found: list[Any] = []
        deadline = time.monotonic() + 10
        while not wanted(found):
            assert time.monotonic() < deadline, found
            found += self.read(0.5)
        return found

    def pending(self) -> dict[Any, Any]:
        return self._loop.call(lambda: dict(self.subscription._pending))

    def waits_for(self, *revisions: int) -> bool:
        """Whether these revisions wait for the reader."""
        return soon(lambda: [state.revision for state in self.pending().values() if state] == [*revisions])

    def close(self) -> None:
        self._loop.call(self.subscription.close)


def states(messages: list[Any]) -> list[tuple[str, str]]:
    return [(message["params"]["taskId"], message["params"]["status"]) for message in messages]


@pytest.fixture
def memory() -> MemoryTaskStore:
    return MemoryTaskStore()


def _new(store: MemoryTaskStore) -> UUID:
    return store.create_task("report", {}).ref


pytestmark = pytest.mark.usefixtures("process")


@pytest.fixture(autouse=True)
def _messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    never_looks(monkeypatch)


# -- a reader that is slow ----------------------------------------------------------------------------------------


def test_a_slow_reader_finds_the_newest_state_of_each_task_only(loop: LoopThread, memory: MemoryTaskStore) -> None:
    first, second = _new(memory), _new(memory)
    reader = Reader(loop, memory, [first, second]).start()
    assert reader.waits_for(1, 1)
    ask = {"method": "roots/list"}
    memory.require_input(first, {"k": ask})
    assert reader.waits_for(1, 2), "a newer state takes the place at the end"
    memory.complete_task(first, RESULT)
    memory.complete_task(second, RESULT)
    assert reader.waits_for(3, 2)
    assert states(reader.read()) == [("T0", "completed"), ("T1", "completed")]
    assert reader.read(0.1) == []
    reader.close()


def test_what_was_read_is_not_read_again(loop: LoopThread, memory: MemoryTaskStore, process: Hub) -> None:
    ref = _new(memory)
    reader = Reader(loop, memory, [ref]).start()
    assert states(reader.read()) == [("T0", "working")]
    process.ask(ref, reader.subscription)
    assert reader.read(0.2) == []
    reader.close()


def test_a_reader_is_woken_by_the_next_state(loop: LoopThread, memory: MemoryTaskStore) -> None:
    ref = _new(memory)
    reader = Reader(loop, memory, [ref]).start()
    reader.read()
    waiting = asyncio.run_coroutine_threadsafe(reader.subscription.frames(10), loop.loop)
    time.sleep(0.05)
    begun = time.monotonic()
    memory.complete_task(ref, RESULT)
    assert len(waiting.result(5)) == 1
    assert time.monotonic() - begun < 1
    reader.close()


def test_nothing_comes_after_so_many_seconds_without_anything(loop: LoopThread, memory: MemoryTaskStore) -> None:
    reader = Reader(loop, memory, []).start()
    begun = time.monotonic()
    assert reader.read(0.1) == []
    assert 0.09 <= time.monotonic() - begun < 2
    reader.close()


def test_a_reader_that_stops_waiting_leaves_nothing_behind(loop: LoopThread, memory: MemoryTaskStore) -> None:
    ref = _new(memory)
    reader = Reader(loop, memory, [ref]).start()
    reader.read()

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.subscription.frames(10), 0.05)

    loop.run(impatient())
    memory.complete_task(ref, RESULT)
    assert states(reader.read()) == [("T0", "completed")], "what comes later is not lost"
    reader.close()


# -- memory -------------------------------------------------------------------------------------------------------


def _large(store: MemoryTaskStore, size: int) -> UUID:
    ref = _new(store)
    store.set_status(ref, None)
    store.set_task_meta(ref, {"com.example/size": "x" * size})
    return ref


def test_what_waits_for_one_reader_is_bounded_and_the_rest_comes_later(
    loop: LoopThread, memory: MemoryTaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "PENDING_BYTES", 11_000)
    refs = [_large(memory, 3_000) for _ in range(12)]
    reader = Reader(loop, memory, refs).start()
    assert soon(lambda: len(reader.pending()) == 3 and len(reader.subscription._later) == 9)
    assert reader.subscription._pending_bytes <= 11_000
    shown = reader.read_until(lambda found: len(found) == 12)
    assert sorted(states(shown)) == sorted((f"T{number}", "working") for number in range(12))
    assert reader.read(0.2) == []
    reader.close()


def test_a_state_that_is_larger_than_the_bound_arrives_alone(
    loop: LoopThread, memory: MemoryTaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "PENDING_BYTES", 1_000)
    refs = [_large(memory, 5_000) for _ in range(3)]
    reader = Reader(loop, memory, refs).start()
    shown = reader.read_until(lambda found: len(found) == 3)
    assert {task_id for task_id, _ in states(shown)} == {"T0", "T1", "T2"}
    reader.close()


def test_outcomes_that_found_no_room_always_arrive_and_once(
    loop: LoopThread, memory: MemoryTaskStore, monkeypatch: pytest.MonkeyPatch, process: Hub
) -> None:
    monkeypatch.setattr(subscription_module, "PENDING_BYTES", 5_000)
    refs = [_large(memory, 2_000) for _ in range(10)]
    reader = Reader(loop, memory, refs).start()
    for ref in refs:
        memory.set_status(ref, "Reading")
    for ref in refs:
        memory.complete_task(ref, RESULT)
    found = reader.read_until(lambda found: [s for _, s in states(found)].count("completed") == 10)
    ended = [task_id for task_id, status in states(found) if status == "completed"]
    assert sorted(ended) == sorted(f"T{number}" for number in range(10))
    assert reader.read(0.2) == []
    assert process.count() == 0
    reader.close()


def test_a_deferred_state_is_the_newest_when_it_comes(
    loop: LoopThread, memory: MemoryTaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "PENDING_BYTES", 3_000)
    first, second = _large(memory, 2_500), _large(memory, 2_500)
    reader = Reader(loop, memory, [first, second]).start()
    assert soon(lambda: len(reader.subscription._later) == 1)
    (deferred,) = reader.subscription._later
    memory.cancel_task(deferred)
    shown = reader.read_until(lambda found: len(found) >= 2)
    assert states(shown)[-1][1] == "cancelled"
    assert len(shown) == 2
    reader.close()


def test_a_deferred_task_that_is_gone_meanwhile_is_dropped(
    loop: LoopThread, memory: MemoryTaskStore, monkeypatch: pytest.MonkeyPatch, process: Hub
) -> None:
    monkeypatch.setattr(subscription_module, "PENDING_BYTES", 3_000)
    refs = [_large(memory, 2_500) for _ in range(3)]
    reader = Reader(loop, memory, refs).start()
    assert soon(lambda: len(reader.subscription._later) == 2)
    for ref in [*reader.subscription._later]:
        memory.discard_task(ref)
    assert len(reader.read_until(lambda found: len(found) == 1)) == 1
    reader.read(0.2)
    reader.read(0.2)
    assert soon(lambda: process.count() == 1)
    reader.close()


def test_a_deferred_task_that_is_gone_when_it_is_asked_for_holds_up_no_other(
    loop: LoopThread, memory: MemoryTaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "PENDING_BYTES", 3_000)
    refs = [_large(memory, 2_500) for _ in range(4)]
    reader = Reader(loop, memory, refs).start()
    assert soon(lambda: len(reader.subscription._later) == 3)
    for gone in [*reader.subscription._later][:2]:
        memory.discard_task(gone)
    assert len(reader.read(5)) == 1
    assert len(reader.read(5)) == 1, "the next is asked for at once, not after a silence"
    reader.close()


def test_the_account_of_what_waits_is_right_after_any_order_of_changes(
    loop: LoopThread, memory: MemoryTaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "PENDING_BYTES", 20_000)
    refs = [_large(memory, 1_000) for _ in range(5)]
    reader = Reader(loop, memory, refs).start()
    assert soon(lambda: len(reader.pending()) == 5)
    memory.set_task_meta(refs[0], {"k": "y" * 9_000})
    memory.complete_task(refs[1], RESULT)
    memory.discard_task(refs[2])
    subscription = reader.subscription
    loop.call(lambda: subscription.changed(refs[2], None))
    assert soon(lambda: refs[1] in reader.pending() and reader.pending()[refs[1]].is_terminal)

    def measured() -> tuple[int, int, int]:
        waiting = [state for state in subscription._pending.values() if state is not None]
        exact = sum(state.frame("T" * 43).size for state in waiting)
        return subscription._pending_bytes, sum(state.size for state in waiting), exact

    kept, counted, exact = loop.call(measured)
    assert kept == counted
    assert exact * 0.9 <= counted <= exact * 1.1, "about what is sent"
    reader.close()


def test_a_state_that_finds_no_room_is_not_made_a_message(
    loop: LoopThread, memory: MemoryTaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand large ones would stop the event loop, each to be thrown away."""
    made: list[int] = []
    real = WireTask.notification
    monkeypatch.setattr(
        WireTask, "notification", lambda wire, task_id: (made.append(len(wire.meta or "")), real(wire, task_id))[1]
    )
    monkeypatch.setattr(subscription_module, "PENDING_BYTES", 11_000)
    reader = Reader(loop, memory, [_large(memory, 3_000) for _ in range(12)]).start()
    assert soon(lambda: len(reader.subscription._later) == 9)
    assert made == []
    assert len(reader.read()) == 3
    assert len(made) == 3
    reader.close()


# -- ends ---------------------------------------------------------------------------------------------------------


def test_what_waits_is_still_sent_when_the_server_ends_it(loop: LoopThread, memory: MemoryTaskStore) -> None:
    ref = _new(memory)
    reader = Reader(loop, memory, [ref]).start()
    assert reader.waits_for(1)
    end_all()
    assert soon(lambda: reader.subscription.is_ended)
    assert states(reader.read(5)) == [("T0", "working")]
    assert reader.read(5) == []
    reader.close()


def test_an_end_wakes_a_reader_that_waits(loop: LoopThread, memory: MemoryTaskStore) -> None:
    reader = Reader(loop, memory, []).start()
    waiting = asyncio.run_coroutine_threadsafe(reader.subscription.frames(30), loop.loop)
    time.sleep(0.05)
    end_all()
    assert waiting.result(5) == []
    reader.close()


def test_all_that_is_open_on_every_loop_is_ended_and_a_loop_that_is_gone_does_no_harm(
    loop: LoopThread, memory: MemoryTaskStore
) -> None:
    gone, other = LoopThread(), LoopThread()
    lost = Reader(gone, memory, []).start()
    gone.end()
    readers = [Reader(loop, memory, []).start(), Reader(other, memory, []).start()]
    end_all()
    assert soon(lambda: all(reader.subscription.is_ended for reader in readers))
    for reader in readers:
        reader.close()
    other.end()
    assert not lost.subscription.is_ended


def test_a_closed_subscription_hears_nothing_and_may_be_closed_again(
    loop: LoopThread, memory: MemoryTaskStore, process: Hub
) -> None:
    ref = _new(memory)
    never = Reader(loop, memory, [ref])
    never.close()
    reader = Reader(loop, memory, [ref], lists=("tools",)).start()
    reader.read()
    reader.close()
    reader.close()
    memory.complete_task(ref, RESULT)
    process.publish(ListChanged("tools"))
    time.sleep(0.1)
    assert reader.pending() == {}
    assert (process.count(), process._lists) == (0, {})
    assert not subscription_module._open


def test_a_changed_list_is_told_once_however_often_it_changed(
    loop: LoopThread, memory: MemoryTaskStore, process: Hub
) -> None:
    reader = Reader(loop, memory, [], lists=("tools",)).start()
    for kind in ("tools", "prompts", "tools", "resources", "tools"):
        process.publish(ListChanged(kind))  # type: ignore[arg-type]
    assert soon(lambda: "tools" in reader.pending())
    time.sleep(0.05)
    assert [message["method"] for message in reader.read()] == ["notifications/tools/list_changed"]
    reader.close()
