"""Who is alive: a process is noted, renewed, and forgotten in good order, or when it was not heard of for long."""

from datetime import timedelta
from typing import Any

import pytest

from mcp_tasks.dbtime import current
from mcp_tasks.models import Process
from mcp_tasks.store import DatabaseTaskStore, MemoryTaskStore, processes
from mcp_tasks.store.sweep import sweep

pytestmark = pytest.mark.django_db(transaction=True)

store = DatabaseTaskStore()


def note(name: str = "host:1", **changes: Any) -> None:
    store.note_process(name, "web", **{"slots": 4, "busy": 0, "tools": "abc", **changes})


def begin(*names: str, **changes: Any) -> None:
    """Processes that began one second after the other, from now on."""
    for second, name in enumerate(names):
        note(name, tools=changes[name.replace(":", "")])
        Process.objects.filter(pk=name).update(started_at=current("default") + timedelta(seconds=second))


def test_a_process_is_one_row_however_often_it_is_heard_of() -> None:
    note(busy=1)
    first = Process.objects.get()
    note(busy=2)
    again = Process.objects.get()
    assert (again.started_at, again.busy, again.slots, again.tools_hash) == (first.started_at, 2, 4, "abc")
    assert again.seen_at >= first.seen_at


def test_a_process_says_which_tasks_it_takes_where_it_does_not_take_all() -> None:
    note()
    assert processes.only_tools(Process.objects.get()) is None
    note(only=("send", "book"))
    assert processes.only_tools(Process.objects.get()) == ["send", "book"]


def test_a_process_that_ends_in_good_order_is_not_missed() -> None:
    note()
    store.forget_process("host:1")
    assert not Process.objects.exists()


def test_only_who_was_heard_of_lately_is_alive() -> None:
    note("host:1")
    note("host:2")
    Process.objects.filter(pk="host:1").update(seen_at=current("default") - timedelta(seconds=61))
    assert [process.name for process in processes.alive(60)] == ["host:2"]


def test_a_process_is_outdated_while_a_later_one_lives_that_knows_other_tools() -> None:
    begin("host:1", host1="old")
    assert not store.is_outdated("host:1", "old")
    begin("host:1", "host:2", host1="old", host2="old")
    assert not store.is_outdated("host:1", "old"), "it knows the same"
    begin("host:1", "host:2", "host:3", host1="old", host2="old", host3="new")
    assert store.is_outdated("host:1", "old")
    assert not store.is_outdated("host:3", "new"), "the newest decides"
    Process.objects.filter(pk="host:3").update(seen_at=current("default") - timedelta(seconds=61))
    assert not store.is_outdated("host:1", "old"), "it is gone"


def test_a_janitor_and_a_process_without_a_row_make_nobody_outdated() -> None:
    note("host:1", tools="old")
    sweep(store)
    assert not store.is_outdated("host:1", "old")
    note("host:2", tools="new")
    assert not store.is_outdated("host:9", "old")
    assert not MemoryTaskStore().is_outdated("host:1", "old")


def test_who_was_not_heard_of_for_a_day_is_forgotten() -> None:
    note("host:1")
    note("host:2")
    Process.objects.filter(pk="host:1").update(seen_at=current("default") - timedelta(days=1, seconds=1))
    store.tidy()
    assert [process.name for process in Process.objects.all()] == ["host:2"]


def test_a_sweep_notes_that_the_janitor_ran() -> None:
    sweep(store)
    janitor = Process.objects.get()
    assert (janitor.kind, janitor.name) == ("janitor", processes.janitor_name())
    sweep(store)
    assert Process.objects.count() == 1


def test_a_store_without_operators_notes_nothing_and_sweeps_all_the_same() -> None:
    report = sweep(MemoryTaskStore())
    assert report.errors == []
    assert not Process.objects.exists()
