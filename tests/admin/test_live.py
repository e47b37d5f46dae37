"""``live.json``: what an open list learns, and who may ask."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mcp_tasks.models import Task

from .rows import SECRET, add, add_many, add_one_of_each

pytestmark = pytest.mark.django_db

LIVE = "/admin/mcp_tasks/task/live.json"


def ask(client: Client, *refs: Any, ago: float = 0, **filters: str) -> dict[str, Any]:
    """What the server says of rows, and of those that are newer than so many seconds."""
    since = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()
    parameters = {"refs": ",".join(str(ref) for ref in refs), "since": since, **filters}
    answer = client.get(LIVE, parameters)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    found: dict[str, Any] = answer.json()
    return found


def test_rows_are_told_in_the_words_of_the_list(superuser: Client) -> None:
    ref = add("running", progress_done=1, progress_total=4, status_message="Reading", revision=7, expires_at=120)
    told = ask(superuser, ref)["tasks"][str(ref)]
    assert told == {
        "revision": 7,
        "state": "running",
        "glyph": "▶",
        "word": "Running",
        "note": "web-3:654 · 1/3",
        "percent": 25,
        "amount": "25 %",
        "message": "Reading",
        "age": told["age"],
        "left": told["left"],
        "short": True,
    }


def test_a_change_is_told_with_the_next_question(superuser: Client) -> None:
    ref = add("running")
    assert ask(superuser, ref)["tasks"][str(ref)]["state"] == "running"
    Task.objects.filter(pk=ref).update(
        phase="done", status="completed", result_json="{}", due_at=None, finished_at=datetime.now(UTC)
    )
    assert ask(superuser, ref)["tasks"][str(ref)]["word"] == "Completed"


def test_a_row_that_is_gone_is_left_out(superuser: Client) -> None:
    ref, gone = add(), add()
    Task.objects.filter(pk=gone).delete()
    assert list(ask(superuser, ref, gone)["tasks"]) == [str(ref)]


def test_newer_rows_that_match_the_filters_are_counted_up_to_a_bound(superuser: Client) -> None:
    shown = add("queued", age=300)
    add_many(20, tool="many")
    add("queued", age=1, tool="one")
    assert ask(superuser, shown, ago=200)["newer"] == 21
    assert ask(superuser, shown, ago=200, state="queued")["newer"] == 3
    assert ask(superuser, shown, ago=200, tool="one")["newer"] == 1
    assert ask(superuser, ago=200)["newer"] == 21
    assert ask(superuser, shown)["newer"] == 0
    add_many(150)
    assert ask(superuser, shown, ago=200)["newer"] == 99


def test_nothing_that_a_client_sent_is_in_it(superuser: Client) -> None:
    refs = add_one_of_each().values()
    assert SECRET not in str(ask(superuser, *refs))


@pytest.mark.parametrize("rows", [10, 1000])
def test_it_takes_three_statements(superuser: Client, operator: Callable[..., Client], rows: int) -> None:
    add_many(rows)
    refs = list(Task.objects.values_list("pk", flat=True)[:50])
    for client, expected in ((superuser, 3), (operator("view_task"), 5)):
        with CaptureQueriesContext(connection) as seen:
            ask(client, *refs, ago=100, state="live")
        assert len(seen) == expected
        assert not any("_json" in query["sql"] for query in seen.captured_queries)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"since": "yesterday"},
        {"since": "2026-01-01T00:00:00"},
        {"since": "2026-13-01T00:00:00Z"},
        {"since": "0001-01-01T00:00:00+14:00"},
        {"since": "2026-01-01T00:00:00Z", "refs": "1"},
        {"since": "2026-01-01T00:00:00Z", "state": "nonsense"},
        {"since": "2026-01-01T00:00:00Z", "colour": "red"},
        {"since": "2026-01-01T00:00:00Z", "refs": ",".join(["0bda41da-0000-4000-8000-000000000000"] * 101)},
    ],
)
def test_what_no_list_would_ask_is_refused(superuser: Client, parameters: dict[str, str]) -> None:
    assert superuser.get(LIVE, parameters).status_code == 400


def test_who_may_not_view_is_told_nothing(operator: Callable[..., Client]) -> None:
    parameters = {"since": datetime.now(UTC).isoformat(), "refs": str(add())}
    assert operator("cancel_task").get(LIVE, parameters).status_code == 403
    answer = Client().get(LIVE, parameters)
    assert answer.status_code == 302
    assert "/login/" in answer["Location"]


def test_the_policy_hides_rows_and_their_number(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": "tests.admin.test_list.OnlyAlice"})
    mine, other = add(), add(owner_label="bob")
    found = ask(superuser, mine, other, ago=100)
    assert list(found["tasks"]) == [str(mine)]
    assert found["newer"] == 1
