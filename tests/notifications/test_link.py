"""The link to other processes: what goes over the layer, and that no fault of it costs more than a delay."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from mcp_tasks.notifications import link as link_module
from mcp_tasks.notifications import reconcile
from mcp_tasks.notifications.groups import LISTS, ListChanged, TaskChanged, group_of, read
from mcp_tasks.notifications.hub import Hub
from mcp_tasks.notifications.layers import crossing_layer, layer_problem
from mcp_tasks.notifications.link import Link
from mcp_tasks.store import effects
from tests.support.push import LoopThread, soon

from .conftest import Counting, Remembers, threads_named
from .layers import ALIAS, Broker, crossing

__all__ = ["crossing"]

RESULT: dict[str, Any] = {"content": []}


@pytest.fixture(autouse=True)
def _no_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests tell nobody by themselves: a test says which hub a change comes from."""
    monkeypatch.setattr(effects, "publish_hooks", [])


@pytest.fixture
def there(crossing: Broker) -> Iterator[Hub]:
    """The hub of another process."""
    made = Hub()
    yield made
    made.close()


@pytest.fixture
def here(crossing: Broker, hub: Hub) -> Hub:
    """The hub of this process, after the layer was configured."""
    return hub


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes a moment."""
    monkeypatch.setattr(link_module, "ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr(link_module, "REST_SECONDS", 0.1)


def told(hub: Hub, store: Counting, ref: UUID) -> None:
    task = store.inner.get_task(ref)
    assert task is not None
    hub.publish(TaskChanged(ref, task.revision))


# -- what goes over the layer -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unlooked")
def test_a_change_of_another_process_is_told_here(here: Hub, there: Hub, store: Counting, loop: LoopThread) -> None:
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    here.watch_lists(listener, loop.loop)
    assert soon(lambda: listener.told)
    store.complete_task(ref, RESULT)
    told(there, store, ref)
    there.publish(ListChanged("tools"))
    assert soon(lambda: listener.statuses[-1] == "completed")
    assert soon(lambda: listener.lists == ["tools"])


@pytest.mark.usefixtures("unlooked")
def test_a_message_says_ref_and_revision_and_nothing_else(
    here: Hub, there: Hub, crossing: Broker, loop: LoopThread
) -> None:
    store = Counting()
    created = store.create_task("report", {"secret": "s3cret"})
    listener = Remembers()
    here.watch(store, created.ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    store.set_status(created.ref, "s3cret")
    store.complete_task(created.ref, {"content": [], "secret": "s3cret"})
    told(there, store, created.ref)
    there.publish(ListChanged("tools"))
    assert soon(lambda: len(crossing.messages) == 2)
    assert crossing.messages == [
        {"type": "mcp_tasks.changed", "ref": created.ref.hex, "revision": 3},
        {"type": "mcp_tasks.changed", "list": "tools", "sender": there._name},
    ]
    everything = repr(crossing.calls)
    assert created.task_id not in everything
    assert "s3cret" not in everything


@pytest.mark.parametrize("ref", [UUID(int=0), UUID(int=2**128 - 1), uuid4()])
def test_a_group_has_a_name_that_every_layer_takes(ref: UUID) -> None:
    for name in (group_of(ref), LISTS):
        assert name.isascii()
        assert len(name) < 100
    assert group_of(ref) != group_of(uuid4())


@pytest.mark.parametrize(
    "message",
    [
        None,
        "x",
        [],
        {},
        {"type": "chat.message"},
        {"type": "mcp_tasks.changed"},
        {"type": "mcp_tasks.changed", "ref": None, "revision": 1},
        {"type": "mcp_tasks.changed", "ref": "no", "revision": 1},
        {"type": "mcp_tasks.changed", "ref": 5, "revision": 1},
        {"type": "mcp_tasks.changed", "ref": "0" * 32},
        {"type": "mcp_tasks.changed", "ref": "0" * 32, "revision": None},
        {"type": "mcp_tasks.changed", "ref": "0" * 32, "revision": "many"},
        {"type": "mcp_tasks.changed", "list": "weather"},
        {"type": "mcp_tasks.changed", "list": ["tools"]},
        {"type": "mcp_tasks.changed", "list": {}},
    ],
    ids=repr,
)
def test_a_message_that_is_none_of_ours_says_nothing(message: Any) -> None:
    assert read(message) is None


@pytest.mark.parametrize(
    "change", [TaskChanged(uuid4(), 1), TaskChanged(uuid4(), 2**40), ListChanged("prompts"), ListChanged("tools", "x")]
)
def test_what_is_written_is_read(change: Any) -> None:
    assert read(change.message()) == change
    assert read({**change.message(), "more": "of a later version"}) == change


@pytest.mark.usefixtures("unlooked")
def test_a_strange_message_in_a_group_does_no_harm(
    here: Hub, there: Hub, crossing: Broker, store: Counting, loop: LoopThread
) -> None:
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    for channel in list(crossing.channels.values()):
        for message in ({"type": "x"}, {"type": "mcp_tasks.changed", "list": []}, None, 7):
            channel.put(message)
    store.complete_task(ref, RESULT)
    told(there, store, ref)
    assert soon(lambda: listener.statuses[-1] == "completed", 3)


# -- memberships --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unlooked")
def test_a_task_is_joined_once_however_many_listen_and_left_after_the_last(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread
) -> None:
    ref, listeners = store.new(), [Remembers() for _ in range(20)]
    for listener in listeners:
        here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: all(listener.told for listener in listeners))
    assert crossing.named("group_add") == [group_of(ref)]
    assert len(crossing.named("new_channel")) == 1
    for listener in listeners[1:]:
        here.unwatch(ref, listener, loop.loop)
    time.sleep(0.1)
    assert crossing.named("group_discard") == []
    here.unwatch(ref, listeners[0], loop.loop)
    assert soon(lambda: crossing.named("group_discard") == [group_of(ref)])
    assert crossing.members(group_of(ref)) == 0


@pytest.mark.usefixtures("unlooked")
def test_lists_are_joined_once_and_left_after_the_last(here: Hub, crossing: Broker, loop: LoopThread) -> None:
    listeners = [Remembers() for _ in range(3)]
    for listener in listeners:
        here.watch_lists(listener, loop.loop)
    assert soon(lambda: crossing.members(LISTS) == 1)
    assert crossing.named("group_add") == [LISTS]
    for listener in listeners:
        assert crossing.members(LISTS) == 1
        here.unwatch_lists(listener, loop.loop)
    assert soon(lambda: crossing.members(LISTS) == 0)


@pytest.mark.usefixtures("unlooked")
def test_who_comes_to_the_lists_while_the_last_leaves_is_a_member(
    here: Hub, crossing: Broker, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves, comes = Remembers(), Remembers()
    here.watch_lists(leaves, loop.loop)
    real, other = Link.leave, threading.Thread(target=here.watch_lists, args=(comes, loop.loop))

    def leave(self: Link, group: str) -> None:
        other.start()
        other.join(0.2)
        real(self, group)

    monkeypatch.setattr(Link, "leave", leave)
    here.unwatch_lists(leaves, loop.loop)
    other.join(5)
    assert soon(lambda: crossing.members(LISTS) == 1)
    time.sleep(0.1)
    assert crossing.members(LISTS) == 1


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize("what", ["lists", "task"])
def test_who_leaves_while_it_comes_is_no_member(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    ref, listener = store.new(), Remembers()

    def gone() -> None:
        if what == "lists":
            here.unwatch_lists(listener, loop.loop)
        else:
            here.unwatch(ref, listener, loop.loop)

    real, other = Link.join, threading.Thread(target=gone)

    def join(self: Link, group: str) -> None:
        other.start()
        other.join(0.2)
        real(self, group)

    monkeypatch.setattr(Link, "join", join)
    if what == "lists":
        here.watch_lists(listener, loop.loop)
    else:
        here.watch(store, ref, listener, loop.loop)
    other.join(5)
    here.flush(5)
    time.sleep(0.2)
    assert not any(crossing.groups.values())


@pytest.mark.usefixtures("unlooked")
def test_who_leaves_and_comes_back_at_once_is_a_member(
    here: Hub, there: Hub, crossing: Broker, store: Counting, loop: LoopThread
) -> None:
    ref, listener = store.new(), Remembers()
    for _ in range(20):
        here.watch(store, ref, listener, loop.loop)
        here.unwatch(ref, listener, loop.loop)
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    assert soon(lambda: crossing.members(group_of(ref)) == 1)
    time.sleep(0.1)
    assert crossing.members(group_of(ref)) == 1
    store.complete_task(ref, RESULT)
    told(there, store, ref)
    assert soon(lambda: listener.statuses[-1] == "completed")


@pytest.mark.usefixtures("unlooked")
def test_a_task_is_read_only_after_it_was_joined(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread
) -> None:
    ref, listener = store.new(), Remembers()
    crossing.hanging.add("group_add")
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: crossing.named("group_add"))
    time.sleep(0.1)
    assert store.reads == [], "what changes in between would be lost"
    crossing.hanging.clear()
    assert soon(lambda: listener.told)


@pytest.mark.usefixtures("unlooked")
def test_the_own_message_that_comes_back_costs_no_second_read(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread
) -> None:
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    store.reads.clear()
    store.complete_task(ref, RESULT)
    told(here, store, ref)
    assert soon(lambda: listener.statuses[-1] == "completed")
    assert soon(lambda: crossing.messages)
    time.sleep(0.1)
    assert len(store.reads) == 1


@pytest.mark.usefixtures("unlooked")
def test_the_own_message_of_a_list_that_comes_back_is_not_told_again(
    here: Hub, there: Hub, crossing: Broker, loop: LoopThread
) -> None:
    mine, theirs = Remembers(), Remembers()
    here.watch_lists(mine, loop.loop)
    there.watch_lists(theirs, loop.loop)
    assert soon(lambda: crossing.members(LISTS) == 2)
    for kind in ("tools", "prompts"):
        here.publish(ListChanged(kind))  # type: ignore[arg-type]
    assert soon(lambda: theirs.lists == ["tools", "prompts"])
    time.sleep(0.1)
    assert mine.lists == ["tools", "prompts"]


# -- faults of the layer ------------------------------------------------------------------------------------------


def test_one_attempt_takes_at_most_a_few_seconds() -> None:
    assert link_module.ATTEMPT_SECONDS + link_module.REST_SECONDS <= 5
    assert reconcile.RECONCILE_SECONDS <= 15


@pytest.mark.usefixtures("unlooked", "quick")
@pytest.mark.parametrize("operation", ["group_add", "new_channel", "group_send", "group_discard"])
@pytest.mark.parametrize("fault", ["failing", "hanging"])
def test_a_layer_that_is_away_delays_no_state_and_no_local_change(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread, fault: str, operation: str
) -> None:
    getattr(crossing, fault).add(operation)
    here.publish(TaskChanged(uuid4(), 1))
    refs, listener = [store.new() for _ in range(20)], Remembers()
    begun = time.monotonic()
    for ref in refs:
        here.watch(store, ref, listener, loop.loop)
    assert time.monotonic() - begun < 0.2
    assert soon(lambda: {ref for ref, _ in listener.told} == set(refs), 3)
    assert time.monotonic() - begun < 4 * (link_module.ATTEMPT_SECONDS + link_module.REST_SECONDS) + 1
    store.complete_task(refs[0], RESULT)
    begun = time.monotonic()
    told(here, store, refs[0])
    assert time.monotonic() - begun < 0.1
    assert soon(lambda: "completed" in listener.statuses, 1)
    here.unwatch(refs[0], listener, loop.loop)


@pytest.mark.usefixtures("unlooked")
def test_a_layer_that_cannot_be_made_delays_no_state(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    crossing.failing.add("init")
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told, 4)
    assert "layer_failed" in {getattr(record, "event", None) for record in caplog.records}
    crossing.failing.clear()


@pytest.mark.usefixtures("quick")
def test_what_a_layer_dropped_is_found_by_the_look(
    here: Hub, there: Hub, crossing: Broker, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "RECONCILE_SECONDS", 0.2)
    crossing.dropping = True
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    store.complete_task(ref, RESULT)
    told(there, store, ref)
    assert soon(lambda: listener.statuses[-1] == "completed", 3)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("operation", ["group_add", "new_channel"])
@pytest.mark.parametrize("fault", ["failing", "hanging"])
def test_a_group_that_could_not_be_joined_is_joined_later(
    here: Hub,
    there: Hub,
    crossing: Broker,
    store: Counting,
    loop: LoopThread,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    operation: str,
) -> None:
    monkeypatch.setattr(reconcile, "RECONCILE_SECONDS", 0.2)
    getattr(crossing, fault).add(operation)
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    here.watch_lists(listener, loop.loop)
    assert soon(lambda: listener.told)
    getattr(crossing, fault).clear()
    assert soon(lambda: crossing.members(group_of(ref)) == 1 and crossing.members(LISTS) == 1)
    monkeypatch.setattr(reconcile, "RECONCILE_SECONDS", 3600.0)
    time.sleep(0.6)
    store.complete_task(ref, RESULT)
    told(there, store, ref)
    there.publish(ListChanged("tools"))
    assert soon(lambda: listener.statuses[-1] == "completed")
    assert soon(lambda: "tools" in listener.lists)


@pytest.mark.usefixtures("quick")
def test_a_member_that_the_broker_forgot_joins_again_once_a_look_finds_what_it_missed(
    here: Hub, there: Hub, crossing: Broker, store: Counting, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "RECONCILE_SECONDS", 0.2)
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: crossing.members(group_of(ref)) == 1)
    crossing.lose_memberships()
    store.set_status(ref, "Reading")
    told(there, store, ref)
    assert soon(lambda: listener.revisions[-1] == 2, 3)
    assert soon(lambda: crossing.members(group_of(ref)) == 1)


@pytest.mark.usefixtures("unlooked", "quick")
@pytest.mark.parametrize("fault", ["failing", "hanging", "mute"])
def test_a_group_that_could_not_be_left_is_left_later(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread, fault: str
) -> None:
    refs, listener = [store.new() for _ in range(5)], Remembers()
    for ref in refs:
        here.watch(store, ref, listener, loop.loop)
    here.watch_lists(listener, loop.loop)
    assert soon(lambda: all(crossing.members(group_of(ref)) == 1 for ref in refs) and crossing.members(LISTS) == 1)
    getattr(crossing, fault).add("group_discard")
    for ref in refs:
        here.unwatch(ref, listener, loop.loop)
    here.unwatch_lists(listener, loop.loop)
    assert soon(lambda: crossing.named("group_discard"))
    time.sleep(0.3)
    getattr(crossing, fault).clear()
    assert soon(lambda: not any(crossing.groups.values()), 3)


@pytest.mark.usefixtures("unlooked", "quick")
def test_a_group_that_was_joined_without_an_answer_is_left_too(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread
) -> None:
    crossing.mute.add("group_add")
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told and crossing.members(group_of(ref)) == 1)
    here.unwatch(ref, listener, loop.loop)
    crossing.mute.clear()
    assert soon(lambda: crossing.members(group_of(ref)) == 0, 3)


@pytest.mark.usefixtures("unlooked", "quick")
def test_lists_that_could_not_be_joined_are_joined_later_though_no_task_is_watched(
    here: Hub, there: Hub, crossing: Broker, loop: LoopThread
) -> None:
    crossing.failing.add("group_add")
    listener = Remembers()
    here.watch_lists(listener, loop.loop)
    assert soon(lambda: crossing.named("group_add"))
    crossing.failing.clear()
    assert soon(lambda: crossing.members(LISTS) == 1, 3)
    there.publish(ListChanged("tools"))
    assert soon(lambda: "tools" in listener.lists)


@pytest.mark.usefixtures("unlooked")
def test_a_membership_of_lists_that_the_broker_forgot_is_renewed(
    here: Hub, there: Hub, crossing: Broker, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No look finds that a change of a list was missed."""
    monkeypatch.setattr(link_module, "RENEW_SECONDS", 0.1)
    listener = Remembers()
    here.watch_lists(listener, loop.loop)
    assert soon(lambda: crossing.members(LISTS) == 1)
    crossing.lose_memberships()
    assert soon(lambda: crossing.members(LISTS) == 1, 3)
    there.publish(ListChanged("tools"))
    assert soon(lambda: listener.lists == ["tools"])
    here.unwatch_lists(listener, loop.loop)
    assert soon(lambda: crossing.members(LISTS) == 0)
    time.sleep(0.3)
    assert crossing.members(LISTS) == 0, "nobody's membership is renewed"


