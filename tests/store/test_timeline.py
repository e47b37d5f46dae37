"""What the timeline says beside the transitions: work that came too late, and callers who named a task of others."""

import json
from typing import Any

import pytest

from mcp_tasks.access import refusals
from mcp_tasks.models import TaskEvent
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.types import Missing, Owner
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)

store = DatabaseTaskStore()
ALICE, BOB = Owner(("issuer", "alice")), Owner(("issuer", "bob"))
RESULT: dict[str, Any] = {"content": []}


def events(kind: str) -> list[dict[str, Any]]:
    return [
        json.loads(detail)
        for detail in TaskEvent.objects.filter(kind=kind).order_by("id").values_list("detail", flat=True)
    ]


@pytest.fixture(autouse=True)
def _counted_anew() -> Any:
    refusals.settle(5)
    yield
    refusals.settle(5)


def test_a_result_that_comes_after_a_cancel_is_in_the_timeline() -> None:
    ref = store.create_task("report", {}).ref
    store.claim(ref)
    store.cancel_task(ref)
    assert not store.complete_task(ref, RESULT, leg=1)
    assert events("late_result") == [{"outcome": "completed", "why": "terminal"}]


def test_an_error_of_a_leg_that_was_taken_away_is_in_the_timeline() -> None:
    ref = store.create_task("report", {}, max_attempts=3).ref
    store.claim(ref)
    rewind(ref, 61)
    store.recover()
    assert not store.fail_task(ref, McpError(-32603, "too late"), leg=1)
    assert events("late_result") == [{"outcome": "failed", "why": "fenced"}]


def test_a_second_outcome_of_server_code_is_no_event() -> None:
    ref = store.create_task("report", {}).ref
    store.complete_task(ref, RESULT)
    assert not store.complete_task(ref, RESULT)
    assert events("late_result") == []


def test_a_caller_who_names_a_task_of_another_is_noted_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = store.create_task("report", {}, owner=ALICE).task_id
    for _ in range(3):
        assert store.resolve(task_id, BOB) == Missing()
    refusals._pool.end(5)
    assert events("access_refused") == [{"count": 1}]
    monkeypatch.setattr(refusals, "EVERY_SECONDS", 0.0)
    store.resolve(task_id, None)
    refusals._pool.end(5)
    assert events("access_refused") == [{"count": 1}, {"count": 3}]


def test_an_id_that_names_nothing_and_the_owner_are_not_noted() -> None:
    task_id = store.create_task("report", {}, owner=ALICE).task_id
    store.resolve(task_id, ALICE)
    store.resolve("x" * 43, BOB)
    refusals.settle(5)
    assert events("access_refused") == []


def test_a_listen_for_tasks_of_others_is_noted_too() -> None:
    task_id = store.create_task("report", {}, owner=ALICE).task_id
    assert store.owned_refs([task_id], BOB) == {}
    refusals.settle(5)
    assert events("access_refused") == [{"count": 1}]
