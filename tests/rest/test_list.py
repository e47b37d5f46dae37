"""The list: filters that ignore nothing, pages by cursor, and what they cost."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client

from mcp_tasks.models import Task
from mcp_tasks.operators.states import FILTERS
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.testing import rewind
from tests.store.statements import WHOLE_TABLE, counted, planned

from .api import Answer, Api, at
from .conftest import ALICE, Tasks, row, user

pytestmark = pytest.mark.django_db

WRONG = (400, "invalid_filter")


@pytest.fixture
def api(staff: Callable[..., Api]) -> Api:
    return staff("view_task")


def refs(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [item["ref"] for item in answer.json["results"]]


def pages(api: Api, **query: Any) -> list[list[str]]:
    found, cursor = [], None
    while True:
        answer = api.get("operator/tasks/", **query, **({} if cursor is None else {"cursor": cursor}))
        found.append(refs(answer))
        cursor = answer.json["next_cursor"]
        if cursor is None:
            return found


def many(number: int, **values: Any) -> list[UUID]:
    """Rows of finished tasks, four of each moment, the last the newest."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        Task(
            ref=uuid4(),
            method="tools/call",
            tool="echo",
            status="cancelled",
            phase="done",
            created_at=start + timedelta(milliseconds=250 * (index // 4)),
            updated_at=start,
            phase_at=start,
            finished_at=start,
            poll_interval_ms=1000,
            **values,
        )
        for index in range(number)
    ]
    Task.objects.bulk_create(rows)
    return [row.ref for row in sorted(rows, key=lambda row: (row.created_at, row.ref.hex))]


# -- one row ------------------------------------------------------------------------------------------------------


def test_a_row_says_what_operators_need_and_nothing_of_the_payload(api: Api, tasks: Tasks) -> None:
    made = tasks.made(arguments={"text": "a secret of the client"})
    tasks.store.claim(made.ref, holder="web-1:7")
    tasks.store.set_status(made.ref, "halfway", done=1, total=2, leg=1)
    task = row(made.ref)
    answer = api.get("operator/tasks/")
    assert answer.json == {
        "results": [
            {
                "ref": str(made.ref),
                "tool": "echo",
                "state": "running",
                "status": "working",
                "phase": "running",
                "is_still_stopping": False,
                "owner": {"key": ALICE.key, "label": "alice@example.com"},
                "worker": "web-1:7",
                "attempts": 1,
                "max_attempts": task.max_attempts,
                "progress": {"done": 1.0, "total": 2.0},
                "status_message": "halfway",
                "revision": task.revision,
                "created_at": at(task.created_at),
                "updated_at": at(task.updated_at),
                "started_at": at(task.started_at),
                "finished_at": None,
                "expires_at": at(task.expires_at),
            }
        ],
        "next_cursor": None,
    }
    assert b"secret" not in answer.body
    assert made.task_id.encode() not in answer.body


def test_a_task_of_nobody_has_no_owner(api: Api, tasks: Tasks) -> None:
    tasks.queued(owner=None)
    assert api.get("operator/tasks/").json["results"][0]["owner"] is None


@pytest.mark.parametrize("path", ["operator/tasks/", "operator/tasks/{ref}/"])
def test_the_message_of_a_failed_task_is_read_with_its_payloads_and_never_a_secret(
    staff: Callable[..., Api], tasks: Tasks, path: str
) -> None:
    viewer, reader = staff("view_task"), staff("view_task", "view_task_payload", name="reader")

    def message(api: Api) -> Any:
        found = api.get(path.format(ref=ref)).json
        return (found["results"][0] if "results" in found else found)["status_message"]

    ref = tasks.running()
    assert tasks.store.fail_task(ref, McpError(-32000, "no such region"), leg=1)
    assert message(viewer) == "You may not read the text of its error."
    assert message(reader) == "no such region"
    ref = tasks.running()
    assert tasks.store.set_status(ref, "upstream said Authorization: Bearer eyJhbGciOi", leg=1)
    assert message(viewer) == message(reader) == "••• masked •••"


def test_the_message_is_over_with_its_task_swept_or_not(api: Api, tasks: Tasks) -> None:
    ref = tasks.running(ttl_ms=10_000)
    assert tasks.store.set_status(ref, "halfway", leg=1)
    rewind(ref, 11)
    assert row(ref).status_message == "halfway"
    for found in (api.get("operator/tasks/").json["results"][0], api.get(f"operator/tasks/{ref}/").json):
        assert (found["state"], found["status_message"]) == ("expired", None)


# -- filters ------------------------------------------------------------------------------------------------------


