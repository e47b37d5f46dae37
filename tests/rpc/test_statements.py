"""How many statements a request costs. Each is a round trip to the database, so each has to be meant."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.authtoken.models import Token

from mcp_tasks.testing import run_until_idle
from mcp_tasks.testing.client import McpClient
from tests.support.adapters import make_client

YES = {"approval": {"action": "accept", "content": {"approve": True}}}
KEY = "django-mcp-tasks/idempotencyKey"
_TRANSACTION = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")


@pytest.fixture
def client(transactional_db: None, token: Callable[[str], str]) -> McpClient:
    """A caller with a token, through the view under WSGI: it works on the test's own connection."""
    client = make_client("view-wsgi", token=token("alice"))
    client.cancel_task(create(client))  # makes what each owner needs once
    return client


def create(client: McpClient, **meta: Any) -> str:
    params = {"name": "approve", "arguments": {"service": "web"}}
    task_id: str = client.request("tools/call", params, **meta)["taskId"]
    return task_id


def cost(call: Callable[[], Any]) -> list[str]:
    """Verb and table of each statement that a request costs, beside the one that authenticates the caller."""
    with CaptureQueriesContext(connection) as captured:
        call()
    texts = [query["sql"] for query in captured if not query["sql"].startswith(_TRANSACTION)]
    own = [text for text in texts if "authtoken_token" not in text]
    assert len(texts) - len(own) == 1
    return [f"{text.split()[0]} {_table(text)}" for text in own]


def _table(text: str) -> str:
    named = set(re.findall(r'"mcp_tasks_(\w+?)"', text))
    return "ownergate" if "ownergate" in named else min(named, key=text.index)  # its statement counts tasks on the way


def locking() -> list[str]:
    """What it costs to lock a row: SQLite has no row locks, so a write that changes nothing comes first."""
    return ["UPDATE task", "SELECT task"] if connection.vendor == "sqlite" else ["SELECT task"]


def test_a_poll_costs_one_statement_whatever_the_task_does(client: McpClient) -> None:
    task_id = create(client)
    assert cost(lambda: client.get_task(task_id)) == ["SELECT task"]
    run_until_idle()
    assert cost(lambda: client.get_task(task_id)) == ["SELECT task"]
    client.update_task(task_id, YES)
    run_until_idle()
    assert cost(lambda: client.get_task(task_id)) == ["SELECT task"]


def test_a_creation_costs_four_statements(client: McpClient) -> None:
    expected = ["UPDATE ownergate", "SELECT ownergate", "INSERT task", "INSERT taskevent"]
    assert cost(lambda: create(client)) == expected


def test_a_key_costs_one_more_and_spares_the_rest_the_second_time(client: McpClient) -> None:
    expected = ["UPDATE ownergate", "SELECT task", "SELECT ownergate", "INSERT task", "INSERT taskevent"]
    assert cost(lambda: create(client, **{KEY: "k"})) == expected
    assert cost(lambda: create(client, **{KEY: "k"})) == expected[:2]


def test_an_answer_costs_a_lock_the_questions_and_what_it_changes(client: McpClient) -> None:
    task_id = create(client)
    run_until_idle()
    looked = ["SELECT task", *locking(), "SELECT taskinput"]
    assert cost(lambda: client.update_task(task_id, {"other": {}})) == looked
    assert cost(lambda: client.update_task(task_id, YES)) == [
        *looked,
        "UPDATE taskinput",
        "UPDATE task",
        "INSERT taskevent",
    ]
    assert cost(lambda: client.update_task(task_id, YES)) == ["SELECT task", *locking()]


def test_a_cancellation_costs_five_statements(client: McpClient) -> None:
    task_id = create(client)
    assert cost(lambda: client.cancel_task(task_id)) == [
        "SELECT task",
        "UPDATE task",
        "UPDATE taskinput",
        "INSERT taskevent",
        "SELECT task",
    ]


def test_what_cannot_name_a_task_costs_nothing_and_a_stranger_no_more_than_a_guess(client: McpClient) -> None:
    def poll(task_id: str) -> list[str]:
        return cost(lambda: client.post(client.envelope("tasks/get", {"taskId": task_id})))

    foreign = create(make_client("view-wsgi", token=_token_of("bob")))
    assert poll("x") == poll("x" * 44) == poll("x\x00") == []
    assert poll("x" * 43) == poll(foreign) == ["SELECT task", "SELECT task"]


def _token_of(name: str) -> str:
    user = User.objects.create_user(name)
    return str(Token.objects.create(user=user).key)


def test_what_needs_no_task_costs_nothing(client: McpClient) -> None:
    assert cost(lambda: client.request("server/discover")) == []
    assert cost(lambda: client.request("tools/list")) == []
    assert cost(lambda: client.call_tool("add", {"a": 1, "b": 2})) == []
    assert cost(lambda: client.call_tool("approve", {"service": 5})) == []
