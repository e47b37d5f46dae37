"""What a handler can rely on, whichever way its call came in: the database, the caller, a context of its own."""

import contextvars
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections
from django.utils import translation

from mcp_tasks import TaskContext
from mcp_tasks.models import Task
from mcp_tasks.testing import McpClient, run_until_idle

_mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")


def text(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


@pytest.fixture(params=["never", "required"])
def mode(request: pytest.FixtureRequest) -> str:
    """A call that is answered at once, and one that becomes a task."""
    return str(request.param)


def outcome(client: McpClient, name: str) -> str:
    answer = client.call_tool(name)
    if answer["resultType"] == "task":
        run_until_idle()
        answer = client.get_task(answer["taskId"])["result"]
    assert "isError" not in answer
    return text(answer)


def test_a_sync_tool_reads_the_database_and_knows_the_caller(
    alice: McpClient, mcp_tools: Callable[..., Any], mode: str
) -> None:
    @mcp_tools(task=mode)
    def whoami(ctx: TaskContext) -> str:
        assert ctx.owner is not None
        return f"{ctx.user.username} of {User.objects.count()}, {ctx.owner.label}"

    assert outcome(alice, "whoami") == "alice of 1, alice"


def test_an_async_tool_reads_the_database_in_both_ways(
    alice: McpClient, mcp_tools: Callable[..., Any], mode: str
) -> None:
    @mcp_tools(task=mode)
    async def whoami(ctx: TaskContext) -> str:
        user = await User.objects.aget(username="alice")
        count = await sync_to_async(User.objects.count)()
        again = await sync_to_async(lambda: ctx.user)()
        return f"{user.username} of {count}, {again.username}"

    assert outcome(alice, "whoami") == "alice of 1, alice"


def test_a_user_who_is_gone_is_nobody_in_a_later_leg(alice: McpClient, mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="required")
    def whoami(ctx: TaskContext) -> str:
        assert ctx.owner is not None
        return f"{ctx.user}, still {ctx.owner.label}"

    alice.call_tool("whoami")
    User.objects.all().delete()
    run_until_idle()
    assert '"None, still alice"' in str(Task.objects.get().result_json)


def test_nothing_of_one_call_is_left_for_the_next(alice: McpClient, mcp_tools: Callable[..., Any], mode: str) -> None:
    @mcp_tools(task=mode)
    def mark() -> str:
        before = _mark.get()
        _mark.set("used")
        translation.activate("de")
        return before

    assert [outcome(alice, "mark") for _ in range(3)] == ["clean"] * 3
    assert _mark.get() == "clean"


def test_a_handler_gets_converted_arguments_and_never_the_request(
    alice: McpClient, mcp_tools: Callable[..., Any], mode: str
) -> None:
    @mcp_tools(task=mode)
    def meta_of(ctx: TaskContext) -> str:
        assert not hasattr(ctx, "request")
        return ",".join(sorted(ctx.meta))

    assert outcome(alice, "meta_of").startswith("io.modelcontextprotocol/clientCapabilities")


def test_a_task_is_durable_before_its_answer_even_under_atomic_requests(
    alice: McpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    created = alice.call_tool("echo", {"text": "x"})
    assert alice.get_task(created["taskId"])["status"] == "working"
    assert alice.cancel_task(created["taskId"])["resultType"] == "complete"
    assert alice.get_task(created["taskId"])["status"] == "cancelled"
