"""Arguments that a tool wants mirrored in headers, and the names that every method mirrors."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks.models import Task
from mcp_tasks.protocol.codec import dumps
from mcp_tasks.rpc.caller import Caller
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import answer, rpc_client


def b64(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.fixture(autouse=True)
def _tool(mcp_tools: Callable[..., Any]) -> None:
    def argument(kind: str, header: str) -> dict[str, Any]:
        return {"type": kind, "x-mcp-header": header}

    schema = {
        "type": "object",
        "properties": {
            "region": argument("string", "Region"),
            "count": argument("integer", "Row-Count"),
            "dry": argument("boolean", "Dry"),
            "where": {"type": "object", "properties": {"zone": argument("string", "Zone")}},
            "free": {"type": "string"},
        },
    }

    @mcp_tools(task="never", input_schema=schema)
    def mirrored(**arguments: Any) -> str:
        return "ran"


@pytest.fixture
def client() -> McpClient:
    """A caller who needs no database."""
    return rpc_client("alice")


def code(client: McpClient, arguments: dict[str, Any], **headers: str | None) -> tuple[int, int | None]:
    message = client.envelope("tools/call", {"name": "mirrored", "arguments": arguments})
    answer = client.post(message, {name.replace("_", "-"): value for name, value in headers.items()})
    return answer.status, answer.messages()[0].get("error", {}).get("code")


SERVED, MISMATCH = (200, None), (400, -32020)


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"free": "x"}, {}),
        ({"region": "eu"}, {"Mcp_Param_Region": "eu"}),
        ({"region": "eu"}, {"mcp_param_REGION": "  eu\t"}),
        ({"region": "eu"}, {"Mcp_Param_Region": b64("eu")}),
        ({"region": "Zürich"}, {"Mcp_Param_Region": b64("Zürich")}),
        ({"region": " eu "}, {"Mcp_Param_Region": b64(" eu ")}),
        ({"region": ""}, {"Mcp_Param_Region": ""}),
        ({"region": "=?BASE64?ZXU=?="}, {"Mcp_Param_Region": "=?BASE64?ZXU=?="}),
        ({"region": "=?base64?ZXU="}, {"Mcp_Param_Region": "=?base64?ZXU="}),
        ({"count": 42}, {"Mcp_Param_Row_Count": "42"}),
        ({"count": 42}, {"Mcp_Param_Row_Count": "42.0"}),
        ({"count": -7}, {"Mcp_Param_Row_Count": "-7"}),
        ({"dry": True}, {"Mcp_Param_Dry": "true"}),
        ({"dry": False}, {"Mcp_Param_Dry": "false"}),
        ({"where": {"zone": "a"}}, {"Mcp_Param_Zone": "a"}),
        ({"where": {}}, {}),
        ({"free": "x"}, {"Mcp_Param_Free": "y", "Mcp_Param_Unknown": "z"}),
    ],
)
def test_what_says_the_same_is_served(client: McpClient, arguments: dict[str, Any], headers: dict[str, str]) -> None:
    assert code(client, arguments, **headers) == SERVED


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"Mcp_Param_Region": "us"}),
        ({"region": "eu"}, {"Mcp_Param_Region": "EU"}),
        ({"region": "eu"}, {"Mcp_Param_Region": "eu,eu"}),
        ({"region": "Zürich"}, {"Mcp_Param_Region": "Zürich"}),
        ({"region": "eu"}, {"Mcp_Param_Region": "=?base64?ZXU?="}),
        ({"region": "eu"}, {"Mcp_Param_Region": "=?base64?!!!!?="}),
        ({"region": "eu"}, {"Mcp_Param_Region": "=?base64?/w==?="}),
        ({}, {"Mcp_Param_Region": "eu"}),
        ({"region": None}, {"Mcp_Param_Region": "null"}),
        ({"region": None}, {"Mcp_Param_Region": ""}),
        ({"count": 42}, {"Mcp_Param_Row_Count": "42.5"}),
        ({"count": 42}, {"Mcp_Param_Row_Count": "0x2a"}),
        ({"count": 42}, {"Mcp_Param_Row_Count": "4_2"}),
        ({"count": 42}, {"Mcp_Param_Row_Count": "forty-two"}),
        ({"count": 1}, {"Mcp_Param_Row_Count": "true"}),
        ({"dry": True}, {"Mcp_Param_Dry": "1"}),
        ({"dry": True}, {"Mcp_Param_Dry": "True"}),
        ({"where": {"zone": "a"}}, {"Mcp_Param_Zone": "b"}),
        ({"where": {"zone": "a"}}, {}),
        ({"where": "a"}, {"Mcp_Param_Zone": "a"}),
        ({"region": ["eu"]}, {"Mcp_Param_Region": "eu"}),
    ],
)
def test_what_says_something_else_is_a_mismatch(
    client: McpClient, arguments: dict[str, Any], headers: dict[str, str]
) -> None:
    assert code(client, arguments, **headers) == MISMATCH


def test_an_argument_that_is_null_is_not_expected_in_a_header(client: McpClient) -> None:
    # What the schema says of null comes after the headers.
    assert code(client, {"region": None}) == SERVED


@pytest.mark.django_db
def test_no_task_is_made_where_a_header_does_not_match(client: McpClient, mcp_tools: Callable[..., Any]) -> None:
    mirrored = {"type": "string", "x-mcp-header": "A"}

    @mcp_tools(task="required", input_schema={"type": "object", "properties": {"a": mirrored}})
    def job(a: str = "") -> str:
        return a

    message = client.envelope("tools/call", {"name": "job", "arguments": {"a": "x"}})
    assert client.post(message, {"Mcp-Param-A": "y"}).status == 400
    assert not Task.objects.exists()
    assert client.post(message, {"Mcp-Param-A": "x"}).messages()[0]["result"]["resultType"] == "task"


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp_Method": " tools/call\t"},
        {"Mcp_Name": "  mirrored  "},
        {"Mcp_Name": b64("mirrored")},
        {"MCP_Protocol_Version": " 2026-07-28 "},
    ],
)
def test_routing_headers_may_be_spaced_and_the_name_encoded(client: McpClient, headers: dict[str, str]) -> None:
    assert code(client, {}, **headers) == SERVED


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp_Method": None},
        {"Mcp_Method": ""},
        {"Mcp_Method": "TOOLS/CALL"},
        {"Mcp_Method": "tools/list"},
        {"Mcp_Method": "tools/call,tools/call"},
        {"Mcp_Method": b64("tools/call")},
        {"Mcp_Name": None},
        {"Mcp_Name": ""},
        {"Mcp_Name": "Mirrored"},
        {"Mcp_Name": "mirrored,mirrored"},
        {"Mcp_Name": "=?base64?bWlycm9yZWQ?="},
        {"Mcp_Name": "mirr\xf6red"},
        {"MCP_Protocol_Version": "2030-01-01"},
        {"MCP_Protocol_Version": ""},
    ],
)
def test_routing_headers_that_say_something_else_are_a_mismatch(
    client: McpClient, headers: dict[str, str | None]
) -> None:
    assert code(client, {}, **headers) == MISMATCH


def test_a_request_without_a_version_header_in_our_revision_is_a_mismatch(client: McpClient) -> None:
    assert code(client, {}, MCP_Protocol_Version=None) == MISMATCH


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
def test_a_body_of_this_revision_under_a_header_of_another_is_a_mismatch(client: McpClient, version: str) -> None:
    assert code(client, {}, MCP_Protocol_Version=version) == MISMATCH


@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18", "2030-01-01"])
def test_a_body_of_an_older_revision_under_a_header_of_another_is_a_mismatch(client: McpClient, version: str) -> None:
    message = client.envelope("tools/call", {"name": "mirrored", "arguments": {}})
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2025-11-25"
    answer = client.post(message, {"MCP-Protocol-Version": version})
    assert (answer.status, answer.messages()[0].get("error", {}).get("code")) == MISMATCH


def test_a_method_without_a_name_ignores_the_header(client: McpClient) -> None:
    answer = client.post(client.envelope("tools/list"), {"Mcp-Name": "whatever"})
    assert answer.status == 200


def test_a_transport_without_headers_checks_none() -> None:
    message = rpc_client().envelope("tools/call", {"name": "mirrored", "arguments": {"region": "eu"}})
    assert answer(Caller(), dumps(message), None).status == 200
