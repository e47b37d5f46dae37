"""docs/reference/tool-decorator.md: its tools are what the page says."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType

from mcp_tasks import McpError, TaskContext
from mcp_tasks.testing import McpClient
from mcp_tasks.tools.definition import build

from .conftest import Page

PAGE = "docs/reference/tool-decorator.md"


@pytest.fixture
def allowed(ada: McpClient) -> None:
    kind, _ = ContentType.objects.get_or_create(app_label="shop", model="stock")
    permission = Permission.objects.get_or_create(codename="move_stock", content_type=kind)[0]
    User.objects.get(username="ada").user_permissions.add(permission)


def test_the_function_stays_as_it_is(page: Page) -> None:
    assert page.module("shop.mcp_tools").add(1, 2) == 3


def test_who_lacks_the_permission_sees_no_tool(ada: McpClient) -> None:
    assert [tool["name"] for tool in ada.request("tools/list")["tools"]] == ["add"]
    with pytest.raises(McpError, match="Unknown tool"):
        ada.call_tool("stock.move", {"item": "lamp", "to": "Ulm"})


def test_the_definition_has_what_was_given(ada: McpClient, allowed: None) -> None:
    move = ada.request("tools/list")["tools"][1]
    assert move["title"] == "Move stock"
    assert move["annotations"] == {"idempotentHint": True, "destructiveHint": False}
    properties = move["inputSchema"]["properties"]
    assert properties["item"] == {"type": "string", "minLength": 1, "description": "Its article number"}
    assert properties["to"]["x-mcp-header"] == "Warehouse"
    assert "ctx" not in properties


def test_modes_headers_and_arguments_are_as_the_page_says(ada: McpClient, allowed: None) -> None:
    call = {"name": "stock.move", "arguments": {"item": "lamp", "to": "Ulm"}}
    assert ada.post(ada.envelope("tools/call", call)).messages()[0]["error"]["code"] == -32020
    header = {"Mcp-Param-Warehouse": "Ulm"}
    result = ada.post(ada.envelope("tools/call", call), header).messages()[0]["result"]
    assert (result["resultType"], result["ttlMs"]) == ("task", 7_200_000)
    plain = ada.declaring({})
    refused = plain.post(plain.envelope("tools/call", call), header)
    assert (refused.status, refused.messages()[0]["error"]["code"]) == (400, -32021)
    assert plain.call_tool("add", {"a": 1})["content"][0]["text"] == "1"
    assert ada.call_tool("add", {"a": "one"})["isError"]


def test_what_the_page_says_of_parameters_is_so(page: Page, mcp_tools: Callable[..., object]) -> None:
    def optional(context: TaskContext | None = None) -> str: ...
    def twice(one: TaskContext, other: TaskContext) -> str: ...
    def unannotated(ctx, anything, **more): ...  # type: ignore[no-untyped-def]
    def positional(*names: str) -> str: ...

    assert build(optional).input_schema["additionalProperties"] is False
    assert "properties" not in build(optional).input_schema
    assert build(twice).problems
    assert build(positional).problems
    made = build(unannotated)
    assert made.problems == []
    assert made.input_schema["properties"] == {"anything": {}}
    assert made.input_schema["additionalProperties"] is True
