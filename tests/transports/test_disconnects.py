"""A client that goes away: its call is stopped, and a task that it was never told of does not live on."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.test import Client

from mcp_tasks import TaskContext
from mcp_tasks.models import Task
from mcp_tasks.testing import McpClient
from mcp_tasks.testing.client import HttpAnswer
from mcp_tasks.transports.http.endpoint import endpoint
from tests.support.adapters import converse, make_client, scope_of

from .requests import Draft, draft

IDEMPOTENCY_KEY = "django-mcp-tasks/idempotencyKey"


class Stage:
    """What a handler does while its client leaves: the test waits for it to begin and to end."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.cancelled: bool | None = None
        self.reason: str | None = None

    def wait_for_the_stop(self, ctx: TaskContext, seconds: float = 5.0) -> None:
        self.begun.set()
        self.cancelled = ctx.token.wait(seconds)
        self.reason = ctx.token.reason
        self.ended.set()


@pytest.fixture
def stage(mcp_tools: Callable[..., Any]) -> Stage:
    stage = Stage()

    @mcp_tools(task="never")
    def patient(ctx: TaskContext) -> str:
        stage.wait_for_the_stop(ctx)
        return "done"

    @mcp_tools(task="never")
    def talkative(ctx: TaskContext) -> str:
        ctx.progress("begun")
        stage.wait_for_the_stop(ctx)
        return "done"

    @mcp_tools(task="never")
    async def async_patient(ctx: TaskContext) -> str:
        stage.begun.set()
        stage.cancelled = await ctx.token.wait_async(5.0)
        stage.reason = ctx.token.reason
        stage.ended.set()
        return "done"

    @mcp_tools(inline_first=True)
    def becoming(ctx: TaskContext) -> str:
        if ctx.ref is None:
            stage.wait_for_the_stop(ctx)
        ctx.become_task()
        return "done"

    return stage


def call_of(name: str, **meta: Any) -> Draft:
    request = draft("tools/call", {"name": name, "arguments": {}})
    request.meta.update(meta)
    return request


def leave_during(application: Any, request: Draft, stage: Stage, *, streaming: bool = False) -> HttpAnswer:
    """Send a call, leave once its handler has begun (or its stream has), and see what was sent nevertheless."""

    async def conversation() -> HttpAnswer:
        leaves, hears = asyncio.Event(), asyncio.Event()
        scope = scope_of(request.headers)
        call = asyncio.ensure_future(converse(application, scope, [request.text], leaves=leaves, hears=hears))
        assert await asyncio.to_thread(stage.begun.wait, 5)
        if streaming:
            await asyncio.wait_for(hears.wait(), 5)
        leaves.set()
        answer = await call
        assert await asyncio.to_thread(stage.ended.wait, 6)
        return answer

    return asyncio.run(conversation())


def leave_at_once(request: Draft) -> HttpAnswer:
    """Send a call and leave while it is being answered."""

    async def conversation() -> HttpAnswer:
        leaves = asyncio.Event()
        leaves.set()
        return await converse(endpoint, scope_of(request.headers), [request.text], leaves=leaves)

    return asyncio.run(conversation())


