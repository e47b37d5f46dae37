"""A task that asks runs in several legs: each is the same call, and answers may come from anywhere at once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from mcp_tasks import InputRequired, TaskContext
from mcp_tasks import tasks as worker
from mcp_tasks.models import Task
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import rpc_client

from .questions import OPEN_FORM, accept, form

Register = Callable[..., Any]
KEYS = ("a", "b", "c", "d")


def test_every_leg_is_the_same_call_of_the_same_caller(alice: McpClient, mcp_tools: Register) -> None:
    legs: list[tuple[Any, ...]] = []

    @mcp_tools(task="required")
    def twice(rows: list[int], ctx: TaskContext) -> str:
        legs.append((ctx.leg, rows, ctx.ref, ctx.owner, ctx.meta["com.example/mark"], ctx.idempotency_key("charge")))
        rows.append(99)
        ctx.elicit(f"round {len(ctx.answers)}".replace(" ", "-"), "Go on?", OPEN_FORM)
        return "done"

    params = {"name": "twice", "arguments": {"rows": [1, 2]}}
    task_id = alice.request("tools/call", params, **{"com.example/mark": 7})["taskId"]
    run_until_idle()
    alice.update_task(task_id, {"round-0": {"action": "cancel"}})
    run_until_idle()
    assert [leg[0] for leg in legs] == [1, 2]
    assert legs[0][2] == ref_of(task_id)
    assert legs[0][2:] == legs[1][2:]
    # The second leg asked under a new key, since there was an answer by then.
    assert alice.get_task(task_id)["inputRequests"].keys() == {"round-1"}


def test_each_leg_gets_the_original_arguments(alice: McpClient, mcp_tools: Register) -> None:
    seen: list[list[int]] = []

    @mcp_tools(task="required")
    def mutating(rows: list[int], ctx: TaskContext) -> str:
        seen.append(list(rows))
        rows.clear()
        ctx.elicit("a", "Go on?", OPEN_FORM)
        return "done"

    task_id = alice.call_tool("mutating", {"rows": [1, 2]})["taskId"]
    run_until_idle()
    alice.update_task(task_id, {"a": {"action": "cancel"}})
    run_until_idle()
    assert seen == [[1, 2], [1, 2]]


def test_questions_that_are_returned_in_a_task_are_asked_and_never_a_result(
    alice: McpClient, mcp_tools: Register
) -> None:
    @mcp_tools(task="required")
    async def returning(ctx: TaskContext) -> Any:
        return InputRequired({"a": form("A?", a="string")}) if not ctx.answers else ctx.answers["a"]["content"]["a"]

    task_id = alice.call_tool("returning")["taskId"]
    run_until_idle()
    task = alice.get_task(task_id)
    assert (task["status"], task["inputRequests"]) == ("input_required", {"a": form("A?", a="string")})
    assert "result" not in task
    alice.update_task(task_id, {"a": accept(a="yes")})
    run_until_idle()
    assert alice.get_task(task_id)["result"]["content"][0]["text"] == "yes"


def test_a_message_of_progress_may_hold_any_character(alice: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(task="required")
    def quiet() -> str:
        return ""

    task_id = alice.call_tool("quiet")["taskId"]
    assert worker.progress(ref_of(task_id), "a\x00b\ud800c\u2028\U0001f600" + "x" * 5000)
    message = alice.get_task(task_id)["statusMessage"]
    assert message.startswith("a\ufffdb\ufffdc\u2028\U0001f600x")
    assert len(message) == 1000


def test_the_ttl_counts_from_the_creation_also_after_the_end(alice: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(task="required", ttl_ms=10_000)
    def brief() -> str:
        return "done"

    kept, lost = (alice.call_tool("brief")["taskId"] for _ in range(2))
    for task_id in (kept, lost):
        rewind(ref_of(task_id), 8)
    run_until_idle()
    assert alice.get_task(lost)["status"] == "completed"
    assert worker.set_ttl(ref_of(kept), 60_000)
    for task_id in (kept, lost):
        rewind(ref_of(task_id), 3)
    with pytest.raises(McpError, match="Task has expired"):
        alice.get_task(lost)
    assert (alice.get_task(kept)["status"], alice.get_task(kept)["ttlMs"]) == ("completed", 60_000)


def test_what_a_task_belongs_to_is_stored_with_it(alice: McpClient) -> None:
    alice.call_tool("echo", {"text": "x"})
    row = Task.objects.get()
    assert (row.method, row.tool, row.owner_label) == ("tools/call", "echo", "alice")


@pytest.mark.usefixtures("transactional_db")
def test_answers_that_come_at_the_same_time_are_all_kept_and_resume_the_task_once(mcp_tools: Register) -> None:
    runs: list[dict[str, Any]] = []

    @mcp_tools(task="required")
    def four(ctx: TaskContext) -> str:
        runs.append(dict(ctx.answers))
        ctx.ask({key: form(f"{key}?", value="string") for key in KEYS})
        return "done"

    alice = rpc_client("alice")
    task_id = alice.call_tool("four")["taskId"]
    run_until_idle()
    barrier = threading.Barrier(len(KEYS))
    problems: list[BaseException] = []

    def answer(key: str) -> None:
        barrier.wait(10)
        try:
            rpc_client("alice").update_task(task_id, {key: accept(value=key)})
        except BaseException as problem:
            problems.append(problem)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=answer, args=(key,)) for key in KEYS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert alice.get_task(task_id)["status"] == "working"
    assert run_until_idle() == 1
    assert runs == [{}, {key: accept(value=key) for key in runs[1]}]
    assert runs[1].keys() == set(KEYS)
    assert alice.get_task(task_id)["status"] == "completed"
