"""What a tool returns or raises, on the wire: the same at once and in a task."""

import logging
from collections.abc import Callable
from typing import Any

import mcp_types
import pytest
from mcp_types import CallToolResult, EmbeddedResource, ImageContent, TextContent, TextResourceContents
from pydantic import BaseModel

from mcp_tasks import McpError, TaskContext, ToolError
from mcp_tasks.models import Task
from mcp_tasks.testing import run_until_idle
from mcp_tasks.testing.client import McpClient

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
RELATED = "io.modelcontextprotocol/related-task"
NEUTRAL = "The tool failed because of an internal error."


class Row(BaseModel):
    """An object with a name."""

    name: str
    size: float = 0.5


def text(value: str) -> TextContent:
    return TextContent(type="text", text=value)


#: What the tool returns, and the members of its result beside resultType and _meta.
RETURNED: dict[str, tuple[Any, dict[str, Any]]] = {
    "a text": ("ä\x00\u2028\ud800\U0001f600", {"content": [{"type": "text", "text": "ä\x00\u2028\ud800\U0001f600"}]}),
    "an empty text": ("", {"content": [{"type": "text", "text": ""}]}),
    "nothing": (None, {"content": []}),
    "a number": (0.5, {"content": [{"type": "text", "text": "0.5"}]}),
    "a large number": (2**53 + 1, {"content": [{"type": "text", "text": "9007199254740993"}]}),
    "a truth": (False, {"content": [{"type": "text", "text": "false"}]}),
    "a list": ([1, None], {"content": [{"type": "text", "text": "[1,null]"}]}),
    "an empty list": ([], {"content": [{"type": "text", "text": "[]"}]}),
    "an object": (
        {"b": 1, "a": {"\x00": None}, "": []},
        {
            "content": [{"type": "text", "text": '{"b":1,"a":{"\\u0000":null},"":[]}'}],
            "structuredContent": {"b": 1, "a": {"\x00": None}, "": []},
        },
    ),
    "a model": (
        Row(name="x"),
        {
            "content": [{"type": "text", "text": '{"name":"x","size":0.5}'}],
            "structuredContent": {"name": "x", "size": 0.5},
        },
    ),
    "a block": (text("x"), {"content": [{"type": "text", "text": "x"}]}),
    "blocks": (
        [
            ImageContent(type="image", data="aGk=", mime_type="image/png"),
            EmbeddedResource(type="resource", resource=TextResourceContents(uri="a://b", text="x")),
        ],
        {
            "content": [
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "resource", "resource": {"uri": "a://b", "text": "x"}},
            ]
        },
    ),
    "a whole result": (
        CallToolResult(content=[text("bad")], is_error=True, structured_content={"why": [1]}),
        {"content": [{"type": "text", "text": "bad"}], "isError": True, "structuredContent": {"why": [1]}},
    ),
    "structured content that is null": (
        CallToolResult(content=[], structured_content=None),
        {"content": [], "structuredContent": None},
    ),
    "no structured content": (CallToolResult(content=[]), {"content": []}),
}


def both_ways(client: McpClient, tool: Callable[..., Any], function: Callable[..., Any], **options: Any) -> list[Any]:
    """The outcome of a function as a tool that answers at once, and as one that becomes a task."""
    outcomes: list[Any] = []
    for mode in ("never", "required"):
        name = f"works_{mode}"
        tool(name=name, task=mode, **options)(function)
        try:
            answer = client.call_tool(name)
        except McpError as error:
            outcomes.append(error.payload())
            continue
        if answer["resultType"] == "task":
            run_until_idle()
            task = client.get_task(answer["taskId"])
            answer = task.get("result") or task["error"]
        outcomes.append(answer)
    return outcomes


@pytest.mark.parametrize(("value", "expected"), RETURNED.values(), ids=RETURNED.keys())
def test_a_return_value_is_the_same_result_at_once_and_in_a_task(
    alice: McpClient, mcp_tools: Callable[..., Any], value: Any, expected: dict[str, Any]
) -> None:
    def work() -> Any:
        return value

    inline, stored = both_ways(alice, mcp_tools, work)
    assert inline.pop("_meta").keys() == {SERVER_INFO}
    assert stored == inline == {**expected, "resultType": "complete"}
    if not isinstance(value, str):  # the models take no surrogates
        mcp_types.CallToolResult.model_validate(stored)


def test_a_result_keeps_its_own_meta_but_never_the_older_mark_of_a_task(
    alice: McpClient, mcp_tools: Callable[..., Any]
) -> None:
    def work() -> CallToolResult:
        return CallToolResult.model_validate(
            {"content": [], "_meta": {"com.example/cost": 5, RELATED: {"taskId": "x"}, SERVER_INFO: {"name": "me"}}}
        )

    inline, stored = both_ways(alice, mcp_tools, work)
    assert inline["_meta"]["com.example/cost"] == stored["_meta"]["com.example/cost"] == 5
    assert RELATED not in inline["_meta"]
    assert RELATED not in stored["_meta"]
    assert inline["_meta"][SERVER_INFO]["name"] == "django-mcp-tasks"


def raising(error: BaseException) -> Callable[[], Any]:
    def work() -> Any:
        raise error

    return work


def test_a_tool_error_is_a_result_that_the_model_may_read(alice: McpClient, mcp_tools: Callable[..., Any]) -> None:
    for answer in both_ways(alice, mcp_tools, raising(ToolError("Disk 7 is full"))):
        answer.pop("_meta", None)
        assert answer == {
            "content": [{"type": "text", "text": "Disk 7 is full"}],
            "isError": True,
            "resultType": "complete",
        }


