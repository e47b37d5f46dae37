"""What a handler returns, as a CallToolResult; and what a DeferredTask may say."""

import base64
import dataclasses
import datetime
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any

import mcp_types
import pytest
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field

from mcp_tasks import DeferredTask
from mcp_tasks.protocol.capabilities import RELATED_TASK_KEY
from mcp_tasks.protocol.codec import JsonError, dumps, loads
from mcp_tasks.tools.definition import Tool, build
from mcp_tasks.tools.results import InvalidDeferredTask, OutputMismatch, error_result, to_result


class Item(BaseModel):
    name: str
    price: float | None = None


class Renamed(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    id_: int = Field(alias="id")


@dataclasses.dataclass
class Point:
    x: int
    at: datetime.date | None = None


class Options(typing_extensions.TypedDict):
    verbose: bool


class Color(enum.Enum):
    RED = "red"


def returning(hint: Any = None, **options: Any) -> Tool:
    """A tool whose function says that it returns this."""

    def function() -> Any: ...

    if hint is not None:
        function.__annotations__ = {"return": hint}
    tool = build(function, name="example", **options)
    assert tool.problems == []
    return tool


PLAIN = returning()


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], "resultType": "complete"}


def structured(value: Any) -> dict[str, Any]:
    return {**text(dumps(value)), "structuredContent": value}


# -- without an output schema ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("text", "text"),
        ("", ""),
        ("\ud800\x00", "\ud800\x00"),
        ('{"a":1}', '{"a":1}'),
        (5, "5"),
        (10**400, "1" + "0" * 400),
        (0.5, "0.5"),
        (-0.0, "-0.0"),
        (True, "true"),
        (False, "false"),
        ([], "[]"),
        ([1, "a", None], '[1,"a",null]'),
        ((1, 2), "[1,2]"),
        ({1}, "[1]"),
        (frozenset(["a"]), '["a"]'),
        ([{"a": 1}], '[{"a":1}]'),
        (b"bytes", "bytes"),
        (Color.RED, "red"),
        (datetime.date(2026, 7, 28), "2026-07-28"),
        (uuid.UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (decimal.Decimal("1.10"), "1.10"),
        ([Item(name="a")], '[{"name":"a","price":null}]'),
        ([Point(1)], '[{"x":1,"at":null}]'),
    ],
)
def test_what_is_no_object_becomes_a_text(value: Any, said: str) -> None:
    assert to_result(value, PLAIN) == text(said)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ({}, {}),
        ({"a": [1, None]}, {"a": [1, None]}),
        ({"b": 1, "a": 2}, {"b": 1, "a": 2}),
        ({"\ud800": "\udfff"}, {"\ud800": "\udfff"}),
        ({1: "a"}, {"1": "a"}),
        ({"d": datetime.date(2026, 7, 28)}, {"d": "2026-07-28"}),
        ({"m": Item(name="a")}, {"m": {"name": "a", "price": None}}),
        ({"content": [{"type": "text"}]}, {"content": [{"type": "text"}]}),
        (Item(name="a", price=0.5), {"name": "a", "price": 0.5}),
        (Renamed(id_=5), {"id": 5}),
        (Point(1, datetime.date(2026, 7, 28)), {"x": 1, "at": "2026-07-28"}),
        (Options(verbose=True), {"verbose": True}),
    ],
)
def test_an_object_is_structured_and_repeated_as_text(value: Any, content: dict[str, Any]) -> None:
    result = to_result(value, PLAIN)
    assert result == structured(content)
    assert dumps(result["structuredContent"]) == dumps(content)  # in the same order


def test_nothing_is_no_content() -> None:
    assert to_result(None, PLAIN) == {"content": [], "resultType": "complete"}


BLOCKS: list[tuple[Any, dict[str, Any]]] = [
    (mcp_types.TextContent(type="text", text="\ud800"), {"type": "text", "text": "\ud800"}),
    (
        mcp_types.ImageContent(type="image", data=base64.b64encode(b"x").decode(), mime_type="image/png"),
        {"type": "image", "data": "eA==", "mimeType": "image/png"},
    ),
    (
        mcp_types.AudioContent(type="audio", data="eA==", mime_type="audio/wav"),
        {"type": "audio", "data": "eA==", "mimeType": "audio/wav"},
    ),
    (
        mcp_types.ResourceLink(type="resource_link", uri="https://x.example/a", name="a"),
        {"type": "resource_link", "uri": "https://x.example/a", "name": "a"},
    ),
    (
        mcp_types.EmbeddedResource(
            type="resource", resource=mcp_types.TextResourceContents(uri="file:///a", text="t", mime_type="text/plain")
        ),
        {"type": "resource", "resource": {"uri": "file:///a", "text": "t", "mimeType": "text/plain"}},
    ),
    (
        mcp_types.TextContent(
            type="text", text="t", annotations=mcp_types.Annotations(priority=0.5), _meta={"a": None}
        ),
        {"type": "text", "text": "t", "annotations": {"priority": 0.5}, "_meta": {"a": None}},
    ),
]