def test_each_state_finds_its_tasks(api: Api, tasks: Tasks) -> None:
    made = {
        "queued": tasks.queued(),
        "running": tasks.running(),
        "needs-input": tasks.parked(),
        "stalled": tasks.stalled(),
        "completed": tasks.completed(),
        "cancelled": tasks.cancelled(),
        "expired": tasks.expired(),
    }
    broken, stopping, odd = tasks.running(), tasks.running(), tasks.running()
    tasks.store.fail(broken, actor="operator:1", reason="no use")
    tasks.store.cancel_task(stopping)
    tasks.store.complete_task(odd, {"content": [], "isError": True}, leg=1)
    made |= {"failed": broken, "stopping": stopping, "tool-error": odd}
    found = {state: set(refs(api.get("operator/tasks/", state=state))) for state in FILTERS}
    expected = {state: {str(ref)} for state, ref in made.items()}
    expected["cancelled"].add(str(stopping))
    expected["live"] = {str(made[state]) for state in ("queued", "running", "needs-input", "stalled")}
    assert found == expected
    states = {item["ref"]: item["state"] for item in api.get("operator/tasks/").json["results"]}
    assert {state: states[str(ref)] for state, ref in made.items()} == {
        **{state: state for state in made},
        "stopping": "cancelled",
    }
    still = [item["ref"] for item in api.get("operator/tasks/").json["results"] if item["is_still_stopping"]]
    assert still == [str(stopping)]


def test_the_other_filters_and_all_of_them_together(api: Api, tasks: Tasks) -> None:
    echo, add, approve = tasks.queued(), tasks.queued(tool="add", owner=None), tasks.running(tool="approve")
    rewind(echo, 1800)

    def found(**query: Any) -> set[str]:
        return set(refs(api.get("operator/tasks/", **query)))

    old, new = at(row(echo).created_at), at(row(add).created_at - timedelta(seconds=60))
    assert found(tool="add") == {str(add)}
    assert found(tool=["add", "echo"]) == {str(add), str(echo)}
    assert found(tool="nothing") == set()
    assert found(owner=ALICE.key) == {str(echo), str(approve)}
    assert found(owner="anonymous") == {str(add)}
    assert found(worker="web-1:7") == {str(approve)}
    assert found(created_after=new) == {str(add), str(approve)}
    assert found(created_before=new) == {str(echo)}
    assert found(created_after=old, created_before=new) == {str(echo)}
    assert found(expires_before="2036-01-01T00:00:00Z") == {str(echo), str(add), str(approve)}
    assert found(expires_before=new) == set()
    assert found(state="live", tool=["echo", "add"], owner="anonymous", created_after=new, limit=10) == {str(add)}
    tasks.store.cancel_task(echo)
    assert found(expires_before="2036-01-01T00:00:00Z") == {str(add), str(approve)}


