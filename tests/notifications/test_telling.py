"""What a project hears: signals and notifiers after the commit and only then, and lists that it says have changed."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.dispatch import Signal
from django.test import RequestFactory

from mcp_tasks import signals
from mcp_tasks.access import refusals
from mcp_tasks.asgi import mount
from mcp_tasks.checks import check_settings
from mcp_tasks.notifications import list_changed
from mcp_tasks.notifications.hub import Hub
from mcp_tasks.protocol.errors import internal_error
from mcp_tasks.store import DatabaseTaskStore, TaskSnapshot, get_store
from mcp_tasks.store.types import Owner
from mcp_tasks.testing import rewind
from mcp_tasks.transports.http.view import mcp
from tests.support.push import LoopThread, soon

from .conftest import Remembers

RESULT: dict[str, Any] = {"content": []}
HERE = __name__
ALICE, BOB = Owner(("test", "alice"), "Alice"), Owner(("test", "bob"), "Bob")

heard: list[tuple[str, UUID, int, Any]] = []


def first(ref: UUID, revision: int, snapshot: Callable[[], TaskSnapshot | None]) -> None:
    heard.append(("first", ref, revision, snapshot))


def second(ref: UUID, revision: int, snapshot: Callable[[], TaskSnapshot | None]) -> None:
    heard.append(("second", ref, revision, snapshot))


def broken(ref: UUID, revision: int, snapshot: Callable[[], TaskSnapshot | None]) -> None:
    raise ZeroDivisionError


NOT_CALLABLE = 5


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    heard.clear()
    yield
    heard.clear()
    refusals.settle(5)  # before the rows are deleted that it writes of


@pytest.fixture
def notifiers(configure: Callable[..., None]) -> Callable[..., None]:
    return lambda *names: configure(NOTIFIERS=[f"{HERE}.{name}" for name in names])


@pytest.fixture
def sent() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Every signal that is sent, with what it carries."""
    found: list[tuple[str, dict[str, Any]]] = []
    receivers = []
    for name, signal in vars(signals).items():
        if isinstance(signal, Signal):

            def receive(name: str = name, **carried: Any) -> None:
                found.append((name, carried))

            signal.connect(receive, weak=False)
            receivers.append((signal, receive))
    yield found
    for signal, receive in receivers:
        signal.disconnect(receive)


