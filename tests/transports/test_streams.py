"""Notifications before the result: when a stream is opened, what is on it, and in which order."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks import McpError, TaskContext
from mcp_tasks.testing.client import HttpAnswer
from mcp_tasks.transports.http import endpoint as endpoint_module
from mcp_tasks.transports.http import streams, view
from tests.support.adapters import Wire

from .requests import CAPABILITIES_KEY, Draft, draft

pytestmark = pytest.mark.usefixtures("open_to_all")

EVENT_STREAM = "text/event-stream"


@pytest.fixture(autouse=True)
def _tools(mcp_tools: Callable[..., Any]) -> None:
    tool = mcp_tools

    @tool(task="never")
    def steps(numbers: list[float | None], ctx: TaskContext) -> str:
        for number in numbers:
            ctx.progress(f"at {number}", done=number, total=100)
        return "done"

    @tool(task="never")
    async def async_steps(count: int, ctx: TaskContext) -> str:
        for number in range(count):
            ctx.progress("step\n\n\u2028" + "x" * number, done=number)
            await asyncio.sleep(0)
        return "line\n\nbreak\u2028\x85"

    @tool(task="never")
    def late_fault(kind: str, ctx: TaskContext) -> str:
        ctx.progress("soon")
        if kind == "capability":
            ctx.roots()
        raise McpError(4711, "no such region", {"field": "region"})

    @tool(task="never")
    def slow(seconds: float, ctx: TaskContext) -> str:
        time.sleep(seconds)
        ctx.progress("awake")
        time.sleep(seconds)
        return "done"


def call(wire: Wire, name: str, *, token: Any = "p-1", accept: str | None = None, **arguments: Any) -> HttpAnswer:
    return request_of(name, token=token, accept=accept, **arguments).send(wire)


def request_of(name: str, *, token: Any = "p-1", accept: str | None = None, **arguments: Any) -> Draft:
    request = draft("tools/call", {"name": name, "arguments": arguments})
    if token is not None:
        request.meta["progressToken"] = token
    if accept is not None:
        request.headers["Accept"] = accept
    return request


def values(answer: HttpAnswer) -> list[Any]:
    return [message["params"]["progress"] for message in answer.messages() if "method" in message]


@pytest.mark.parametrize("token", ["p-1", "", 0, 17, "1", "\ud800"])
def test_progress_comes_in_order_before_the_result_under_the_clients_own_token(wire: Wire, token: Any) -> None:
    answer = call(wire, "steps", token=token, numbers=[1, 2.5, 50])
    assert (answer.status, answer.headers["content-type"]) == (200, EVENT_STREAM)
    *notes, result = answer.messages()
    assert notes == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": number, "total": 100, "message": f"at {float(number)}"},
        }
        for number in (1, 2.5, 50)
    ]
    assert [type(note["params"]["progressToken"]) for note in notes] == [type(token)] * 3
    assert (result["id"], result["result"]["content"][0]["text"]) == ("r-1", "done")


@pytest.mark.parametrize(
    "numbers", [[5, 3, 5, 5, 0], [None, None, None], [0, None, 1], [7, None, None], [1e308, 1, 2], [-3, -5], [2**60, 1]]
)
def test_progress_always_rises_whatever_the_handler_says(wire: Wire, numbers: list[float | None]) -> None:
    sent = values(call(wire, "steps", numbers=numbers))
    assert len(sent) == len(numbers)
    assert all(first < second for first, second in itertools.pairwise(sent))


def test_an_async_tool_reports_too_and_one_message_is_one_line(wire: Wire) -> None:
    answer = call(wire, "async_steps", count=5)
    assert values(answer) == [0, 1, 2, 3, 4]
    assert answer.messages()[-1]["result"]["content"][0]["text"] == "line\n\nbreak\u2028\x85"
    # Also for readers that take more than a line feed for the end of a line.
    lines = answer.body.decode().splitlines()
    assert len(lines) == 6 * 3
    for kind, data, end in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        assert kind == "event: message"
        assert data.startswith('data: {"jsonrpc":"2.0",')
        assert end == ""


def test_a_stream_forbids_to_keep_or_change_or_buffer_it(wire: Wire) -> None:
    headers = call(wire, "steps", numbers=[1]).headers
    assert {"no-cache", "no-store", "no-transform"} <= set(headers["cache-control"].split(", "))
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-content-type-options"] == "nosniff"
    assert "content-length" not in headers


@pytest.mark.parametrize(
    ("token", "accept"),
    [
        (None, None),
        ("p-1", "application/json"),
        ("p-1", "application/json, text/event-stream;q=0"),
        (True, None),
        (1.5, None),
        ([], None),
        ({}, None),
    ],
)
def test_who_did_not_ask_for_progress_or_cannot_read_it_gets_plain_json(
    wire: Wire, token: Any, accept: str | None
) -> None:
    answer = call(wire, "steps", token=token, accept=accept, numbers=[1, 2])
    assert answer.headers["content-type"] == "application/json"
    (message,) = answer.messages()
    assert message["result"]["content"][0]["text"] == "done"


def test_where_nothing_was_reported_nothing_is_streamed(wire: Wire) -> None:
    answer = call(wire, "steps", numbers=[])
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("accept", ["text/event-stream, application/json", "text/event-stream"])
def test_a_client_that_prefers_the_stream_gets_the_result_as_its_only_event(wire: Wire, accept: str) -> None:
    answer = call(wire, "steps", accept=accept, numbers=[])
    assert (answer.status, answer.headers["content-type"]) == (200, EVENT_STREAM)
    assert len(answer.messages()) == 1
    assert answer.headers["x-accel-buffering"] == "no"


def test_an_error_with_a_status_of_its_own_keeps_it_before_a_stream_is_open(wire: Wire) -> None:
    request = request_of("steps", numbers=[1], accept="text/event-stream, application/json")
    request.headers["Mcp-Name"] = "other"
    answer = request.send(wire)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")


@pytest.mark.parametrize(("kind", "code"), [("capability", -32021), ("other", 4711)])
def test_an_error_on_an_open_stream_is_its_last_event(wire: Wire, kind: str, code: int) -> None:
    request = request_of("late_fault", kind=kind)
    request.meta[CAPABILITIES_KEY] = {}
    answer = request.send(wire)
    assert (answer.status, answer.headers["content-type"]) == (200, EVENT_STREAM)
    note, error = answer.messages()
    assert note["method"] == "notifications/progress"
    assert (error["id"], error["error"]["code"]) == ("r-1", code)


def patch_keep_alive(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in (streams, view, endpoint_module):
        monkeypatch.setattr(module, "KEEP_ALIVE_SECONDS", seconds)


def test_a_silent_stream_is_kept_alive_by_comments(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    patch_keep_alive(monkeypatch, 0.03)
    answer = call(wire, "slow", seconds=0.15)
    assert answer.headers["content-type"] == EVENT_STREAM
    before, after = answer.body.split(b"event: message\ndata: ", 1)
    assert set(before.split(b"\n\n")) == {b": keep-alive", b""}
    assert b"\n\n: keep-alive\n\n" in after
    assert [message.get("id") for message in answer.messages()] == [None, "r-1"]


def test_a_long_call_that_nobody_reads_as_a_stream_is_not_made_one(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    patch_keep_alive(monkeypatch, 0.03)
    answer = call(wire, "slow", token=None, seconds=0.1)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert len(answer.messages()) == 1


def test_what_a_handlers_own_thread_reports_after_the_end_reaches_nobody(
    wire: Wire, mcp_tools: Callable[..., Any]
) -> None:
    ended = threading.Event()
    threads = []

    @mcp_tools(task="never")
    def careless(ctx: TaskContext) -> str:
        def later() -> None:
            ended.wait(5)
            ctx.progress("too late")

        threads.append(threading.Thread(target=later))
        threads[0].start()
        ctx.progress("in time")
        return "done"

    answer = call(wire, "careless")
    ended.set()
    threads[0].join()
    assert [m.get("params", {}).get("message") for m in answer.messages()] == ["in time", None]


@pytest.mark.parametrize("fault", [McpError(7, "x", object()), McpError(7, "x", float("nan"))], ids=["object", "NaN"])
@pytest.mark.parametrize("token", [None, "p-1"])
def test_an_error_that_has_no_json_form_is_still_an_answer(
    wire: Wire, mcp_tools: Callable[..., Any], fault: McpError, token: str | None
) -> None:
    @mcp_tools(task="never")
    def unspeakable(ctx: TaskContext) -> str:
        raise fault

    (message,) = call(wire, "unspeakable", token=token).messages()
    assert (message["id"], message["error"]["code"]) == ("r-1", -32603)


def test_a_result_that_has_no_json_form_is_still_an_answer(wire: Wire, mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="never")
    def unspeakable(what: str, ctx: TaskContext) -> Any:
        return {"nan": float("nan"), "object": object(), "loop": (loop := []).append(loop) or loop}[what]

    for what in ("nan", "object", "loop"):
        (message,) = call(wire, "unspeakable", what=what).messages()
        assert message["id"] == "r-1"
        assert message["result"]["isError"] if "result" in message else message["error"]["code"] == -32603


@pytest.mark.parametrize(
    "text", ["", "ascii", "\x85\u2028\u2029", "\u2028" * 3, "é\x85\\u0085", "💡\u2029\ud800\x00", "\u2028\\u2028\n\r"]
)
def test_what_some_take_for_the_end_of_a_line_is_escaped_and_nothing_else(text: str) -> None:
    expected = text.translate({0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"})
    assert streams._line(text) == expected


def test_a_long_message_does_not_hold_up_the_loop() -> None:
    text = "é" * 4_000_000
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        assert len(streams._line(text)) == len(text)
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.1
