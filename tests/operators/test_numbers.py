"""The numbers of operators: a task is counted in one state, and in the hour in which it ended, rolled up or not."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F

from mcp_tasks.dbtime import current
from mcp_tasks.models import Task, TaskStat
from mcp_tasks.operators import numbers
from mcp_tasks.operators.states import FILTERS, state_of
from mcp_tasks.store import DatabaseTaskStore, rollups
from mcp_tasks.testing import rewind
from tests.store.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

store = DatabaseTaskStore()
ASK: dict[str, Any] = {"ok": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}}


def created(**options: Any) -> UUID:
    return store.create_task("report", {}, **options).ref


def running() -> UUID:
    ref = created(max_attempts=3)
    assert store.claim(ref, holder="here:1")
    return ref


def stalled() -> UUID:
    ref = running()
    rewind(ref, 61)
    return ref


def parked() -> UUID:
    ref = running()
    assert store.require_input(ref, ASK, leg=1)
    return ref


def asking_live() -> UUID:
    ref = running()
    assert store.require_input(ref, ASK, leg=1, live=True)
    return ref


def ended(how: str = "completed", hours_ago: float = 0) -> UUID:
    ref = running()
    if how == "cancelled":
        store.cancel_task(ref)
        store.let_go(ref, 1)
    else:
        store.complete_task(ref, {"content": [], "isError": how == "tool-error"}, leg=1)
    rewind(ref, hours_ago * 3600)
    return ref


def stopping() -> UUID:
    ref = running()
    store.cancel_task(ref)
    return ref


def expired() -> UUID:
    ref = created(ttl_ms=60_000)
    rewind(ref, 61)
    store.expire()
    return ref


STATES = {
    "queued": created,
    "running": running,
    "needs-input": parked,
    "stalled": stalled,
    "completed": ended,
    "tool-error": lambda: ended("tool-error"),
    "cancelled": lambda: ended("cancelled"),
    "expired": expired,
}


@pytest.mark.parametrize("name", STATES)
def test_a_filter_finds_the_rows_of_its_state_and_no_others(name: str) -> None:
    refs = {state: make() for state, make in STATES.items()}
    found = list(Task.objects.filter(FILTERS[name][1]()))
    assert [task.pk for task in found] == [refs[name]]
    assert state_of(found[0], current(connection.alias)).name == name


def test_a_task_that_asks_while_it_runs_needs_input() -> None:
    ref = asking_live()
    assert Task.objects.filter(FILTERS["needs-input"][1]()).get().pk == ref
    assert state_of(Task.objects.get(), current(connection.alias)).name == "needs-input"


def test_a_worker_that_holds_a_cancelled_task_is_still_stopping_for_one_lease() -> None:
    ref = stopping()
    ended("cancelled")
    assert Task.objects.filter(FILTERS["stopping"][1]()).get().pk == ref
    rewind(ref, 61)
    assert not Task.objects.filter(FILTERS["stopping"][1]()).exists()


def test_live_tasks_are_counted_once_each() -> None:
    for make in STATES.values():
        make()
    asking_live()
    soon = created()
    store.set_ttl(soon, 300_000)
    with counted() as statements:
        live = numbers.live()
    assert len(statements) == 1
    assert (live.queued, live.running, live.needs_input, live.stalled) == (2, 1, 2, 1)
    assert live.expire_soon == 1
    assert live.oldest_queued_at is not None
    assert live.oldest_input_at is not None


@pytest.mark.parametrize("make", [created, running, parked, stalled, ended])
def test_what_is_past_its_ttl_is_nowhere_any_more_swept_or_not(make: Any) -> None:
    ref = make()
    Task.objects.filter(pk=ref).update(ttl_ms=1, expires_at=F("created_at"))
    assert state_of(Task.objects.get(), current(connection.alias)).name == "expired"
    everything = Task.objects.all()
    assert numbers.live() == numbers.Live()
    assert numbers.busiest_owners(everything, 5) == []
    assert not numbers.longest_queued(everything).exists()
    assert not numbers.longest_stalled(everything).exists()
    assert [name for name, (_word, rows) in FILTERS.items() if everything.filter(rows()).exists()] == []


def test_nothing_waits_where_there_is_nothing() -> None:
    assert numbers.live() == numbers.Live()


def test_what_ended_is_in_its_hour_before_and_after_it_was_counted() -> None:
    ended(hours_ago=0)
    ended("tool-error", hours_ago=2)
    ended("cancelled", hours_ago=30)
    now = current(connection.alias)
    before = numbers.history(now)
    rollups.roll_up()
    assert TaskStat.objects.exclude(tool="").exists()
    after = numbers.history(now)
    for found in (before, after):
        assert len(found.hours) == 24
        assert {hour for hour, ended in found.hours.items() if ended.count} == {
            (now - timedelta(hours=back)).replace(minute=0, second=0, microsecond=0) for back in (0, 2)
        }
        assert (found.total.count, found.tools["report"].count) == (2, 2)
        assert found.total.failed_share == 0.5


def test_the_history_takes_two_statements_however_much_there_is() -> None:
    for _ in range(3):
        ended(hours_ago=5)
    rollups.roll_up()
    with counted() as statements:
        numbers.history(current(connection.alias))
    assert len(statements) - 1 == 2  # one of them asked the database for the time


@pytest.mark.parametrize(
    ("buckets", "share", "seconds"),
    [
        ([0] * 12, 0.5, None),
        ([10] + [0] * 11, 0.5, 0.05),
        ([0, 10] + [0] * 10, 1.0, 0.25),
        ([5, 0, 0, 5] + [0] * 8, 0.5, 0.1),
        ([0] * 11 + [3], 0.95, 1800.0),
    ],
)
def test_a_percentile_is_taken_from_inside_its_bucket(buckets: list[int], share: float, seconds: float | None) -> None:
    found = numbers.percentile_seconds(buckets, share)
    assert found == (None if seconds is None else pytest.approx(seconds))
