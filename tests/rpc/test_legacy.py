"""The synchronous part of 2025-11-25: published clients start with it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types
import pytest
from mcp_types import CallToolResult

from mcp_tasks import McpError, TaskContext, ToolError
from mcp_tasks.models import Task
from mcp_tasks.rpc.caller import Caller
from mcp_tasks.store.types import Owner
from mcp_tasks.testing.client import HttpAnswer
from tests.support.adapters import Wire
from tests.support.inprocess import answer

LEGACY = "2025-11-25"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
HEADER = {"MCP-Protocol-Version": LEGACY}
ALICE = Caller(Owner(("test", "alice"), "alice"))


def send(method: str, params: Any = None, *, headers: Mapping[str, str] = HEADER, **members: Any) -> HttpAnswer:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params}), **members}
    return answer(ALICE, json.dumps(message), headers)


def result(method: str, params: Any = None, **options: Any) -> dict[str, Any]:
    reply = send(method, params, **options)
    assert reply.status == 200
    found: dict[str, Any] = reply.messages()[-1]["result"]
    return found


def code(method: str, params: Any = None, **options: Any) -> tuple[int, int | None]:
    reply = send(method, params, **options)
    return reply.status, reply.messages()[-1].get("error", {}).get("code")


def call(name: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
    return result("tools/call", {"name": name, "arguments": arguments or {}, **params})


HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "probe", "version": "1"}}


@pytest.mark.parametrize("headers", [{}, HEADER, {"MCP-Protocol-Version": "2024-11-05"}])
@pytest.mark.parametrize("version", [LEGACY, "2024-11-05", "2025-06-18", "2026-07-28", "x"])
def test_whatever_version_a_client_asks_for_it_is_offered_the_one_we_speak(
    headers: dict[str, str], version: str
) -> None:
    hello = result("initialize", {**HELLO, "protocolVersion": version}, headers=headers)
    assert hello == {
        "protocolVersion": LEGACY,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "django-mcp-tasks", "version": hello["serverInfo"]["version"]},
    }
    mcp_types.InitializeResult.model_validate(hello)


def test_what_the_settings_say_of_the_server_is_announced(configure: Callable[..., None]) -> None:
    configure(SERVER={"NAME": "acme", "VERSION": "1", "INSTRUCTIONS": "Ask."})
    hello = result("initialize", HELLO)
    assert (hello["instructions"], hello["serverInfo"]) == ("Ask.", {"name": "acme", "version": "1"})


@pytest.mark.parametrize("version", [None, 5, [], {}])
def test_a_greeting_without_a_version_is_wrong_params(version: Any) -> None:
    assert code("initialize", {**HELLO, "protocolVersion": version}) == (200, -32602)
    assert code("initialize") == (200, -32602)


@pytest.mark.parametrize("headers", [{}, HEADER])
def test_after_the_greeting_nothing_is_remembered_and_nothing_needs_to_be(headers: dict[str, str]) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    reply = answer(ALICE, json.dumps(message), headers)
    assert (reply.status, reply.body) == (202, b"")
    assert result("ping", headers=headers) == {}
    assert result("tools/list", headers=headers)["tools"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_a_later_request_in_a_version_we_do_not_speak_is_a_bad_request(version: str) -> None:
    assert code("tools/list", headers={"MCP-Protocol-Version": version}) == (400, -32600)
    note = answer(ALICE, '{"jsonrpc":"2.0","method":"notifications/initialized"}', {"MCP-Protocol-Version": version})
    assert note.status == 400


def test_a_request_that_names_the_version_in_its_meta_belongs_to_that_era() -> None:
    params = {"_meta": {VERSION_KEY: LEGACY}}
    assert "ttlMs" not in result("tools/list", params, headers={})
    assert "ttlMs" not in result("tools/list", params)
    assert code("initialize", {**HELLO, "_meta": {VERSION_KEY: "2026-07-28"}}, headers={}) == (400, -32602)


def test_results_have_none_of_the_newer_members(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="never")
    def hello() -> str:
        return "hi"

    listed = result("tools/list")
    assert listed.keys() == {"tools"}
    mcp_types.ListToolsResult.model_validate(listed)
    assert call("hello") == {"content": [{"type": "text", "text": "hi"}]}


def test_pages_work_as_in_the_newer_era(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_tasks.rpc import discovery

    monkeypatch.setattr(discovery, "TOOLS_PER_PAGE", 1)
    first = result("tools/list")
    assert first.keys() == {"tools", "nextCursor"}
    assert result("tools/list", {"cursor": first["nextCursor"]})["tools"] != first["tools"]
    assert code("tools/list", {"cursor": ""}) == (200, -32602)


@pytest.mark.django_db
def test_an_optional_tool_answers_at_once_and_no_hint_makes_it_a_task(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="optional")
    def either(ctx: TaskContext) -> str:
        return f"leg {ctx.leg}"

    tasks = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    for more in ({}, {"task": {"ttl": 5}}, {"_meta": tasks}, {"inputResponses": None, "requestState": 5}):
        assert call("either", **more)["content"][0]["text"] == "leg 0"
    assert not Task.objects.exists()


def test_a_tool_that_decides_itself_stays_in_the_call(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(inline_first=True)
    def either(ctx: TaskContext) -> str:
        ctx.become_task()
        return "at once"

    assert call("either")["content"][0]["text"] == "at once"


def test_a_task_only_tool_is_not_there(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="required")
    def task_only() -> str:
        raise AssertionError("never run")

    names = [tool["name"] for tool in result("tools/list")["tools"]]
    assert "task_only" not in names
    assert "add" in names
    assert code("tools/call", {"name": "task_only", "arguments": {}}) == (200, -32602)
    assert code("tools/call", {"name": "task_only", "arguments": {}, "task": {}}) == (200, -32602)


def test_a_tool_that_asks_says_so_in_words(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="never")
    def asks(kind: str, ctx: TaskContext) -> str:
        return str(ctx.roots() if kind == "roots" else ctx.sample("s", [], max_tokens=1, tools=[]))

    for kind in ("roots", "sample"):
        answered = call("asks", {"kind": kind})
        assert answered["isError"] is True
        assert "2026-07-28" in answered["content"][0]["text"]
        assert answered.keys() == {"content", "isError"}


def test_errors_are_told_as_in_the_newer_era_but_never_with_404_or_400(mcp_tools: Callable[..., Any]) -> None:
    faults = {
        "tool": ToolError("full"),
        "mcp": McpError(-32021, "x", {"requiredCapabilities": {}}),
        "any": ValueError(),
    }

    @mcp_tools(task="never")
    def fails(kind: str) -> str:
        raise faults[kind]

    assert call("fails", {"kind": "tool"}) == {"content": [{"type": "text", "text": "full"}], "isError": True}
    assert call("fails", {"kind": "any"})["isError"] is True
    assert call("fails", {"kind": 5})["isError"] is True
    assert code("tools/call", {"name": "fails", "arguments": {"kind": "mcp"}}) == (200, -32021)
    assert code("tools/call", {"name": "nowhere"}) == (200, -32602)
    assert code("tools/call", {"name": 5}) == (200, -32602)


@pytest.mark.parametrize(
    "method",
    [
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/cancel",
        "tasks/update",
        "server/discover",
        "subscriptions/listen",
        "prompts/list",
        "resources/subscribe",
        "logging/setLevel",
        "x",
    ],
)
def test_an_unknown_method_is_never_404_which_would_mean_a_lost_session(method: str) -> None:
    assert code(method, {"taskId": "x"}) == (200, -32601)


def test_structured_content_that_is_no_object_is_dropped_and_its_text_stays(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="never", output_schema={"type": ["array", "null"]})
    def rows(count: int | None) -> Any:
        return None if count is None else list(range(count))

    @mcp_tools(task="never", output_schema={"type": "object"})
    def row() -> Any:
        return {"a": 1}

    @mcp_tools(task="never")
    def null() -> Any:
        return CallToolResult(content=[], structured_content=None)

    assert call("rows", {"count": 2}) == {"content": [{"type": "text", "text": "[0,1]"}]}
    assert call("rows", {"count": None}) == {"content": [{"type": "text", "text": "null"}]}
    assert call("null") == {"content": []}
    assert call("row") == {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}
    schemas = {tool["name"]: "outputSchema" in tool for tool in result("tools/list")["tools"]}
    assert (schemas["rows"], schemas["row"]) == (False, True)


def test_without_the_older_era_its_greeting_names_the_versions_that_are_served(
    configure: Callable[..., None],
) -> None:
    configure(LEGACY_ERA=False)
    reply = send("initialize", HELLO, headers={})
    error = reply.messages()[0]["error"]
    assert (reply.status, error["code"], reply.messages()[0]["id"]) == (400, -32022, 1)
    assert error["data"] == {"supported": ["2026-07-28"], "requested": LEGACY}
    assert "2026-07-28" in error["message"]


@pytest.mark.parametrize("headers", [{}, HEADER])
def test_without_the_older_era_its_requests_are_incomplete_modern_ones(
    configure: Callable[..., None], headers: dict[str, str]
) -> None:
    configure(LEGACY_ERA=False)
    assert code("tools/list", {}, headers=headers) == (400, -32602)
    note = answer(ALICE, '{"jsonrpc":"2.0","method":"notifications/initialized"}', headers)
    assert note.status == (400 if headers else 202)
    assert answer(ALICE, '{"jsonrpc":"2.0","id":1,"result":{}}', headers).status == 400


@pytest.fixture
def post(wire: Wire, configure: Callable[..., None]) -> Callable[..., HttpAnswer]:
    """One message of that era over HTTP, from anybody."""
    configure(ALLOW_ANONYMOUS=True)

    def post(method: str, params: Any = None, *, http_method: str = "POST") -> HttpAnswer:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **HEADER}
        message = {"jsonrpc": "2.0", "id": "l", "method": method, "params": params or {}}
        return wire.send(json.dumps(message).encode(), headers, method=http_method)

    return post


def test_over_http_no_session_is_made_and_there_is_nothing_to_open_or_close(post: Callable[..., HttpAnswer]) -> None:
    hello = post("initialize", HELLO)
    assert hello.status == 200
    assert "mcp-session-id" not in hello.headers
    for method in ("GET", "DELETE"):
        assert post("ping", http_method=method).status == 405
    assert post("nowhere").status == 200


def test_over_http_progress_is_streamed_before_the_result(
    post: Callable[..., HttpAnswer], mcp_tools: Callable[..., Any]
) -> None:
    @mcp_tools(task="never")
    def steps(ctx: TaskContext) -> str:
        for number in (1, 2):
            ctx.progress(f"step {number}", done=number)
        return "done"

    reply = post("tools/call", {"name": "steps", "arguments": {}, "_meta": {"progressToken": 5}})
    assert reply.headers["content-type"] == "text/event-stream"
    *notes, last = reply.messages()
    assert [note["params"]["progress"] for note in notes] == [1, 2]
    assert last["result"] == {"content": [{"type": "text", "text": "done"}]}
    plain = post("tools/call", {"name": "steps", "arguments": {}})
    assert plain.headers["content-type"] == "application/json"