def test_times_may_have_any_zone(api: Api, tasks: Tasks) -> None:
    ref = tasks.queued()
    created = row(ref).created_at
    assert refs(api.get("operator/tasks/", created_after=(created - timedelta(hours=1)).isoformat())) == [str(ref)]
    before = (created + timedelta(hours=3)).replace(tzinfo=None).isoformat() + "+02:00"
    assert refs(api.get("operator/tasks/", created_before=before)) == [str(ref)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"stat": "queued"}, "stat"),
        ({"State": "queued"}, "State"),
        ({"page": "2"}, "page"),
        ({"format": "json"}, "format"),
        ({"state": "quue"}, "state"),
        ({"state": ""}, "state"),
        ({"state": ["queued", "running"]}, "state"),
        ({"tool": ""}, "tool"),
        ({"tool": ["echo"] * 51}, "tool"),
        ({"tool": "a\x00b"}, "tool"),
        ({"owner": "alice@example.com"}, "owner"),
        ({"owner": "A" * 64}, "owner"),
        ({"worker": "web\x00"}, "worker"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"created_after": "2026-01-31T12:00:00"}, "created_after"),
        ({"created_before": "2026-13-31T12:00:00Z"}, "created_before"),
        ({"created_before": "0001-01-01T00:00:00+14:00"}, "created_before"),
        ({"expires_before": "1769860800"}, "expires_before"),
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"limit": "\u0662"}, "limit"),
        ({"limit": "1" * 5000}, "limit"),
        ({"limit": ["5", "6"]}, "limit"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "!"}, "cursor"),
        ({"cursor": "é"}, "cursor"),
        ({"cursor": "YQ"}, "cursor"),
        ({"cursor": base64.urlsafe_b64encode(b"1.x").decode()}, "cursor"),
        ({"cursor": base64.urlsafe_b64encode(b"9" * 40 + b"." + b"0" * 32).decode()}, "cursor"),
        ({"cursor": base64.urlsafe_b64encode(b"7").decode()}, "cursor"),
        ({"cursor": base64.urlsafe_b64encode(b"253402300799999999." + b"0" * 32).decode()}, "cursor"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_named(api: Api, tasks: Tasks, query: dict[str, Any], field: str) -> None:
    tasks.queued()
    answer = api.get("operator/tasks/", **query)
    assert answer.said == WRONG
    assert answer.fields == [field]


def test_every_fault_is_named_at_once(api: Api) -> None:
    assert api.get("operator/tasks/", state="x", owner="y").fields == ["state", "owner"]
    assert api.get("operator/tasks/", stat="x", oner="y").fields == ["stat", "oner"]


# -- pages --------------------------------------------------------------------------------------------------------


def test_pages_hold_every_task_once_the_newest_first(api: Api) -> None:
    expected = [str(ref) for ref in reversed(many(23))]
    for limit in (1, 4, 5, 22, 23, 24, 200):
        found = pages(api, limit=limit)
        assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
        assert [ref for page in found for ref in page] == expected


def test_a_page_holds_fifty_unless_said(api: Api) -> None:
    many(51)
    assert [len(page) for page in pages(api)] == [50, 1]


def test_pages_stay_where_they_are_while_tasks_are_added(api: Api, tasks: Tasks) -> None:
    expected = [str(ref) for ref in reversed(many(12))]
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = api.get("operator/tasks/", limit=5, **cursor)
        found += refs(answer)
        if answer.json["next_cursor"] is None:
            break
        cursor = {"cursor": answer.json["next_cursor"]}
        tasks.queued()
    assert found == expected


def test_pages_keep_their_filter(api: Api, tasks: Tasks) -> None:
    wanted = [str(tasks.queued(tool="add")) for _ in range(5) if tasks.queued()]
    assert [ref for page in pages(api, limit=2, tool="add") for ref in page] == wanted[::-1]


def test_pages_of_several_tools_hold_every_task_once_the_newest_first(api: Api) -> None:
    refs_of_all = many(23)  # four of each moment
    for number, ref in enumerate(refs_of_all):
        Task.objects.filter(pk=ref).update(tool=("echo", "add", "other")[number % 3])
    ours = Task.objects.exclude(tool="other").order_by("-created_at", "-ref")
    wanted = [str(task.pk) for task in ours]
    for limit in (1, 3, 15, 16, 200):
        found = pages(api, limit=limit, tool=["add", "echo", "add", "nothing"])
        assert [ref for page in found for ref in page] == wanted


def test_tasks_of_whole_seconds_are_not_lost_between_pages(api: Api) -> None:
    # SQLite compares times as text, and Django writes a whole second without its zeros.
    expected = {str(ref) for ref in many(8)}
    now = "2026-01-01 00:00:00.000000" if connection.vendor == "sqlite" else "2026-01-01T00:00:00Z"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE mcp_tasks_task SET created_at = %s", [now])
    found = [ref for page in pages(api, limit=3) for ref in page]
    assert len(found) == 8
    assert set(found) == expected
    assert len(refs(api.get("operator/tasks/", created_after="2026-01-01T00:00:00Z"))) == 8
    assert refs(api.get("operator/tasks/", created_before="2026-01-01T00:00:00Z")) == []


# -- cost ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def browser() -> Api:
    """An operator with a session, which takes the most statements."""
    client = Client()
    client.force_login(user("clara", is_superuser=True))
    return Api(client=client)


def test_every_page_takes_three_statements_and_no_payload(browser: Api) -> None:
    many(305, arguments_json='{"text": "x"}')
    numbers, cursor = [], None
    while True:
        with counted() as statements:
            answer = browser.get("operator/tasks/", limit=5, **({} if cursor is None else {"cursor": cursor}))
        numbers.append(len(statements))
        assert not any("_json" in text or "traceback" in text or "COUNT(" in text for text in statements)
        cursor = answer.json["next_cursor"]
        if cursor is None:
            break
    assert numbers == [3] * 61


@pytest.mark.parametrize("query", [{}, *({"state": state} for state in FILTERS), {"tool": "echo"}, {"owner": "0" * 64}])
def test_every_filter_takes_three_statements_and_an_index(browser: Api, query: dict[str, str]) -> None:
    many(200, owner_key="0" * 64)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE mcp_tasks_task")
            cursor.execute("SET LOCAL enable_seqscan = off")
    with counted() as statements:
        browser.get("operator/tasks/", **query)
    assert len(statements) == 3
    with planned() as plans:
        browser.get("operator/tasks/", **query)
    assert WHOLE_TABLE not in plans[-1]
