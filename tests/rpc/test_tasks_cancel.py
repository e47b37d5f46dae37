"""``tasks/cancel``: settled at once, never twice, and never over an outcome."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks import TaskContext
from mcp_tasks import tasks as worker
from mcp_tasks.models import Task, TaskEvent, TaskInput
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import get_store
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import run_until_idle
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import rpc_client

ACK = {"resultType", "_meta"}
YES = {"approval": {"action": "accept", "content": {"approve": True}}}


def create(client: McpClient) -> str:
    task_id: str = client.call_tool("approve", {"service": "web"})["taskId"]
    return task_id


def test_a_queued_task_is_cancelled_and_never_starts(alice: McpClient) -> None:
    task_id = create(alice)
    acknowledgement = alice.cancel_task(task_id)
    assert (acknowledgement.keys(), acknowledgement["resultType"]) == (ACK, "complete")
    assert alice.get_task(task_id)["status"] == "cancelled"
    assert run_until_idle() == 0


def test_a_waiting_task_is_cancelled_with_its_questions_and_cannot_be_revived(alice: McpClient) -> None:
    task_id = create(alice)
    run_until_idle()
    alice.cancel_task(task_id)
    assert "inputRequests" not in alice.get_task(task_id)
    assert TaskInput.objects.get().state == "withdrawn"
    assert alice.update_task(task_id, YES).keys() == ACK
    assert run_until_idle() == 0
    assert alice.get_task(task_id)["status"] == "cancelled"


@pytest.mark.usefixtures("transactional_db")  # the token is raised after the commit
def test_a_running_task_is_cancelled_at_once_its_handler_told_and_its_result_dropped(
    mcp_tools: Callable[..., Any],
) -> None:
    alice, seen = rpc_client("alice"), []

    @mcp_tools(task="required")
    def busy(ctx: TaskContext) -> str:
        seen.append(ctx.cancelled)
        alice.cancel_task(task_id)
        seen.append(alice.get_task(task_id)["status"])
        seen.append(ctx.cancelled)
        return "too late"

    task_id: str = alice.call_tool("busy")["taskId"]
    run_until_idle()
    assert seen == [False, "cancelled", True]
    task = alice.get_task(task_id)
    assert task["status"] == "cancelled"
    assert "result" not in task
    assert Task.objects.get().result_json is None


def finish(kind: str, client: McpClient, task_id: str) -> None:
    ref = ref_of(task_id)
    if kind == "completed":
        worker.complete(ref, "done")
    elif kind == "failed":
        worker.fail(ref, "lost")
    else:
        client.cancel_task(task_id)


@pytest.mark.parametrize("kind", ["completed", "failed", "cancelled"])
def test_a_finished_task_gets_the_same_acknowledgement_and_keeps_its_history(alice: McpClient, kind: str) -> None:
    task_id = create(alice)
    finish(kind, alice, task_id)
    before, events = alice.get_task(task_id), TaskEvent.objects.count()
    assert before["status"] == kind
    for _ in range(2):
        answer = alice.post(alice.envelope("tasks/cancel", {"taskId": task_id}))
        assert answer.status == 200
        assert answer.messages()[0]["result"].keys() == ACK
    assert alice.get_task(task_id) == before
    assert TaskEvent.objects.count() == events


@pytest.mark.parametrize("kind", ["completed", "failed"])
def test_whoever_still_works_on_a_finished_task_is_told_to_stop(alice: McpClient, kind: str) -> None:
    task_id = create(alice)
    token = get_store().token(ref_of(task_id))
    finish(kind, alice, task_id)
    alice.cancel_task(task_id)
    assert worker.cancelled(ref_of(task_id))
    assert token.cancelled


@pytest.mark.parametrize("first", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("second", ["completed", "failed", "cancelled"])
def test_the_first_outcome_wins(alice: McpClient, first: str, second: str) -> None:
    task_id = create(alice)
    finish(first, alice, task_id)
    before = alice.get_task(task_id)
    finish(second, alice, task_id)
    assert alice.get_task(task_id) == before


def test_why_a_task_was_cancelled_is_told_in_plain_words(alice: McpClient) -> None:
    task_id = create(alice)
    alice.cancel_task(task_id)
    assert alice.get_task(task_id)["statusMessage"] == "Cancelled at the client's request"


def test_a_notification_about_the_call_does_not_cancel_its_task(alice: McpClient) -> None:
    message = alice.envelope("tools/call", {"name": "approve", "arguments": {"service": "web"}})
    task_id = alice.post(message).messages()[0]["result"]["taskId"]
    note = alice.envelope("notifications/cancelled", {"requestId": message["id"], "taskId": task_id})
    del note["id"]
    assert alice.post(note).status == 202
    assert alice.get_task(task_id)["status"] == "working"


def test_a_cancel_without_an_id_of_its_own_is_a_notification_and_does_nothing(alice: McpClient) -> None:
    task_id = create(alice)
    note = alice.envelope("tasks/cancel", {"taskId": task_id})
    del note["id"]
    answer = alice.post(note)
    assert (answer.status, answer.body) == (202, b"")
    assert alice.get_task(task_id)["status"] == "working"


def test_a_foreign_or_unknown_task_is_not_found(alice: McpClient, bob: McpClient, nobody: McpClient) -> None:
    task_id = create(alice)
    for client, asked in ((bob, task_id), (nobody, task_id), (alice, "x" * 43)):
        with pytest.raises(McpError, match="Task not found") as refused:
            client.cancel_task(asked)
        assert refused.value.code == -32602
    assert alice.get_task(task_id)["status"] == "working"