def settled_status() -> str:
    """The status of the only task, once nobody changes it any more."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = Task.objects.exclude(status="working").first()
        if found is not None:
            return found.status
        time.sleep(0.01)
    return Task.objects.get().status


@pytest.mark.usefixtures("open_to_all")
@pytest.mark.parametrize("name", ["patient", "async_patient"])
def test_a_client_that_leaves_raises_the_token_and_hears_nothing_more(stage: Stage, name: str) -> None:
    answer = leave_during(endpoint, call_of(name), stage)
    assert (stage.cancelled, stage.reason) == (True, "disconnected")
    assert answer.status == 0


@pytest.mark.usefixtures("open_to_all")
@pytest.mark.parametrize("application", [endpoint, ASGIHandler()], ids=["endpoint", "view"])
def test_a_client_that_leaves_an_open_stream_raises_the_token(stage: Stage, application: Any) -> None:
    answer = leave_during(application, call_of("talkative", progressToken=1), stage, streaming=True)
    assert (stage.cancelled, stage.reason) == (True, "disconnected")
    assert [message.get("method") for message in answer.messages()] == ["notifications/progress"]


@pytest.mark.usefixtures("open_to_all", "transactional_db")
def test_a_client_that_leaves_while_it_is_written_to_raises_the_token_at_once(stage: Stage) -> None:
    request = call_of("talkative", progressToken=1)
    headers = {**request.headers, "Content-Length": str(len(request.text))}

    async def scenario() -> None:
        given: asyncio.Queue[Any] = asyncio.Queue()
        given.put_nowait({"type": "http.request", "body": request.text, "more_body": False})
        writing = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                writing.set()
                await asyncio.Event().wait()  # the client reads no more

        application: Any = ASGIHandler()
        running = asyncio.create_task(application(scope_of(headers, path="/mcp"), given.get, send))
        await asyncio.wait_for(writing.wait(), 10)
        given.put_nowait({"type": "http.disconnect"})
        await asyncio.wait({running}, timeout=10)
        assert await asyncio.to_thread(stage.ended.wait, 5), "before anybody collects the garbage"

    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()
    assert stage.reason == "disconnected"


@pytest.mark.usefixtures("open_to_all", "transactional_db")
def test_a_stream_that_a_wsgi_server_closes_raises_the_token(stage: Stage) -> None:
    request = call_of("talkative", progressToken=1)
    response: Any = Client().post("/mcp", request.text, content_type="application/json", headers=request.headers)
    assert b"begun" in next(iter(response.streaming_content))
    response.close()
    assert stage.ended.wait(5)
    assert stage.reason == "disconnected"


@pytest.mark.usefixtures("open_to_all")
def test_in_the_older_era_a_lost_connection_is_no_cancellation(stage: Stage) -> None:
    params = {"name": "talkative", "arguments": {}, "_meta": {"progressToken": 1}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Content-Type": "application/json", "MCP-Protocol-Version": "2025-11-25"}
    stage.wait_for_the_stop = _for_a_moment(stage.wait_for_the_stop)  # type: ignore[method-assign]
    leave_during(endpoint, Draft(message, headers), stage)
    assert stage.cancelled is False


def _for_a_moment(wait: Callable[..., None]) -> Callable[..., None]:
    return lambda ctx: wait(ctx, 0.2)


@pytest.mark.usefixtures("open_to_all", "transactional_db")
def test_a_task_whose_maker_left_before_hearing_of_it_is_cancelled() -> None:
    request = draft("tools/call", {"name": "echo", "arguments": {"text": "x"}})
    assert leave_at_once(request).status == 0
    assert settled_status() == "cancelled"


@pytest.mark.usefixtures("open_to_all", "transactional_db")
def test_a_call_that_became_a_task_after_its_client_left_is_cancelled(stage: Stage) -> None:
    assert leave_during(endpoint, call_of("becoming"), stage).status == 0
    assert settled_status() == "cancelled"


@pytest.mark.usefixtures("transactional_db")
def test_under_an_idempotency_key_the_task_lives_and_is_found_again(token: Callable[[str], str]) -> None:
    request = draft("tools/call", {"name": "echo", "arguments": {"text": "x"}})
    request.meta[IDEMPOTENCY_KEY] = "k-1"
    request.headers["Authorization"] = f"Bearer {token('alice')}"
    leave_at_once(request)
    alice: McpClient = make_client("endpoint", token=token("alice"))
    params = {"name": "echo", "arguments": {"text": "x"}}
    again = alice.request("tools/call", params, **{IDEMPOTENCY_KEY: "k-1"})
    assert Task.objects.count() == 1
    assert alice.get_task(again["taskId"])["status"] == "working"


@pytest.mark.usefixtures("open_to_all", "transactional_db")
def test_a_key_that_is_ignored_saves_no_task() -> None:
    request = draft("tools/call", {"name": "echo", "arguments": {"text": "x"}})
    request.meta[IDEMPOTENCY_KEY] = "k-1"
    leave_at_once(request)
    assert settled_status() == "cancelled"


@pytest.mark.usefixtures("open_to_all", "transactional_db")
def test_a_disconnect_after_the_answer_does_not_touch_the_task() -> None:
    client = make_client("endpoint")
    created = client.call_tool("echo", {"text": "x"})
    message = client.envelope("notifications/cancelled", {"requestId": 1, "reason": "gone"})
    del message["id"]
    assert client.post(message).status == 202
    assert client.get_task(created["taskId"])["status"] == "working"


def test_a_client_that_leaves_before_its_request_is_complete_is_not_answered() -> None:
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(endpoint(scope_of({"Content-Type": "application/json"}), receive, send))
    assert not sent


def deaf_to(parts: int, request: Draft) -> list[str]:
    """Send a call over a connection that breaks after some parts of the answer; returns what was sent before."""
    sent: list[str] = []
    never = asyncio.Event()
    messages = [{"type": "http.request", "body": request.text, "more_body": False}]

    async def receive() -> Any:
        if not messages:
            await never.wait()
        return messages.pop(0)

    async def send(message: Any) -> None:
        if len(sent) == parts:
            raise BrokenPipeError
        sent.append(message["type"])

    asyncio.run(endpoint(scope_of(request.headers), receive, send))
    return sent


@pytest.mark.usefixtures("open_to_all", "transactional_db")
@pytest.mark.parametrize("parts", [0, 1])
def test_a_task_whose_answer_cannot_be_written_is_cancelled(parts: int) -> None:
    deaf_to(parts, draft("tools/call", {"name": "echo", "arguments": {"text": "x"}}))
    assert settled_status() == "cancelled"


@pytest.mark.usefixtures("open_to_all")
@pytest.mark.parametrize("parts", [0, 1])
def test_a_stream_that_cannot_be_written_raises_the_token(stage: Stage, parts: int) -> None:
    deaf_to(parts, call_of("talkative", progressToken=1))
    assert stage.ended.wait(6)
    assert (stage.cancelled, stage.reason) == (True, "disconnected")
