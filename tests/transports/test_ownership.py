"""Whose tasks: strict equality of owners, and no difference between a foreign task and none."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token

from mcp_tasks.models import Task, TaskInput
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import McpClient, rewind, run_until_idle
from mcp_tasks.testing.client import HttpAnswer

YES = {"approval": {"action": "accept", "content": {"approve": True}}}


@pytest.fixture(autouse=True)
def _anonymous_too(configure: Callable[..., None]) -> None:
    configure(ALLOW_ANONYMOUS=True)


def parked(client: McpClient) -> str:
    task_id: str = client.call_tool("approve", {"service": "web"})["taskId"]
    run_until_idle()
    return task_id


def everything(client: McpClient, task_id: str, request_id: int = 7) -> list[tuple[int, bytes, dict[str, str]]]:
    """The answers to all three methods, byte by byte."""
    answers = []
    for method, params in (
        ("tasks/get", {}),
        ("tasks/update", {"inputResponses": YES}),
        ("tasks/cancel", {}),
    ):
        message = {**client.envelope(method, {"taskId": task_id, **params}), "id": request_id}
        answer: HttpAnswer = client.post(message)
        answers.append((answer.status, answer.body, dict(answer.headers)))
    return answers


@pytest.mark.parametrize("owner", ["alice", "anonymous"])
@pytest.mark.parametrize("caller", ["alice", "bob", "anonymous"])
def test_only_equal_owners_meet(
    alice: McpClient, bob: McpClient, anonymous: McpClient, owner: str, caller: str
) -> None:
    clients = {"alice": alice, "bob": bob, "anonymous": anonymous}
    task_id = parked(clients[owner])
    answers = everything(clients[caller], task_id)
    if owner == caller:
        assert [b'"result"' in body for _, body, _ in answers] == [True] * 3
        assert Task.objects.get().status == "cancelled"
        return
    assert [b'"code":-32602' in body for _, body, _ in answers] == [True] * 3
    assert Task.objects.get().status == "input_required"
    assert TaskInput.objects.get().answer_json is None


def test_a_foreign_task_is_answered_byte_by_byte_like_a_missing_one(alice: McpClient, bob: McpClient) -> None:
    foreign, missing = parked(alice), "x" * 43
    assert len(missing) == len(foreign)
    assert everything(bob, foreign) == everything(bob, missing)
    for task_id in (foreign, missing):
        assert all(task_id.encode() not in body for _, body, _ in everything(bob, task_id))


def test_an_expired_task_is_named_to_its_owner_and_missing_to_everybody_else(
    alice: McpClient, bob: McpClient, anonymous: McpClient
) -> None:
    task_id = parked(alice)
    rewind(ref_of(task_id), 3601)
    for stranger in (bob, anonymous):
        assert everything(stranger, task_id) == everything(stranger, "x" * 43)
    for method in (alice.get_task, alice.cancel_task, lambda task_id: alice.update_task(task_id, YES)):
        with pytest.raises(McpError, match="Task has expired") as refused:
            method(task_id)
        assert refused.value.code == -32602
    assert Task.objects.get().status == "input_required"


@pytest.mark.parametrize("power", [{"is_staff": True}, {"is_superuser": True, "is_staff": True}])
def test_staff_have_no_way_around_the_owner(
    alice: McpClient, client_of: Callable[[str], McpClient], power: dict[str, bool]
) -> None:
    task_id = parked(alice)
    root = client_of("root")
    User.objects.filter(username="root").update(**power)
    assert everything(root, task_id) == everything(root, "x" * 43)
    assert Task.objects.get().status == "input_required"


def test_a_new_token_of_the_same_user_keeps_the_tasks(alice: McpClient, client_of: Callable[[str], McpClient]) -> None:
    task_id = parked(alice)
    Token.objects.all().delete()
    renewed = client_of("alice")
    assert renewed.token != alice.token
    assert renewed.get_task(task_id)["status"] == "input_required"


def test_another_name_and_other_rights_of_the_same_user_keep_the_tasks(alice: McpClient) -> None:
    task_id = parked(alice)
    User.objects.filter(username="alice").update(username="alice2", is_staff=True, email="a@b.c", password="new")
    assert alice.get_task(task_id)["status"] == "input_required"


def test_a_user_made_anew_under_the_same_key_does_not_inherit(
    alice: McpClient, client_of: Callable[[str], McpClient]
) -> None:
    task_id = parked(alice)
    key = User.objects.get(username="alice").pk
    User.objects.all().delete()
    User.objects.create(pk=key, username="alice")
    successor = client_of("alice")
    assert everything(successor, task_id) == everything(successor, "x" * 43)


def test_an_answer_of_somebody_else_does_not_reach_the_handler(alice: McpClient, bob: McpClient) -> None:
    task_id = parked(alice)
    with pytest.raises(McpError):
        bob.update_task(task_id, YES)
    assert run_until_idle() == 0
    no = {"approval": {"action": "decline"}}
    assert alice.update_task(task_id, no).keys() == {"resultType", "_meta"}
    run_until_idle()
    assert alice.get_task(task_id)["result"]["content"][0]["text"] == "no"


def test_a_look_at_a_foreign_task_is_logged_without_its_id(
    alice: McpClient, bob: McpClient, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = parked(alice)
    with caplog.at_level(logging.DEBUG):
        everything(bob, task_id)
    found: list[Any] = [record for record in caplog.records if record.name == "mcp_tasks.access"]
    assert [(r.event, r.reason, r.ref) for r in found] == [("access_refused", "owner", str(ref_of(task_id)))] * 3
    assert all(task_id not in str(record.__dict__) for record in caplog.records)


def test_a_look_at_nothing_is_not_logged_as_an_attack(bob: McpClient, caplog: pytest.LogCaptureFixture) -> None:
    everything(bob, "x" * 43)
    assert not [record for record in caplog.records if record.name == "mcp_tasks.access"]


def test_the_owner_never_reaches_the_wire(alice: McpClient) -> None:
    task_id = parked(alice)
    row = Task.objects.get()
    for _, body, _ in everything(alice, task_id):
        assert b"alice" not in body
        assert (row.owner_key or "?").encode() not in body
        assert str(row.ref).encode() not in body
        assert row.ref.hex.encode() not in body
