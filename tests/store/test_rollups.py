"""Hourly counts: every task that ended is counted once, whenever it was removed, and only once its hour is over."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from mcp_tasks.dbtime import current
from mcp_tasks.models import Task, TaskStat
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import DatabaseTaskStore, rollups
from mcp_tasks.testing import rewind

from .statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

RESULT: dict[str, Any] = {"content": []}
HOUR = 3600.0

store = DatabaseTaskStore()


def ended(how: str = "completed", *, tool: str = "report", hours_ago: float = 3.0, run_ms: int = 700) -> UUID:
    ref = store.create_task(tool, {}, ttl_ms=86_400_000).ref
    store.claim(ref)
    if how == "expired":
        assert store.set_ttl(ref, 1)
        rewind(ref, 2)
        assert store.expire().expired == 1
    elif how == "failed":
        store.fail_task(ref, McpError(-32603, "no"), leg=1)
    elif how == "cancelled":
        store.cancel_task(ref)
    else:
        store.complete_task(ref, {**RESULT, "isError": how == "tool_error"}, leg=1)
    rewind(ref, hours_ago * HOUR)
    Task.objects.filter(pk=ref).update(run_ms=run_ms, queue_ms=40)
    return ref


def counts() -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for row in TaskStat.objects.exclude(tool="").values("tool", "outcome", "count"):
        found[row["tool"], row["outcome"]] += row["count"]
    return found


@pytest.mark.parametrize("outcome", ["completed", "tool_error", "failed", "cancelled", "expired"])
def test_each_way_to_end_is_counted_by_its_name(outcome: str) -> None:
    ended(outcome)
    assert rollups.roll_up() >= 1
    assert counts() == {("report", outcome): 1}


def test_an_hour_is_not_counted_before_it_is_over_and_settled() -> None:
    ref = ended(hours_ago=0)
    now = current("default")
    for finished_at in (now, now.replace(minute=0, second=0, microsecond=0)):
        Task.objects.filter(pk=ref).update(finished_at=finished_at)
        assert rollups.roll_up() == 0
    assert counts() == {}


def test_hours_without_a_task_are_counted_as_empty_and_not_again() -> None:
    ended(hours_ago=5)
    ended(hours_ago=2)
    assert rollups.roll_up() >= 3
    assert counts() == {("report", "completed"): 2}
    assert rollups.roll_up() == 0
    with counted() as statements:
        rollups.roll_up()
    assert len(statements) <= 2  # the clock and the mark: nothing is written where no hour is due


def test_counting_twice_counts_once() -> None:
    for _ in range(3):
        ended()
    rollups.roll_up()
    before = list(TaskStat.objects.order_by("pk").values())
    rollups.roll_up()
    assert list(TaskStat.objects.order_by("pk").values()) == before


def test_a_task_that_is_purged_before_its_hour_is_counted_is_counted_as_it_goes(settings: Any) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "MAX_TTL_MS": None, "RETENTION_SECONDS": 0}
    ref = store.create_task("report", {}, ttl_ms=None).ref
    store.complete_task(ref, RESULT)
    assert store.purge().purged == 1
    assert counts() == {("report", "completed"): 1}
    assert TaskStat.objects.get().early


def test_the_hour_takes_in_what_was_counted_early() -> None:
    kept, removed = ended(hours_ago=3), ended(hours_ago=3)
    Task.objects.filter(pk=removed).update(finished_at=Task.objects.get(pk=kept).finished_at)
    assert store.delete_terminal(removed, actor="operator:1", reason="Not needed")
    assert counts() == {("report", "completed"): 1}
    rollups.roll_up()
    assert counts() == {("report", "completed"): 2}
    assert not TaskStat.objects.filter(early=True).exists()


def test_a_task_that_goes_after_its_hour_was_counted_is_not_counted_again() -> None:
    ref = ended()
    rollups.roll_up()
    assert store.delete_terminal(ref, actor="operator:1", reason="Not needed")
    assert counts() == {("report", "completed"): 1}


@pytest.mark.parametrize(
    ("run_ms", "bucket"), [(0, 0), (100, 0), (101, 1), (1000, 3), (60_000, 8), (1_800_000, 10), (1_800_001, 11)]
)
def test_a_running_time_falls_into_the_bucket_of_its_bound(run_ms: int, bucket: int) -> None:
    ended(run_ms=run_ms)
    rollups.roll_up()
    stat = TaskStat.objects.exclude(tool="").get()
    assert [getattr(stat, f"b{index}") for index in range(12)] == [int(index == bucket) for index in range(12)]
    assert (stat.run_ms_sum, stat.queue_ms_sum) == (run_ms, 40)


def test_tools_are_counted_apart() -> None:
    ended(tool="a")
    ended(tool="a")
    ended(tool="b")
    rollups.roll_up()
    assert counts() == {("a", "completed"): 2, ("b", "completed"): 1}


def test_old_counts_are_forgotten() -> None:
    long_ago = datetime.now(UTC) - timedelta(days=rollups.KEPT_DAYS + 1)
    TaskStat.objects.create(hour=long_ago, tool="report", outcome="completed")
    assert rollups.forget() == 1


def test_the_clock_is_the_databases() -> None:
    assert abs((current("default") - datetime.now(UTC)).total_seconds()) < 60
    assert current(connection.alias).tzinfo is not None