@pytest.mark.parametrize(("block", "shown"), BLOCKS, ids=[type(block).__name__ for block, _ in BLOCKS])
def test_a_content_block_is_content(block: Any, shown: dict[str, Any]) -> None:
    assert to_result(block, PLAIN) == {"content": [shown], "resultType": "complete"}
    assert to_result([block, block], PLAIN)["content"] == [shown, shown]
    assert to_result((block,), PLAIN)["content"] == [shown]


def test_a_list_that_only_begins_with_blocks_is_a_list() -> None:
    result = to_result([BLOCKS[0][0], "text"], PLAIN)
    assert loads(result["content"][0]["text"])[1] == "text"


@pytest.mark.parametrize(
    "value", [object(), float("nan"), [float("inf")], {"a": object()}, {"a": float("nan")}, lambda: 1]
)
def test_what_has_no_json_form_is_not_sent(value: Any) -> None:
    with pytest.raises((JsonError, ValueError)):
        to_result(value, PLAIN)


def test_a_value_too_deep_is_not_sent() -> None:
    deep: Any = []
    for _ in range(101):
        deep = [deep]
    with pytest.raises(JsonError):
        to_result({"a": deep}, PLAIN)


def test_a_result_does_not_change_with_what_was_returned() -> None:
    value = {"a": [1]}
    result = to_result(value, PLAIN)
    value["a"].append(2)
    assert result["structuredContent"] == {"a": [1]}


def test_an_error_result_is_a_result_that_says_so() -> None:
    assert error_result("no luck") == {**text("no luck"), "isError": True}


# -- a whole CallToolResult -----------------------------------------------------------------------------------------


def test_a_result_made_by_hand_is_sent_as_it_is() -> None:
    made = mcp_types.CallToolResult(
        content=[BLOCKS[0][0]], structured_content={"a": [None, "\ud800"]}, is_error=True, _meta={"mine": {"b": None}}
    )
    assert to_result(made, PLAIN) == {
        "content": [BLOCKS[0][1]],
        "structuredContent": {"a": [None, "\ud800"]},
        "isError": True,
        "_meta": {"mine": {"b": None}},
        "resultType": "complete",
    }


def test_null_as_structured_content_is_not_the_same_as_its_absence() -> None:
    absent = to_result(mcp_types.CallToolResult(content=[]), PLAIN)
    null = to_result(mcp_types.CallToolResult(content=[], structured_content=None), PLAIN)
    assert "structuredContent" not in absent
    assert null["structuredContent"] is None


@pytest.mark.parametrize("value", [0, "", False, [], {}, "text", [1], 0.5])
def test_structured_content_is_any_json(value: Any) -> None:
    made = mcp_types.CallToolResult(content=[], structured_content=value)
    assert to_result(made, PLAIN)["structuredContent"] == value


def test_structured_content_may_be_a_model() -> None:
    made = mcp_types.CallToolResult(content=[], structured_content=Item(name="a"))
    assert to_result(made, PLAIN)["structuredContent"] == {"name": "a", "price": None}


def test_success_is_not_mentioned() -> None:
    assert "isError" not in to_result(mcp_types.CallToolResult(content=[], is_error=False), PLAIN)


def test_a_result_names_no_related_task() -> None:
    made = mcp_types.CallToolResult(content=[], _meta={RELATED_TASK_KEY: {"taskId": "x"}, "mine": 1})
    assert to_result(made, PLAIN)["_meta"] == {"mine": 1}
    only = mcp_types.CallToolResult(content=[], _meta={RELATED_TASK_KEY: {"taskId": "x"}})
    assert "_meta" not in to_result(only, PLAIN)


def test_a_result_is_always_complete() -> None:
    made = mcp_types.CallToolResult(content=[], result_type="input_required")
    assert to_result(made, PLAIN)["resultType"] == "complete"


@pytest.mark.parametrize("value", ["text", 5, None, {}, {"a": 1}, BLOCKS[0][0], mcp_types.CallToolResult(content=[])])
def test_every_result_has_content_and_a_type_and_nothing_null(value: Any) -> None:
    result = to_result(value, PLAIN)
    assert result["resultType"] == "complete"
    assert isinstance(result["content"], list)
    assert None not in result.values()


# -- with an output schema --------------------------------------------------------------------------------------------