def names(sent: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [name for name, _ in sent]


# -- notifiers ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("transactional_db")
def test_each_notifier_is_called_for_each_change_that_a_client_can_see(notifiers: Callable[..., None]) -> None:
    notifiers("first", "second")
    store = get_store()
    ref = store.create_task("report", {}).ref
    assert heard == [], "of a new task nobody but its maker knows"
    store.set_status(ref, "Reading")
    store.complete_task(ref, RESULT)
    assert [entry[:3] for entry in heard] == [
        ("first", ref, 2),
        ("second", ref, 2),
        ("first", ref, 3),
        ("second", ref, 3),
    ]
    assert {entry[3]().task.status for entry in heard} == {"completed"}, "the state of now, not of then"


@pytest.mark.usefixtures("transactional_db")
def test_a_notifier_of_a_task_that_is_gone_is_shown_none(notifiers: Callable[..., None]) -> None:
    notifiers("first")
    store = get_store()
    ref = store.create_task("report", {}, ttl_ms=100_000).ref
    rewind(ref, 101)
    store.expire()
    assert [(name, told) for name, told, _, _ in heard] == [("first", ref)]
    assert heard[0][3]() is None


@pytest.mark.usefixtures("transactional_db")
def test_a_notifier_that_raises_changes_nothing_and_silences_nobody(
    notifiers: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    notifiers("broken", "first")
    ref = get_store().create_task("report", {}).ref
    with caplog.at_level(logging.ERROR, "mcp_tasks.notifications"):
        assert get_store().complete_task(ref, RESULT)
    assert [entry[:3] for entry in heard] == [("first", ref, 2)]
    (record,) = caplog.records
    assert (record.event, record.notifier) == ("notifier_failed", f"{HERE}.broken")  # type: ignore[attr-defined]
    task = get_store().get_task(ref)
    assert task is not None
    assert task.status == "completed"


@pytest.mark.usefixtures("transactional_db")
def test_a_notifier_reads_nothing_unless_it_wants_to(
    notifiers: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    notifiers("first")
    ref = get_store().create_task("report", {}).ref
    reads: list[UUID] = []
    real = DatabaseTaskStore.get_task_result
    monkeypatch.setattr(DatabaseTaskStore, "get_task_result", lambda self, ref: reads.append(ref) or real(self, ref))
    get_store().complete_task(ref, RESULT)
    assert reads == []
    heard[0][3]()
    assert reads == [ref]


# -- commits ------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(
    transactional_db: None, notifiers: Callable[..., None], sent: list[Any], process: Hub, loop: LoopThread
) -> tuple[DatabaseTaskStore, UUID, Remembers]:
    """A task whose creation is over, with everybody who could hear of it."""
    notifiers("first")
    store, listener = DatabaseTaskStore(), Remembers()
    ref = store.create_task("report", {}).ref
    process.watch(store, ref, listener, loop.loop)
    assert soon(lambda: listener.told)
    sent.clear()
    return store, ref, listener


def test_what_was_rolled_back_is_told_to_nobody(
    watched: tuple[DatabaseTaskStore, UUID, Remembers], sent: list[Any]
) -> None:
    store, ref, listener = watched
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        other = store.create_task("report", {}, durable=False).ref
        store.complete_task(ref, RESULT, durable=False)
        store.fail_task(other, internal_error(), durable=False)
        raise ZeroDivisionError
    time.sleep(0.2)
    assert (sent, heard) == ([], [])
    assert listener.statuses == ["working"]


def test_a_change_within_a_transaction_is_told_at_its_commit(
    watched: tuple[DatabaseTaskStore, UUID, Remembers], sent: list[Any]
) -> None:
    store, ref, listener = watched
    with transaction.atomic():
        store.complete_task(ref, RESULT, durable=False)
        assert (sent, heard) == ([], [])
        time.sleep(0.1)
        assert listener.statuses == ["working"]
    assert sorted(names(sent)) == ["task_settled", "task_status_changed"]
    assert [entry[:3] for entry in heard] == [("first", ref, 2)]
    assert soon(lambda: listener.statuses[-1] == "completed")


@pytest.mark.usefixtures("transactional_db")
def test_of_a_savepoint_that_was_rolled_back_nothing_is_told(notifiers: Callable[..., None], sent: list[Any]) -> None:
    notifiers("first")
    store = DatabaseTaskStore()
    kept, lost = store.create_task("report", {}).ref, store.create_task("report", {}).ref
    sent.clear()
    with transaction.atomic():
        store.complete_task(kept, RESULT, durable=False)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            store.complete_task(lost, RESULT, durable=False)
            raise ZeroDivisionError
    assert {carried["ref"] for _, carried in sent} == {kept}
    assert [entry[1] for entry in heard] == [kept]


@pytest.mark.django_db
def test_on_commit_callbacks_of_a_test_transaction_are_told(
    django_capture_on_commit_callbacks: Any, sent: list[Any]
) -> None:
    store = DatabaseTaskStore()
    with django_capture_on_commit_callbacks(execute=True):
        ref = store.create_task("report", {}, durable=False).ref
    assert names(sent) == ["task_created"]
    found = sent[0][1]["snapshot"]()
    assert found == store.get_task_result(ref)


# -- signals of the configured store ------------------------------------------------------------------------------


@pytest.mark.usefixtures("transactional_db")
def test_a_snapshot_is_what_the_configured_store_shows(sent: list[Any]) -> None:
    store = get_store()
    ref = store.create_task("report", {}).ref
    store.complete_task(ref, RESULT)
    assert names(sent)[0] == "task_created"
    for _, carried in sent:
        assert carried["ref"] == ref
        assert carried["snapshot"]() == store.get_task_result(ref)
        assert carried["sender"].__name__ == "Task"
    assert [carried["revision"] for _, carried in sent] == [None, 2, 2]


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("how", ["resolve", "payload", "many"])
def test_a_foreign_id_is_logged_and_told_and_nothing_else_is(
    sent: list[Any], caplog: pytest.LogCaptureFixture, how: str
) -> None:
    store = DatabaseTaskStore()
    foreign, unowned = store.create_task("report", {}, owner=BOB), store.create_task("report", {})
    own = store.create_task("report", {}, owner=ALICE)
    sent.clear()
    ids = [own.task_id, "A" * 43, "malformed\x00", foreign.task_id, unowned.task_id]
    with caplog.at_level(logging.INFO, "mcp_tasks.access"):
        if how == "many":
            assert store.owned_refs(ids, ALICE) == {own.task_id: own.ref}
        else:
            for task_id in ids:
                store.resolve(task_id, ALICE, payload=how == "payload")
    told = {foreign.ref, unowned.ref}
    records = [record for record in caplog.records if record.name == "mcp_tasks.access"]
    assert len(sent) == len(records) == 2
    assert {carried["ref"] for _, carried in sent} == told
    assert {(name, carried["revision"]) for name, carried in sent} == {("access_refused", None)}
    assert {(record.event, record.reason) for record in records} == {("access_refused", "owner")}  # type: ignore[attr-defined]
    assert {record.ref for record in records} == {str(ref) for ref in told}  # type: ignore[attr-defined]
    for created in (own, foreign, unowned):
        assert created.task_id not in caplog.text


@pytest.mark.usefixtures("transactional_db")
def test_a_receiver_of_access_refused_that_raises_refuses_all_the_same() -> None:
    def broken_receiver(**_: Any) -> None:
        raise ZeroDivisionError

    store = DatabaseTaskStore()
    foreign = store.create_task("report", {}, owner=BOB)
    signals.access_refused.connect(broken_receiver, weak=False)
    try:
        assert type(store.resolve(foreign.task_id, ALICE)).__name__ == "Missing"
        assert store.owned_refs([foreign.task_id], ALICE) == {}
    finally:
        signals.access_refused.disconnect(broken_receiver)


# -- wrong settings -----------------------------------------------------------------------------------------------

WRONG: dict[str, dict[str, Any]] = {
    "no such module": {"NOTIFIERS": ["no.such.module"]},
    "no such name": {"NOTIFIERS": [f"{HERE}.missing"]},
    "not callable": {"NOTIFIERS": [f"{HERE}.NOT_CALLABLE"]},
    "no path": {"NOTIFIERS": [""]},
    "one of two": {"NOTIFIERS": [f"{HERE}.first", f"{HERE}.missing"]},
    "no list": {"NOTIFIERS": f"{HERE}.first"},
    "a function": {"NOTIFIERS": [first]},
    "an unknown layer": {"CHANNEL_LAYER": "elsewhere"},
    "a number for a layer": {"CHANNEL_LAYER": 5},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_path_is_a_check_error_and_stops_what_serves(configure: Callable[..., None], what: str) -> None:
    configure(**WRONG[what])
    found = check_settings(None)
    assert {message.id for message in found} == {"mcp_tasks.E001"}
    assert len(found) == 1
    with pytest.raises(ImproperlyConfigured):
        mount(lambda *_: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ImproperlyConfigured):
        mcp(RequestFactory().post("/mcp"))


def test_the_sentence_names_the_path(configure: Callable[..., None]) -> None:
    configure(NOTIFIERS=[f"{HERE}.missing", f"{HERE}.NOT_CALLABLE", f"{HERE}.first"])
    said = [message.msg for message in check_settings(None)]
    assert len(said) == 2
    assert f"{HERE}.missing" in said[0]
    assert f"{HERE}.NOT_CALLABLE" in said[1]


def test_right_paths_are_no_error(notifiers: Callable[..., None]) -> None:
    notifiers("first", "second", "broken")
    assert check_settings(None) == []


# -- list_changed -------------------------------------------------------------------------------------------------


@pytest.fixture
def lists(process: Hub, loop: LoopThread) -> list[str]:
    """What listeners of lists are told."""
    listener = Remembers()
    process.watch_lists(listener, loop.loop)
    return listener.lists


@pytest.mark.parametrize("kind", ["tool", "Tools", "", "tasks", None, 5, "toolsListChanged"])
def test_another_word_for_a_list_is_a_mistake(kind: Any) -> None:
    with pytest.raises(ValueError, match="tools, prompts, resources"):
        list_changed(kind)


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
def test_a_changed_list_is_told_at_once_outside_of_a_transaction(lists: list[str], kind: Any) -> None:
    list_changed(kind)
    assert soon(lambda: lists == [kind])


@pytest.mark.usefixtures("transactional_db")
def test_a_changed_list_is_told_at_the_commit_and_never_after_a_rollback(lists: list[str]) -> None:
    with transaction.atomic():
        list_changed("tools")
        time.sleep(0.1)
        assert lists == []
    assert soon(lambda: lists == ["tools"])
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        list_changed("prompts")
        raise ZeroDivisionError
    time.sleep(0.1)
    assert lists == ["tools"]


@pytest.mark.usefixtures("transactional_db")
def test_a_list_may_be_said_to_have_changed_on_any_thread(
    lists: list[str], on_a_thread: Callable[..., threading.Thread]
) -> None:
    on_a_thread(lambda: list_changed("tools")).join(5)
    assert soon(lambda: lists == ["tools"])


@pytest.mark.usefixtures("transactional_db")
def test_async_code_may_say_so_too(lists: list[str]) -> None:
    async def view() -> None:
        list_changed("tools")

    asyncio.run(view())
    assert soon(lambda: lists == ["tools"])
