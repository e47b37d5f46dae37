"""The mail that Django sends to ADMINS about an error: it carries no id of a task, which would let its reader in."""

from collections.abc import Callable
from typing import Any

import django
import pytest
from django.core import mail
from django.test import Client, RequestFactory
from django.views.debug import ExceptionReporter, SafeExceptionReporterFilter, get_exception_reporter_filter

from mcp_tasks.store import CreatedTask, DatabaseTaskStore
from mcp_tasks.transports.http import view
from mcp_tasks.transports.http.checks import Refused
from mcp_tasks.transports.reports import hide_capabilities
from tests.support.adapters import Wire

from .requests import draft

MakeTask = Callable[..., CreatedTask]


@pytest.fixture(autouse=True)
def _admins(settings: Any) -> None:
    # Django 6 wants addresses, Django 5.2 pairs.
    settings.ADMINS = ["admin@example.com"] if django.VERSION >= (6,) else [("Admin", "admin@example.com")]


def reported(task_id: str) -> str:
    (message,) = mail.outbox
    text = f"{message.subject}\n{message.body}\n{message.alternatives}"
    assert "REQUEST_METHOD" in text, "it is the report of a request"
    assert task_id not in text
    return text


@pytest.mark.parametrize("adapter", ["view-wsgi", "view-asgi"])
def test_a_failure_of_the_endpoint_is_reported_without_the_id(
    adapter: str, task: MakeTask, token: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = task()
    request = draft("tasks/get", {"taskId": made.task_id})
    headers = {**request.headers, "Mcp-Name": made.task_id, "Authorization": f"Bearer {token('alice')}"}
    monkeypatch.setattr(view, "receive", lambda *given: Refused(500, "Internal error"))
    assert Wire(adapter).send(request.text, headers).status == 500
    assert "HTTP_MCP_NAME" in reported(made.task_id)


def test_a_failure_of_the_owners_addresses_is_reported_without_the_id(
    task: MakeTask, token: Callable[[str], str], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = task()
    shown = {"Authorization": f"Bearer {token('alice')}", "Mcp-Task-Id": made.task_id}
    settings.ROOT_URLCONF = "tests.rest.urls"

    def away(self: Any, *given: Any, **more: Any) -> None:
        raise ConnectionError("the store is away")

    monkeypatch.setattr(DatabaseTaskStore, "resolve", away)
    assert Client().get(f"/api/tasks/{made.ref}/", headers=shown).status_code == 500
    reports = [message for message in mail.outbox if "REQUEST_METHOD" in message.body]
    assert reports
    for message in mail.outbox:
        assert made.task_id not in message.body
    assert "HTTP_MCP_TASK_ID" in reports[0].body


class Own(SafeExceptionReporterFilter):
    """A project's own filter."""

    cleansed_substitute = "(ours)"


def test_the_projects_own_filter_goes_on_to_hide_what_it_hides() -> None:
    request = RequestFactory().get("/mcp", headers={"Mcp-Name": "ID", "Authorization": "CREDENTIAL"})
    request.exception_reporter_filter = Own()  # type: ignore[attr-defined]
    hide_capabilities(request)
    meta = get_exception_reporter_filter(request).get_safe_request_meta(request)
    assert (meta["HTTP_MCP_NAME"], meta["HTTP_AUTHORIZATION"]) == ("(ours)", "(ours)")
    assert meta["REQUEST_METHOD"] == "GET"
    text = ExceptionReporter(request, None, None, None).get_traceback_text()
    assert "CREDENTIAL" not in text
    assert "'ID'" not in text