@pytest.mark.parametrize(
    "error",
    [RuntimeError("password=hunter2"), ValueError("hunter2"), KeyError("hunter2"), AssertionError("hunter2")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("debug", [False, True])
def test_any_other_exception_is_a_neutral_result_and_its_text_is_in_the_log(
    alice: McpClient,
    mcp_tools: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    settings: Any,
    error: Exception,
    debug: bool,
) -> None:
    settings.DEBUG = debug
    with caplog.at_level(logging.ERROR):
        for answer in both_ways(alice, mcp_tools, raising(error)):
            answer.pop("_meta", None)
            assert answer == {
                "content": [{"type": "text", "text": NEUTRAL}],
                "isError": True,
                "resultType": "complete",
            }
    assert "hunter2" in caplog.text
    assert Task.objects.get().status == "completed"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            McpError(-32602, "no such region", {"field": "region"}),
            {"code": -32602, "message": "no such region", "data": {"field": "region"}},
        ),
        (McpError(7, ""), {"code": 7, "message": ""}),
        (McpError(-32603, "x", []), {"code": -32603, "message": "x", "data": []}),
        (McpError(1, "x", {"\x00\ud800": "\ud800"}), {"code": 1, "message": "x", "data": {"\x00\ud800": "\ud800"}}),
    ],
)
def test_a_protocol_error_stays_whole(
    alice: McpClient, mcp_tools: Callable[..., Any], error: McpError, expected: dict[str, Any]
) -> None:
    assert both_ways(alice, mcp_tools, raising(error)) == [expected, expected]
    assert Task.objects.get().status == "failed"


@pytest.mark.parametrize(("code", "status"), [(-32602, 200), (-32601, 200), (-32603, 200), (5, 200), (-32021, 400)])
def test_an_error_of_a_handler_travels_with_200_unless_its_code_wants_400(
    alice: McpClient, mcp_tools: Callable[..., Any], code: int, status: int
) -> None:
    mcp_tools(name="fails", task="never")(raising(McpError(code, "x", {"requiredCapabilities": {}})))
    answer = alice.post(alice.envelope("tools/call", {"name": "fails", "arguments": {}}))
    assert answer.status == status
    assert answer.messages()[0]["error"]["code"] == code


def test_exceptions_of_parallel_branches_are_judged_like_single_ones(
    alice: McpClient, mcp_tools: Callable[..., Any]
) -> None:
    both = ExceptionGroup("two", [ExceptionGroup("one", [ToolError("Disk 7 is full")]), ToolError("Disk 8 too")])
    for answer in both_ways(alice, mcp_tools, raising(both)):
        assert answer["content"][0]["text"] == "Disk 7 is full"


WANTED = {"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]}


@pytest.mark.parametrize(
    "value", [{"rows": "three"}, {}, None, "text", [1], CallToolResult(content=[text("x")]), Row(name="x")]
)
def test_what_violates_the_tools_own_output_schema_is_the_servers_fault(
    alice: McpClient, mcp_tools: Callable[..., Any], caplog: pytest.LogCaptureFixture, value: Any
) -> None:
    def work() -> Any:
        return value

    for answer in both_ways(alice, mcp_tools, work, output_schema=WANTED):
        assert answer == {"code": -32603, "message": "Internal error"}
    assert "output schema" in caplog.text


@pytest.mark.parametrize(
    ("value", "structured"),
    [
        ({"rows": 3}, {"rows": 3}),
        ({"rows": 3, "more": None}, {"rows": 3, "more": None}),
        (CallToolResult(content=[text("3")], structured_content={"rows": 3}), {"rows": 3}),
    ],
)
def test_what_satisfies_the_output_schema_is_structured_and_repeated_as_text(
    alice: McpClient, mcp_tools: Callable[..., Any], value: Any, structured: Any
) -> None:
    def work() -> Any:
        return value

    for answer in both_ways(alice, mcp_tools, work, output_schema=WANTED):
        assert answer["structuredContent"] == structured
        assert answer["content"]


def test_an_error_result_need_not_satisfy_the_output_schema(alice: McpClient, mcp_tools: Callable[..., Any]) -> None:
    def work() -> CallToolResult:
        return CallToolResult(content=[text("sorry")], is_error=True)

    for answer in both_ways(alice, mcp_tools, work, output_schema=WANTED):
        assert answer["isError"] is True


@pytest.mark.parametrize(("schema", "value"), [({"type": ["array", "null"]}, None), ({"type": "string"}, "x")])
def test_an_output_schema_need_not_be_of_an_object(
    alice: McpClient, mcp_tools: Callable[..., Any], schema: dict[str, Any], value: Any
) -> None:
    def work() -> Any:
        return value

    for answer in both_ways(alice, mcp_tools, work, output_schema=schema):
        assert "structuredContent" in answer
        assert answer["structuredContent"] == value


def test_a_result_that_is_too_large_fails_the_task_and_is_kept_nowhere(
    alice: McpClient, mcp_tools: Callable[..., Any], configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    configure(LIMITS={"PAYLOAD_BYTES": 2048})

    @mcp_tools(task="required")
    def flood(ctx: TaskContext) -> str:
        return "hunter2" * 1000

    created = alice.call_tool("flood")
    run_until_idle()
    task = alice.get_task(created["taskId"])
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert "hunter2" not in caplog.text
    assert "hunter2" not in str(Task.objects.values().get())
