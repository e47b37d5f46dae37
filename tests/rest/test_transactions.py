"""Under ``ATOMIC_REQUESTS``, and with many requests at one moment."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.db import connections

from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.store import get_store
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing.client import HttpAnswer, McpClient
from mcp_tasks.transports.rest import many
from mcp_tasks.transports.rest.urls import urlpatterns
from tests.support.adapters import exchange, scope_of

from .api import Answer, Api
from .conftest import Tasks, row


def at_once(*requests: Callable[[], Answer]) -> list[Answer]:
    """All of them at one moment, each on a thread with a connection of its own."""
    ready, answers = threading.Barrier(len(requests)), [None] * len(requests)

    def run(index: int, request: Callable[[], Answer]) -> None:
        ready.wait(10)
        try:
            answers[index] = request()  # type: ignore[call-overload]
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert None not in answers
    return answers  # type: ignore[return-value]


@pytest.fixture
def atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project that wraps every request in a transaction."""
    for alias in connections:
        monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)


def test_no_view_of_ours_runs_in_the_transaction_of_a_request() -> None:
    for it in urlpatterns:
        assert set(it.callback._non_atomic_requests) == set(connections), it.pattern


@pytest.mark.usefixtures("transactional_db", "atomic")
def test_what_is_acknowledged_is_stored_whatever_the_project_wraps(
    root: Api, tasks: Tasks, token: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert root.do("cancel", tasks.running()).status == 200
    assert root.do("fail", tasks.parked()).status == 200
    assert root.do("delete", tasks.completed()).status == 204
    left = tasks.queued()
    assert root.post("operator/bulk-cancel/", {"filter": {"state": "live"}, "reason": "for a test"}).status == 200
    assert row(left).status == "cancelled"
    client = McpClient.django(token=token("alice"))
    task_id = client.call_tool("echo", {"text": "x"})["taskId"]
    ref = ref_of(task_id)
    alice = Api(f"Bearer {token('alice')}")
    get_store().claim(ref)
    get_store().require_input(ref, {"a": {"method": "roots/list"}}, leg=1)
    headers = {"Mcp-Task-Id": task_id}
    answers = {"inputResponses": {"a": {"roots": []}}}
    assert alice.post(f"tasks/{ref}/answers/", answers, headers=headers).json["accepted"] == ["a"]
    assert row(ref).status == "working"
    assert alice.post(f"tasks/{ref}/cancel/", headers=headers).json["status"] == "cancelled"

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("after the deed")

    monkeypatch.setattr(many.audit, "enter", broken)
    last = tasks.queued()
    order = {"filter": {"state": "live"}, "reason": "for a test"}
    assert root.post("operator/bulk-cancel/", order).status == 500
    assert row(last).status == "cancelled"


@pytest.mark.usefixtures("transactional_db")
def test_an_asynchronous_server_serves_the_same(root: Api, tasks: Tasks) -> None:
    ref = tasks.running()
    headers = {**root._headers, "Content-Type": "application/json"}

    def send(method: str, path: str, body: bytes) -> HttpAnswer:
        scope = scope_of({**headers, "Content-Length": str(len(body))}, method=method, path=path)
        return exchange(ASGIHandler(), scope, [body])

    cancelled = send("POST", f"/api/operator/tasks/{ref}/cancel/", b'{"reason": "for a test"}')
    assert (cancelled.status, cancelled.messages()[0]["state"]) == (200, "cancelled")
    payload = send("GET", f"/api/operator/tasks/{ref}/payload/arguments/", b"")
    assert payload.messages() == [{"text": "x"}]
    assert send("GET", f"/api/tasks/{ref}/", b"").status == 401


@pytest.mark.usefixtures("transactional_db")
def test_of_many_cancellations_at_once_one_is_the_deed_and_all_are_told_so(root: Api, tasks: Tasks) -> None:
    ref = tasks.running()
    answers = at_once(*[lambda: root.do("cancel", ref)] * 6)
    assert [answer.status for answer in answers] == [200] * 6
    assert TaskEvent.objects.filter(task_id=ref, kind="cancelled").count() == 1


@pytest.mark.usefixtures("transactional_db")
def test_of_two_verbs_on_one_revision_one_is_done(root: Api, tasks: Tasks) -> None:
    for _ in range(4):
        ref = tasks.parked()
        revision = row(ref).revision
        first, second = at_once(
            lambda ref=ref, revision=revision: root.do("cancel", ref, revision=revision),
            lambda ref=ref, revision=revision: root.do("fail", ref, revision=revision),
        )
        assert sorted([first.status, second.status]) == [200, 409]
        assert {first.code, second.code} <= {None, "already_finished", "revision_conflict"}
        assert row(ref).status == ("cancelled" if first.status == 200 else "failed")


@pytest.mark.usefixtures("transactional_db")
def test_a_cancellation_and_an_outcome_at_once_end_in_one_of_them(root: Api, tasks: Tasks) -> None:
    def settle(ref: Any) -> Any:
        return get_store().complete_task(ref, Tasks.result, leg=1)

    for _ in range(4):
        ref = tasks.running()
        answer, outcome = at_once(lambda ref=ref: root.do("cancel", ref), lambda ref=ref: settle(ref))
        status = row(ref).status
        assert (answer.said, bool(outcome)) == (
            ((409, "already_finished"), True) if status == "completed" else ((200, None), False)
        )


@pytest.mark.usefixtures("transactional_db")
def test_bulk_cancels_at_once_share_the_tasks_between_them(root: Api, tasks: Tasks) -> None:
    refs = [tasks.queued() for _ in range(12)]
    order = {"filter": {"state": "queued"}, "reason": "for a test"}
    first, second = at_once(*[lambda: root.post("operator/bulk-cancel/", order)] * 2)
    found = [answer.json for answer in (first, second)]
    assert sum(it["cancelled"] for it in found) == len(refs)
    assert all(it["cancelled"] + it["finished_meanwhile"] <= len(refs) for it in found)
    assert set(Task.objects.values_list("status", flat=True)) == {"cancelled"}
    assert TaskEvent.objects.filter(kind="cancelled").count() == len(refs)


@pytest.mark.usefixtures("transactional_db")
def test_the_list_is_read_while_tasks_are_written(root: Api, tasks: Tasks) -> None:
    def write() -> Any:
        for _ in range(25):
            tasks.queued()
        return None

    def read() -> Any:
        return [root.get("operator/tasks/").status for _ in range(25)]

    found: list[Any] = []
    at_once(lambda: found.append(read()) or True, lambda: write() or True)  # type: ignore[arg-type, return-value, func-returns-value]
    assert found == [[200] * 25]
