"""The hub: one look for all who listen, nothing lost, nothing twice, and nothing at all where nobody listens."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections

from mcp_tasks.notifications import hub as hub_module
from mcp_tasks.notifications import reading
from mcp_tasks.notifications.groups import ListChanged, TaskChanged
from mcp_tasks.notifications.hub import Hub
from mcp_tasks.notifications.listeners import State
from mcp_tasks.store import DatabaseTaskStore, MemoryTaskStore
from tests.support.push import LoopThread, soon

from .conftest import Counting, Remembers, threads_named

RESULT: dict[str, Any] = {"content": []}


def changed(hub: Hub, store: Any, ref: UUID) -> None:
    """A change of this process was committed."""
    task = store.inner.get_task(ref) if isinstance(store, Counting) else store.get_task(ref)
    hub.publish(TaskChanged(ref, task.revision))


# -- one look for all ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unlooked")
def test_a_change_is_read_once_and_encoded_once_for_all_who_listen(hub: Hub, store: Counting, loop: LoopThread) -> None:
    ref = store.new()
    listeners = [Remembers() for _ in range(50)]
    for listener in listeners:
        hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: all(listener.told for listener in listeners))
    store.reads.clear()
    store.complete_task(ref, RESULT)
    changed(hub, store, ref)
    assert soon(lambda: all(listener.statuses[-1] == "completed" for listener in listeners))
    assert store.reads == [{ref}]
    frames = {id(listener.told[-1][1].frame("T")) for listener in listeners if listener.told[-1][1]}
    assert len(frames) == 1


@pytest.mark.usefixtures("unlooked")
def test_many_changed_tasks_are_read_together(hub: Hub, store: Counting, loop: LoopThread) -> None:
    refs, listener = [store.new() for _ in range(40)], Remembers()
    for ref in refs:
        hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: len(listener.told) >= 40)
    store.reads.clear()
    store.gate.clear()
    for ref in refs:
        store.complete_task(ref, RESULT)
        changed(hub, store, ref)
    store.gate.set()
    assert soon(lambda: listener.statuses.count("completed") == 40)
    assert len(store.reads) <= 3
    assert {ref for ref, state in listener.told if state and state.is_terminal} == set(refs)


def test_more_tasks_than_one_read_takes_are_all_told(hub: Hub, store: Counting, loop: LoopThread) -> None:
    refs, listener = [store.new() for _ in range(reading.READ_BATCH * 2 + 5)], Remembers()
    for ref in refs:
        hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: {ref for ref, _ in listener.told} == set(refs))
    assert max(map(len, store.reads)) <= reading.READ_BATCH


@pytest.mark.usefixtures("unlooked")
def test_a_message_that_says_nothing_new_costs_no_read(hub: Hub, store: Counting, loop: LoopThread) -> None:
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    store.set_status(ref, "Reading")
    changed(hub, store, ref)
    assert soon(lambda: listener.revisions[-1:] == [2])
    store.reads.clear()
    for revision in (1, 2, 2, 0, -1):
        hub.heard(TaskChanged(ref, revision))
    hub.heard(TaskChanged(uuid4(), 99))
    time.sleep(0.2)
    assert store.reads == []
    assert listener.revisions == [1, 2] or listener.revisions == [2]


@pytest.mark.usefixtures("unlooked")
def test_a_message_that_is_early_moves_nothing(hub: Hub, store: Counting, loop: LoopThread) -> None:
    """What counts is the revision of the row, never that of the message."""
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.revisions == [1])
    hub.heard(TaskChanged(ref, 9))
    time.sleep(0.1)
    assert listener.revisions == [1]
    store.set_status(ref, "Reading")
    hub.heard(TaskChanged(ref, 10))
    assert soon(lambda: listener.revisions == [1, 2])


@pytest.mark.usefixtures("unlooked")
def test_a_message_that_was_early_counts_when_it_comes_again(hub: Hub, store: Counting, loop: LoopThread) -> None:
    """Its first coming must not make the second one old news."""
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.revisions == [1])
    reads = len(store.reads)
    hub.heard(TaskChanged(ref, 2))
    assert soon(lambda: len(store.reads) > reads)
    time.sleep(0.05)
    store.set_status(ref, "Reading")
    hub.heard(TaskChanged(ref, 2))
    assert soon(lambda: listener.revisions == [1, 2], 2)


# -- progress and order -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unlooked")
def test_progress_is_coalesced_and_its_newest_state_is_told(hub: Hub, store: Counting, loop: LoopThread) -> None:
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    begun = time.monotonic()
    number = 0
    while time.monotonic() < begun + 0.7:
        number += 1
        store.set_status(ref, f"at {number}")
        changed(hub, store, ref)
        time.sleep(0.002)
    newest = 1 + number
    assert soon(lambda: listener.revisions[-1] == newest)
    lasted = time.monotonic() - begun
    assert len(listener.told) <= 3 + lasted / hub_module.PROGRESS_SECONDS


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize("how", ["complete", "cancel", "ask"])
def test_a_change_of_status_never_waits_behind_progress(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(hub_module, "PROGRESS_SECONDS", 3600.0)
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    store.set_status(ref, "Reading")
    changed(hub, store, ref)
    ask = {"method": "roots/list"}
    {
        "complete": lambda: store.complete_task(ref, RESULT),
        "cancel": lambda: store.cancel_task(ref),
        "ask": lambda: store.require_input(ref, {"k": ask}),
    }[how]()
    changed(hub, store, ref)
    assert soon(lambda: listener.statuses[-1] != "working", 2)


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_states_never_go_back_and_the_last_is_the_outcome(
    hub: Hub, store: Counting, loop: LoopThread, where: str
) -> None:
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop if where == "loop" else None)

    def write(number: int) -> None:
        for step in range(20):
            store.set_status(ref, f"{number} {step}")
            changed(hub, store, ref)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    store.complete_task(ref, RESULT)
    changed(hub, store, ref)
    assert soon(lambda: listener.statuses[-1] == "completed")
    revisions = [revision for revision in listener.revisions if revision is not None]
    assert revisions == sorted(revisions)
    assert len(listener.threads) == 1
    assert threading.get_ident() not in listener.threads


# -- coming and going ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unlooked")
def test_a_newcomer_is_shown_the_state_though_nothing_changed_and_the_others_are_not(
    hub: Hub, store: Counting, loop: LoopThread
) -> None:
    ref, first, second, third = store.new(), Remembers(), Remembers(), Remembers()
    hub.watch(store, ref, first, loop.loop)
    assert soon(lambda: first.revisions == [1])
    hub.watch(store, ref, second, loop.loop)
    hub.watch(store, ref, third)
    assert soon(lambda: second.revisions == [1] and third.revisions == [1])
    time.sleep(0.1)
    assert first.revisions == [1]


@pytest.mark.usefixtures("unlooked")
def test_a_newcomer_need_not_wait_for_coalesced_progress(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "PROGRESS_SECONDS", 3600.0)
    ref, first, second = store.new(), Remembers(), Remembers()
    hub.watch(store, ref, first, loop.loop)
    assert soon(lambda: first.told)
    store.set_status(ref, "Reading")
    changed(hub, store, ref)
    hub.watch(store, ref, second, loop.loop)
    assert soon(lambda: second.revisions == [2], 2)


@pytest.mark.usefixtures("unlooked")
def test_who_asks_is_shown_the_state_again(hub: Hub, store: Counting, loop: LoopThread) -> None:
    ref, first, second = store.new(), Remembers(), Remembers()
    for listener in (first, second):
        hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: first.told and second.told)
    time.sleep(0.1)  # who joins while the first is told may be told twice
    before = len(first.told), len(second.told)
    hub.ask(ref, first)
    hub.ask(uuid4(), first)
    assert soon(lambda: len(first.told) == before[0] + 1)
    assert set(first.revisions) == {1}
    time.sleep(0.05)
    assert len(second.told) == before[1]


def test_a_task_that_is_gone_is_told_as_none_until_nobody_watches_it(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_tasks.notifications.reconcile.POLL_SECONDS", 0.05)
    ref, listener, other = store.new(), Remembers(), Remembers()
    for one in (listener, other):
        hub.watch(store, ref, one, loop.loop)
    assert soon(lambda: listener.revisions == [1] and other.revisions == [1])
    store.discard_task(ref)
    assert soon(lambda: None in listener.revisions and None in other.revisions)
    looks = len(store.looks)
    assert soon(lambda: len(store.looks) >= looks + 4)
    assert listener.revisions.count(None) <= len(store.looks) + 1, "once for each look"
    hub.unwatch(ref, listener, loop.loop)
    count = len(listener.told)
    hub.unwatch(ref, other, loop.loop)
    assert hub.count() == 0
    store.reads.clear()
    store.looks.clear()
    time.sleep(0.25)
    assert len(listener.told) <= count + 1, "at most what was on its way"
    assert (store.reads, store.looks) == ([], [])


def test_a_task_that_never_was_is_gone(hub: Hub, store: Counting, loop: LoopThread) -> None:
    listener = Remembers()
    hub.watch(store, uuid4(), listener, loop.loop)
    assert soon(lambda: listener.revisions[:1] == [None])


@pytest.mark.usefixtures("unlooked")
def test_who_stopped_watching_is_told_nothing_more(hub: Hub, store: Counting, loop: LoopThread) -> None:
    ref, staying, leaving = store.new(), Remembers(), Remembers()
    for listener in (staying, leaving):
        hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: staying.told and leaving.told)
    hub.unwatch(ref, leaving, loop.loop)
    hub.unwatch(ref, leaving, loop.loop)
    hub.unwatch(uuid4(), leaving, loop.loop)
    hub.unwatch(ref, leaving)
    store.complete_task(ref, RESULT)
    changed(hub, store, ref)
    assert soon(lambda: staying.statuses[-1] == "completed")
    assert len(leaving.told) == 1


@pytest.mark.usefixtures("unlooked")
def test_a_listener_that_stops_while_it_is_told_disturbs_nobody(hub: Hub, store: Counting) -> None:
    ref, others = store.new(), [Remembers() for _ in range(3)]

    class Once(Remembers):
        def changed(self, ref: UUID, state: State | None) -> None:
            super().changed(ref, state)
            hub.unwatch(ref, self)

    once = Once()
    for listener in (others[0], once, *others[1:]):
        hub.watch(store, ref, listener)
    store.complete_task(ref, RESULT)
    changed(hub, store, ref)
    assert soon(lambda: all(other.statuses[-1:] == ["completed"] for other in others))
    assert len(once.told) == 1


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize("where", ["loop", "thread"])
def test_a_listener_that_raises_disturbs_nobody(
    hub: Hub, store: Counting, loop: LoopThread, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    class Broken(Remembers):
        def changed(self, ref: UUID, state: State | None) -> None:
            raise ZeroDivisionError

        def list_changed(self, kind: str) -> None:
            raise ZeroDivisionError

    ref, good, bad = store.new(), [Remembers() for _ in range(4)], [Broken() for _ in range(4)]
    for pair in zip(bad, good, strict=True):
        for listener in pair:
            hub.watch(store, ref, listener, loop.loop if where == "loop" else None)
            hub.watch_lists(listener, loop.loop)
    store.complete_task(ref, RESULT)
    changed(hub, store, ref)
    hub.publish(ListChanged("tools"))
    assert soon(lambda: all(listener.statuses[-1:] == ["completed"] for listener in good))
    assert soon(lambda: all(listener.lists == ["tools"] for listener in good))
    assert {record.event for record in caplog.records} == {"listener_failed"}  # type: ignore[attr-defined]


# -- loops --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unlooked")
def test_a_loop_that_ended_is_forgotten_with_all_who_listened_on_it(
    hub: Hub, store: Counting, loop: LoopThread
) -> None:
    ref, only_there, lost, kept = store.new(), store.new(), Remembers(), Remembers()
    ended = LoopThread()
    hub.watch(store, ref, lost, ended.loop)
    hub.watch(store, only_there, lost, ended.loop)
    hub.watch(store, ref, kept, loop.loop)
    assert soon(lambda: kept.told and len(lost.told) == 2)
    ended.end()
    for _ in range(2):
        store.set_status(ref, f"{_}")
        store.set_status(only_there, f"{_}")
        for one in (ref, only_there):
            changed(hub, store, one)
        time.sleep(0.25)
    assert soon(lambda: kept.revisions[-1] == 3)
    assert len(lost.told) == 2
    assert hub.count() == 1


@pytest.mark.usefixtures("unlooked")
def test_a_loop_that_ended_with_news_on_their_way_is_forgotten_too(hub: Hub, store: Counting) -> None:
    ref, ended = store.new(), asyncio.new_event_loop()
    hub.watch(store, ref, Remembers(), ended)
    assert soon(lambda: store.reads)
    time.sleep(0.1)
    ended.close()
    for number in range(2):
        store.set_status(ref, f"at {number}")
        changed(hub, store, ref)
        time.sleep(0.25)
    assert soon(lambda: hub.count() == 0, 1)


@pytest.mark.parametrize("others", [0, 1, 3])
def test_a_loop_that_ended_hears_of_no_list_and_the_others_do(hub: Hub, loop: LoopThread, others: int) -> None:
    ended = asyncio.new_event_loop()
    hub.watch_lists(Remembers(), ended)
    ended.close()
    listeners = [Remembers() for _ in range(others)]
    loops = [LoopThread() for _ in listeners]
    try:
        for listener, thread in zip(listeners, loops, strict=True):
            hub.watch_lists(listener, thread.loop)
        hub.publish(ListChanged("tools"))
        assert soon(lambda: all(listener.lists == ["tools"] for listener in listeners), 2)
        hub.publish(ListChanged("prompts"))
        assert soon(lambda: all(listener.lists == ["tools", "prompts"] for listener in listeners), 2)
    finally:
        for thread in loops:
            thread.end()


@pytest.mark.usefixtures("unlooked")
def test_a_loop_that_is_busy_finds_the_newest_state_of_each_task_and_one_wake_up(
    hub: Hub, store: Counting, loop: LoopThread
) -> None:
    ref, other, listener = store.new(), store.new(), Remembers()
    for one in (ref, other):
        hub.watch(store, one, listener, loop.loop)
    assert soon(lambda: len(listener.told) == 2)
    listener.told.clear()
    busy, go = threading.Event(), threading.Event()

    def block() -> None:
        busy.set()
        go.wait(10)

    loop.loop.call_soon_threadsafe(block)
    assert busy.wait(5)
    ask = {"method": "roots/list"}
    store.require_input(ref, {"k": ask})
    changed(hub, store, ref)
    assert soon(lambda: len(store.reads) >= 2)
    time.sleep(0.05)
    store.complete_task(ref, RESULT)
    changed(hub, store, ref)
    store.complete_task(other, RESULT)
    changed(hub, store, other)
    time.sleep(0.2)
    go.set()
    assert soon(lambda: len(listener.told) == 2)
    time.sleep(0.05)
    assert listener.statuses == ["completed", "completed"]


# -- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unlooked")
def test_a_read_that_fails_is_repeated_and_nothing_is_lost(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reading, "_FAULT_SECONDS", 0.05)
    ref, other, listener = store.new(), store.new(), Remembers()
    store.failures = 2
    for one in (ref, other):
        hub.watch(store, one, listener, loop.loop)
    assert soon(lambda: {told for told, _ in listener.told} == {ref, other})
    store.failures = 3
    for one in (ref, other):
        store.complete_task(one, RESULT)
        changed(hub, store, one)
    assert soon(lambda: listener.statuses.count("completed") == 2)
    assert "hub_failed" in {record.event for record in caplog.records}  # type: ignore[attr-defined]


class Poisoned(Counting):
    """Tasks that cannot be read, and keep those from being read that are asked for with them."""

    def __init__(self, fault: type[Exception] = ValueError) -> None:
        super().__init__()
        self.fault, self.poisoned = fault, set[UUID]()

    def snapshots(self, refs: Any) -> Any:
        if self.poisoned & set(refs):
            raise self.fault("this row cannot be read")
        return super().snapshots(refs)

    def revisions(self, refs: Any) -> Any:
        if self.poisoned & set(refs):
            raise self.fault("this row cannot be read")
        return super().revisions(refs)


@pytest.mark.usefixtures("unlooked")
def test_a_task_that_cannot_be_read_holds_up_no_other(
    hub: Hub, loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    store, listener = Poisoned(), Remembers()
    refs = [store.new() for _ in range(20)]
    store.poisoned = {refs[3], refs[11]}
    for ref in refs:
        hub.watch(store, ref, listener, loop.loop)
    wanted = set(refs) - store.poisoned
    assert soon(lambda: {ref for ref, _ in listener.told} == wanted, 2)
    assert len(caplog.records) <= 4, "a fault is told once for each"
    for ref in refs:
        store.complete_task(ref, RESULT)
        changed(hub, store, ref)
    assert soon(lambda: listener.statuses.count("completed") == len(wanted), 2)


@pytest.mark.parametrize("fault", [ValueError, ConnectionError])
def test_a_task_that_can_be_read_again_is_told(
    hub: Hub, loop: LoopThread, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    monkeypatch.setattr("mcp_tasks.notifications.reconcile.POLL_SECONDS", 0.05)
    monkeypatch.setattr(reading, "_FAULT_SECONDS", 0.05)
    store, listener = Poisoned(fault), Remembers()
    ref = store.new()
    store.poisoned = {ref}
    hub.watch(store, ref, listener, loop.loop)
    time.sleep(0.2)
    assert listener.told == []
    store.poisoned = set()
    assert soon(lambda: listener.told, 2)


@pytest.mark.parametrize("fault", [ValueError, ConnectionError])
def test_a_store_that_fails_holds_up_no_other_store(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    monkeypatch.setattr("mcp_tasks.notifications.reconcile.POLL_SECONDS", 0.05)
    failing, listener = Poisoned(fault), Remembers()
    theirs, ours = failing.new(), store.new()
    failing.poisoned = {theirs}
    hub.watch(failing, theirs, listener, loop.loop)
    hub.watch(store, ours, listener, loop.loop)
    assert soon(lambda: listener.told, 2)
    store.complete_task(ours, RESULT)
    assert soon(lambda: listener.statuses[-1] == "completed", 3), "found by a look"


@pytest.mark.usefixtures("unlooked")
def test_nobody_waits_while_a_connection_is_closed(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, closed = threading.Event(), threading.Event()

    class Slow(Unclosable):
        def close_all(self) -> None:
            closing.set()
            closed.wait(10)

    monkeypatch.setattr(reading, "connections", Slow())
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    hub.unwatch(ref, listener, loop.loop)
    assert closing.wait(5)
    begun = time.monotonic()
    hub.watch(store, ref, listener, loop.loop)
    hub.publish(TaskChanged(ref, 5))
    took = time.monotonic() - begun
    closed.set()
    assert took < 1
    assert soon(lambda: len(listener.told) == 2)


def test_a_layer_that_is_named_wrongly_leaves_no_listener(
    hub: Hub, store: Counting, configure: Callable[..., None]
) -> None:
    configure(CHANNEL_LAYER="nowhere")
    for listen in (lambda: hub.watch(store, store.new(), Remembers()), lambda: hub.watch_lists(Remembers(), Mock())):
        with pytest.raises(ImproperlyConfigured, match="nowhere"):
            listen()
    assert (hub.count(), hub._lists) == (0, {})


@pytest.mark.usefixtures("unlooked")
def test_a_connection_that_cannot_be_closed_after_a_fault_ends_no_thread(
    hub: Hub, store: Counting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reading, "_FAULT_SECONDS", 0.05)
    monkeypatch.setattr(reading, "connections", Unclosable())
    ref, listener = store.new(), Remembers()
    store.failures = 1
    hub.watch(store, ref, listener)
    assert soon(lambda: listener.told, 2)


class Unclosable:
    """Connections to a server that is gone."""

    def all(self, **_: Any) -> list["Unclosable"]:
        return [self]

    def close_if_unusable_or_obsolete(self) -> None:
        raise ConnectionError("gone")

    def close_all(self) -> None:
        """These are none."""


def test_a_look_that_fails_is_repeated(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mcp_tasks.notifications.reconcile.POLL_SECONDS", 0.05)
    monkeypatch.setattr(reading, "_FAULT_SECONDS", 0.05)
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    store.failures = 3
    store.inner.complete_task(ref, RESULT)
    assert soon(lambda: listener.statuses[-1] == "completed")


# -- reconcile ----------------------------------------------------------------------------------------------------


def test_a_look_finds_what_no_message_told(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_tasks.notifications.reconcile.POLL_SECONDS", 0.05)
    refs, listener = [store.new() for _ in range(3)], Remembers()
    for ref in refs:
        hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: len(listener.told) >= 3)
    store.set_status(refs[0], "Reading")
    store.complete_task(refs[1], RESULT)
    store.discard_task(refs[2])

    def newest() -> dict[UUID, Any]:
        return {ref: None if state is None else state.revision for ref, state in listener.told}

    assert soon(lambda: newest() == {refs[0]: 2, refs[1]: 2, refs[2]: None})
    assert set(refs) in store.looks, "all that is watched, in one look"


def test_a_look_that_finds_nothing_new_reads_no_payload(
    hub: Hub, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_tasks.notifications.reconcile.POLL_SECONDS", 0.05)
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    store.reads.clear()
    store.looks.clear()
    assert soon(lambda: len(store.looks) >= 3)
    assert store.reads == []
    assert listener.revisions == [1]


@pytest.mark.usefixtures("unlooked")
def test_an_interruption_makes_the_hub_look_and_lists_are_told_to_look(
    hub: Hub, store: Counting, loop: LoopThread
) -> None:
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener, loop.loop)
    hub.watch_lists(listener, loop.loop)
    assert soon(lambda: listener.told)
    store.complete_task(ref, RESULT)
    hub._interrupted()
    assert soon(lambda: listener.statuses[-1] == "completed")
    assert soon(lambda: sorted(listener.lists) == ["prompts", "resources", "tools"])


# -- threads ------------------------------------------------------------------------------------------------------


def test_where_nothing_is_watched_there_is_no_thread(store: Counting) -> None:
    hub = Hub()
    before = len(threads_named("mcp-tasks-hub"))
    hub.publish(TaskChanged(uuid4(), 1))
    hub.publish(ListChanged("tools"))
    hub.unwatch(uuid4(), Remembers())
    hub.ask(uuid4(), Remembers())
    hub.flush(0.1)
    assert len(threads_named("mcp-tasks-hub")) == before
    hub.close()


def test_the_thread_of_a_hub_that_was_closed_ends_and_a_new_one_begins(hub: Hub, store: Counting) -> None:
    ref, listener = store.new(), Remembers()
    hub.watch(store, ref, listener)
    assert soon(lambda: listener.told)
    thread = hub._reader.thread
    assert thread is not None
    hub.close()
    assert not thread.is_alive()
    assert hub.count() == 0
    again = Remembers()
    hub.watch(store, ref, again)
    assert soon(lambda: again.revisions == [1])
    assert len(listener.told) == 1


@pytest.mark.django_db(transaction=True)
def test_the_thread_holds_no_connection_when_nothing_is_watched(hub: Hub) -> None:
    held: list[Any] = []
    real = connections.close_all

    class Spying(DatabaseTaskStore):
        def snapshots(self, refs: Any) -> Any:
            found = super().snapshots(refs)
            held.append(connections[connection.alias].connection)
            return found

    store = Spying()
    ref, listener = store.create_task("report", {}).ref, Remembers()
    closed = threading.Event()

    def close_all() -> None:
        real()
        if threading.current_thread() is hub._reader.thread:
            closed.set()

    hub.watch(store, ref, listener)
    assert soon(lambda: listener.told)
    assert held[0] is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connections, "close_all", close_all)
        hub.unwatch(ref, listener)
        assert closed.wait(5)


@pytest.mark.usefixtures("unlooked")
def test_nothing_is_kept_of_who_listened_and_left(hub: Hub, store: Counting, loop: LoopThread) -> None:
    ref, listener = store.new(), Remembers()
    gone, told = weakref.ref(listener), listener.told
    hub.watch(store, ref, listener, loop.loop)
    hub.watch_lists(listener, loop.loop)
    assert soon(lambda: told)
    hub.unwatch(ref, listener, loop.loop)
    hub.unwatch_lists(listener, loop.loop)
    del listener
    loop.call(lambda: None)
    gc.collect()
    assert gone() is None
    assert not hub._lists
    assert not hub._reader._due


def test_lists_are_told_on_the_loop_of_who_listens(hub: Hub, loop: LoopThread) -> None:
    first, second = Remembers(), Remembers()
    for listener in (first, second):
        hub.watch_lists(listener, loop.loop)
    hub.publish(ListChanged("tools"))
    assert soon(lambda: first.lists == ["tools"] and second.lists == ["tools"])
    hub.unwatch_lists(second, loop.loop)
    hub.unwatch_lists(second, loop.loop)
    hub.publish(ListChanged("prompts"))
    assert soon(lambda: first.lists == ["tools", "prompts"])
    assert second.lists == ["tools"]
    assert len(first.threads) == 1
    assert threading.get_ident() not in first.threads


def test_a_store_in_memory_is_watched_like_any_other(hub: Hub, loop: LoopThread) -> None:
    store, listener = MemoryTaskStore(), Remembers()
    ref = store.create_task("report", {}).ref
    hub.watch(store, ref, listener, loop.loop)
    store.complete_task(ref, RESULT)
    changed(hub, store, ref)
    assert soon(lambda: listener.statuses[-1:] == ["completed"])
