"""Cancelling many: oldest first, nothing that came later, and what others did meanwhile is counted."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mcp_tasks.dbtime import current
from mcp_tasks.models import Task
from mcp_tasks.operators import bulk
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)

store = DatabaseTaskStore()
WHO: dict[str, Any] = {"actor": "operator:1", "reason": "They ran away"}


def created(seconds_ago: float = 0) -> UUID:
    ref = store.create_task("report", {}).ref
    rewind(ref, seconds_ago)
    return ref


def test_live_tasks_are_found_oldest_first_and_none_that_came_later() -> None:
    young, old = created(10), created(20)
    store.complete_task(created(30), {"content": []})
    as_of = current("default")
    Task.objects.filter(pk=created()).update(created_at=as_of + timedelta(seconds=1))
    assert [task.pk for task in bulk.cancellable(Task.objects.all(), as_of)] == [old, young]


def test_a_task_of_exactly_that_moment_belongs_to_it_also_where_it_is_a_whole_second() -> None:
    ref = created()
    moment = current("default").replace(microsecond=0)
    Task.objects.filter(pk=ref).update(created_at=moment)
    assert bulk.cancellable(Task.objects.all(), moment).get().pk == ref


def test_what_became_of_each_is_counted() -> None:
    running, finished, gone = created(), created(), created()
    store.complete_task(finished, {"content": []})
    store.discard_task(gone)
    report = bulk.cancel_all([running, finished, gone], **WHO)
    assert (report.cancelled, report.finished_meanwhile, report.refused, report.more) == ([running], 2, 0, False)


def test_when_time_is_up_the_rest_is_left_and_said_so() -> None:
    refs = [created(), created()]
    report = bulk.cancel_all(refs, **WHO, most_seconds=0)
    assert (report.cancelled, report.more) == ([], True)
    assert {task.status for task in Task.objects.all()} == {"working"}