@pytest.mark.usefixtures("unlooked", "quick")
def test_while_a_layer_is_away_nothing_is_read_again_and_again(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread
) -> None:
    crossing.failing.add("group_add")
    refs, listener = [store.new() for _ in range(5)], Remembers()
    for ref in refs:
        here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: len(listener.told) == 5)
    tried, reads = len(crossing.named("group_add")), len(store.reads)
    assert soon(lambda: len(crossing.named("group_add")) >= tried + 3, 3)
    assert len(store.reads) == reads
    crossing.failing.clear()
    assert soon(lambda: {ref for each in store.reads[reads:] for ref in each} == set(refs), 3), "once it is joined"


@pytest.mark.usefixtures("unlooked")
def test_a_channel_that_is_full_holds_up_no_other_message(
    here: Hub, crossing: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    full, other = uuid4(), uuid4()
    crossing.full.add(group_of(full))
    begun = time.monotonic()
    for revision in range(1, 4):
        here.publish(TaskChanged(full, revision))
        here.publish(TaskChanged(other, revision))
        here.flush(5)
    assert time.monotonic() - begun < link_module.REST_SECONDS
    sent = [group for group, _ in crossing.named("group_send")]
    assert sent.count(group_of(other)) == 3
    assert [record for record in caplog.records if record.name == "mcp_tasks.notifications"] == []


@pytest.mark.usefixtures("unlooked", "quick")
def test_a_layer_that_can_be_joined_and_never_read_is_tried_ever_more_seldom(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    crossing.failing.add("receive")
    listener = Remembers()
    here.watch(store, store.new(), listener, loop.loop)
    here.watch_lists(listener, loop.loop)
    time.sleep(1.6)  # rests of 0.1, 0.2, 0.4 and 0.8 seconds
    assert 3 <= len(crossing.named("group_add")) <= 10
    assert len(caplog.records) <= 10


@pytest.mark.usefixtures("unlooked", "quick")
def test_a_layer_that_is_back_makes_everybody_look(
    here: Hub, there: Hub, crossing: Broker, store: Counting, loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    here.watch_lists(listener, loop.loop)
    assert soon(lambda: listener.told and crossing.members(LISTS) == 1)
    crossing.failing.add("group_send")
    here.publish(ListChanged("prompts"))
    assert soon(lambda: any(getattr(r, "event", None) == "layer_failed" for r in caplog.records))
    store.complete_task(ref, RESULT)
    crossing.failing.clear()
    time.sleep(0.2)
    here.publish(TaskChanged(uuid4(), 1))
    assert soon(lambda: listener.statuses[-1] == "completed")
    assert soon(lambda: {"tools", "prompts", "resources"} <= set(listener.lists))
    assert any(getattr(r, "event", None) == "layer_back" for r in caplog.records)


@pytest.mark.usefixtures("unlooked", "quick")
def test_a_failure_is_logged_once_and_not_for_each_message(
    here: Hub, crossing: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    crossing.failing.add("group_send")
    with caplog.at_level(logging.WARNING, "mcp_tasks.notifications"):
        for _ in range(30):
            here.publish(TaskChanged(uuid4(), 1))
            time.sleep(0.01)
        here.flush(2)
    assert [getattr(record, "event", None) for record in caplog.records] == ["layer_failed"]


@pytest.mark.usefixtures("unlooked", "quick")
def test_a_layer_that_cannot_be_read_for_a_while_is_joined_again(
    here: Hub, there: Hub, crossing: Broker, store: Counting, loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    ref, listener = store.new(), Remembers()
    here.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told and crossing.members(group_of(ref)) == 1)
    crossing.failing.add("receive")
    crossing.lose_memberships()
    time.sleep(0.3)
    store.set_status(ref, "Reading")
    crossing.failing.clear()
    assert soon(lambda: crossing.members(group_of(ref)) == 1)
    assert soon(lambda: listener.revisions[-1] == 2), "what was missed is looked for"
    store.complete_task(ref, RESULT)
    told(there, store, ref)
    assert soon(lambda: listener.statuses[-1] == "completed")


# -- outgoing -----------------------------------------------------------------------------------------------------


@pytest.fixture
def link(crossing: Broker) -> Iterator[Link]:
    made = Link(ALIAS, heard=lambda change: None, joined=lambda group: None, interrupted=lambda: None)
    yield made
    made.close()


def test_of_one_task_only_the_newest_revision_waits_to_be_sent(link: Link, crossing: Broker) -> None:
    crossing.hanging.add("group_send")
    first, ref = uuid4(), uuid4()
    link.send(TaskChanged(first, 1))
    assert soon(lambda: crossing.named("group_send"))
    for revision in (3, 9, 5):
        link.send(TaskChanged(ref, revision))
    for kind in ("tools", "prompts", "tools"):
        link.send(ListChanged(kind))  # type: ignore[arg-type]
    crossing.hanging.clear()
    assert link.flush(5)
    sent = [read(message) for message in crossing.messages]
    assert sent[0] == TaskChanged(first, 1)
    assert sent[1:] == [TaskChanged(ref, 9), ListChanged("prompts"), ListChanged("tools")]


def test_so_many_changes_wait_and_of_more_the_oldest_are_dropped(
    link: Link, crossing: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "OUTGOING_LIMIT", 10)
    crossing.hanging.add("group_send")
    link.send(TaskChanged(uuid4(), 1))
    assert soon(lambda: crossing.named("group_send"))
    refs = [uuid4() for _ in range(30)]
    for ref in refs:
        link.send(TaskChanged(ref, 1))
    assert len(link._outgoing) == 10
    crossing.hanging.clear()
    assert link.flush(5)
    sent = [read(message) for message in crossing.messages][1:]
    assert sent == [TaskChanged(ref, 1) for ref in refs[-10:]]


def test_a_flush_waits_until_everything_is_sent_and_no_longer_than_it_may(link: Link, crossing: Broker) -> None:
    assert link.flush(0), "nothing waits"
    crossing.hanging.add("group_send")
    link.send(TaskChanged(uuid4(), 1))
    begun = time.monotonic()
    assert not link.flush(0.2)
    assert time.monotonic() - begun < 1
    crossing.hanging.clear()
    assert link.flush(5)
    assert len(crossing.messages) == 1


@pytest.mark.usefixtures("quick")
def test_a_flush_of_a_layer_that_is_away_ends_with_what_was_dropped(link: Link, crossing: Broker) -> None:
    crossing.hanging.add("group_send")
    for _ in range(50):
        link.send(TaskChanged(uuid4(), 1))
    assert link.flush(3)


@pytest.mark.usefixtures("unlooked")
def test_many_memberships_hold_up_no_message(here: Hub, crossing: Broker, store: Counting, loop: LoopThread) -> None:
    crossing.hanging.add("group_add")
    listener = Remembers()
    for _ in range(50):
        here.watch(store, store.new(), listener, loop.loop)
    assert soon(lambda: crossing.named("group_add"))
    here.publish(TaskChanged(uuid4(), 7))
    crossing.hanging.clear()
    assert soon(lambda: crossing.messages)
    operations = [name for name, _ in crossing.calls]
    assert operations.index("group_send") < 5


# -- life of the link ---------------------------------------------------------------------------------------------


def test_where_nothing_is_told_or_watched_no_thread_is_started(crossing: Broker) -> None:
    before = len(threads_named("mcp-tasks-link"))
    hub = Hub()
    assert hub.crosses_processes
    hub.flush(0.1)
    assert len(threads_named("mcp-tasks-link")) == before
    assert crossing.calls == []
    hub.close()


def test_a_closed_link_ends_its_thread_and_gives_back_what_the_layer_holds(
    here: Hub, crossing: Broker, store: Counting, loop: LoopThread
) -> None:
    listener = Remembers()
    here.watch(store, store.new(), listener, loop.loop)
    assert soon(lambda: listener.told)
    assert threads_named("mcp-tasks-link")
    here.close()
    assert soon(lambda: not threads_named("mcp-tasks-link"))
    assert crossing.closed == 1


def test_a_closed_link_takes_nothing_more_and_raises_nothing(link: Link, crossing: Broker) -> None:
    link.join(group_of(uuid4()))
    assert soon(lambda: crossing.named("group_add"))
    link.close()
    link.close()
    link.send(TaskChanged(uuid4(), 1))
    link.join(group_of(uuid4()))
    link.leave(group_of(uuid4()))
    link.rejoin([group_of(uuid4())])
    assert soon(lambda: not threads_named("mcp-tasks-link"))


def test_a_link_that_hangs_can_be_closed(link: Link, crossing: Broker) -> None:
    crossing.hanging |= {"group_send", "group_add", "new_channel"}
    link.send(TaskChanged(uuid4(), 1))
    link.join(group_of(uuid4()))
    assert soon(lambda: crossing.calls)
    link.close()
    assert soon(lambda: not threads_named("mcp-tasks-link"))


# -- the setting --------------------------------------------------------------------------------------------------

MEMORY = {"BACKEND": "channels.layers.InMemoryChannelLayer"}
FAKE = {"BACKEND": "tests.notifications.layers.FakeLayer"}


@pytest.mark.parametrize(
    ("layers", "alias", "crosses"),
    [
        ({}, "default", None),
        ({"default": MEMORY}, "default", None),
        ({"default": FAKE}, "default", "default"),
        ({"default": FAKE}, None, None),
        ({"default": MEMORY, "tasks": FAKE}, "tasks", "tasks"),
    ],
)
def test_only_a_layer_that_reaches_other_processes_is_used(
    settings: Any, configure: Callable[..., None], layers: Any, alias: str | None, crosses: str | None
) -> None:
    settings.CHANNEL_LAYERS = layers
    configure(CHANNEL_LAYER=alias)
    assert layer_problem() is None
    assert crossing_layer() == crosses
    assert Hub().crosses_processes is (crosses is not None)


@pytest.mark.parametrize(
    ("layers", "alias"),
    [
        ({}, "tasks"),
        ({"default": FAKE}, "tasks"),
        ({"default": {"BACKEND": "no.such.Layer"}}, "default"),
        ({"default": {"BACKEND": "tests.notifications.layers.Missing"}}, "default"),
        ({"default": {}}, "default"),
        ({"default": {"BACKEND": 5}}, "default"),
    ],
    ids=["empty", "other", "module", "name", "nothing", "number"],
)
def test_a_layer_that_cannot_be_used_is_a_problem_with_a_name(
    settings: Any, configure: Callable[..., None], layers: Any, alias: str
) -> None:
    settings.CHANNEL_LAYERS = layers
    configure(CHANNEL_LAYER=alias)
    problem = layer_problem()
    assert problem is not None
    assert repr(alias) in problem