ITEM = returning(Item)
NUMBER = returning(output_schema={"type": "integer"})
NULLABLE = returning(output_schema={"type": ["string", "null"]})


def test_what_satisfies_the_schema_is_structured() -> None:
    assert to_result(Item(name="a"), ITEM) == structured({"name": "a", "price": None})
    assert to_result({"name": "a", "price": 1}, ITEM) == structured({"name": "a", "price": 1})


def test_what_is_no_object_is_structured_too_where_the_schema_says_so() -> None:
    assert to_result(5, NUMBER) == structured(5)
    assert to_result("a", NULLABLE) == {**text("a"), "structuredContent": "a"}
    assert to_result(None, NULLABLE) == {**text("null"), "structuredContent": None}


@pytest.mark.parametrize(
    ("value", "tool"),
    [
        ({}, ITEM),
        ({"name": 5, "price": 1}, ITEM),
        ("text", ITEM),
        (None, ITEM),
        ([], ITEM),
        ("5", NUMBER),
        (None, NUMBER),
        (5, NULLABLE),
    ],
)
def test_what_violates_the_schema_is_a_mismatch_that_quotes_nothing(value: Any, tool: Tool) -> None:
    with pytest.raises(OutputMismatch, match="example violates its output schema"):
        to_result(value, tool)


def test_a_mismatch_says_where_but_not_what() -> None:
    with pytest.raises(OutputMismatch) as caught:
        to_result({"name": "a", "price": "hunter2"}, ITEM)
    assert "price" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", [BLOCKS[0][0], [BLOCKS[0][0]], mcp_types.CallToolResult(content=[])])
def test_a_schema_demands_structured_content(value: Any) -> None:
    with pytest.raises(OutputMismatch, match="no structured content"):
        to_result(value, ITEM)


def test_a_result_made_by_hand_is_checked_too() -> None:
    good = mcp_types.CallToolResult(content=[], structured_content={"name": "a", "price": None})
    assert to_result(good, ITEM)["structuredContent"] == {"name": "a", "price": None}
    with pytest.raises(OutputMismatch):
        to_result(mcp_types.CallToolResult(content=[], structured_content={"name": 5}), ITEM)
    with pytest.raises(OutputMismatch):
        to_result(mcp_types.CallToolResult(content=[], structured_content=None), ITEM)


def test_an_error_need_not_satisfy_the_schema() -> None:
    made = mcp_types.CallToolResult(content=[BLOCKS[0][0]], is_error=True)
    assert to_result(made, ITEM)["isError"] is True


# -- deferred tasks -------------------------------------------------------------------------------------------------


def start(ref: uuid.UUID) -> None:
    """Somebody else's work."""


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"ttl_ms": 1},
        {"ttl_ms": None},
        {"poll_interval_ms": 1},
        {"status_message": ""},
        {"meta": {}},
        {"ttl_ms": 5, "poll_interval_ms": 6, "status_message": "Queued", "meta": {"a": [None]}},
    ],
)
def test_a_deferred_task_says_what_it_may(attributes: dict[str, Any]) -> None:
    task = DeferredTask(start, **attributes)
    task.check()
    assert task.attributes == attributes
    assert task.start is start


async def start_async(ref: uuid.UUID) -> None:
    """Nobody would await this."""


@pytest.mark.parametrize("wrong", [None, "start", 5, start_async])
def test_what_starts_a_deferred_task_can_be_called(wrong: Any) -> None:
    with pytest.raises(InvalidDeferredTask, match="start"):
        DeferredTask(wrong).check()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttl", 5),
        ("priority", 1),
        ("Meta", {}),
        ("ttl_ms", "5"),
        ("ttl_ms", 5.0),
        ("ttl_ms", True),
        ("ttl_ms", 0),
        ("ttl_ms", -1),
        ("poll_interval_ms", None),
        ("poll_interval_ms", 0),
        ("poll_interval_ms", False),
        ("poll_interval_ms", "1"),
        ("status_message", None),
        ("status_message", 5),
        ("status_message", b"Queued"),
        ("meta", None),
        ("meta", []),
        ("meta", "{}"),
        ("meta", {"a": object()}),
        ("meta", {"a": float("nan")}),
    ],
)
def test_what_a_deferred_task_says_wrongly_is_named(name: str, value: Any) -> None:
    task = DeferredTask(start, **{name: value})
    with pytest.raises(InvalidDeferredTask, match=name):
        task.check()


def test_what_a_deferred_task_starts_may_be_any_callable() -> None:
    calls: list[uuid.UUID] = []
    wanted: list[Callable[[uuid.UUID], object]] = [calls.append, lambda ref: None, print]
    for each in wanted:
        DeferredTask(each).check()
