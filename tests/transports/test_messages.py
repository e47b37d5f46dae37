"""The text of one request: what is no message, which ids are echoed, what wants no answer."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks.protocol.codec import loads
from tests.support.adapters import ADAPTERS, Wire, exchange, scope_of

from .requests import MODERN, Draft, draft, error_of

pytestmark = pytest.mark.usefixtures("open_to_all")

LEGACY = "2025-11-25"


def posted(wire: Wire, body: bytes, **headers: str) -> tuple[int, int | None, Any]:
    request = draft()
    request.body = body
    request.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
    return error_of(request.send(wire))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff\xfe{", id="not UTF-8"),
        pytest.param("{}".encode("utf-16"), id="UTF-16"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
        pytest.param(b'{"id": "\xed\xa0\x80"}', id="an encoded surrogate"),
        pytest.param(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"', id="cut off"),
        pytest.param(b'{"jsonrpc": "2.0", "id": 1}{}', id="two texts"),
        pytest.param(b"[" * 200_000, id="200000 brackets"),
        pytest.param(b"[" * 200_000 + b"]" * 200_000, id="200000 levels"),
        pytest.param(b'{"a":' * 200_000, id="200000 braces"),
        pytest.param(b'{"id": ' + b"9" * 5000 + b"}", id="an integer of 5000 digits"),
        pytest.param(b'{"id": NaN}', id="NaN"),
        pytest.param(b'{"id": -Infinity}', id="Infinity"),
        pytest.param(b'{"id": 1e400}', id="beyond a double"),
        pytest.param(b"{'id': 1}", id="single quotes"),
        pytest.param(b'{"id": "a\x01b"}', id="a control character"),
    ],
)
def test_what_is_no_json_is_a_parse_error_without_an_id(wire: Wire, body: bytes) -> None:
    assert posted(wire, body) == (400, -32700, None)


@pytest.mark.parametrize("version", [MODERN, LEGACY])
@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        pytest.param([], None, id="an empty batch"),
        pytest.param([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], None, id="a batch of one"),
        pytest.param("ping", None, id="a string"),
        pytest.param(None, None, id="null"),
        pytest.param({}, None, id="an empty object"),
        pytest.param({"id": 1, "method": "tools/list"}, 1, id="no jsonrpc"),
        pytest.param({"jsonrpc": 2.0, "id": 1, "method": "tools/list"}, 1, id="jsonrpc as a number"),
        pytest.param({"jsonrpc": "2.0", "id": 1}, 1, id="no method"),
        pytest.param({"jsonrpc": "2.0", "id": 1, "method": None}, 1, id="method null"),
        pytest.param({"jsonrpc": "2.0", "id": 1, "method": ["ping"]}, 1, id="method as a list"),
        pytest.param({"jsonrpc": "2.0", "id": "x", "method": "tools/list", "params": []}, "x", id="params as a list"),
        pytest.param({"jsonrpc": "2.0", "id": "x", "method": "tools/list", "params": None}, "x", id="params null"),
    ],
)
def test_what_is_no_single_message_is_an_invalid_request(wire: Wire, version: str, body: Any, request_id: Any) -> None:
    answer = posted(wire, json.dumps(body).encode(), MCP_Protocol_Version=version)
    assert answer == (400, -32600, request_id)


@pytest.mark.parametrize("bad", [None, True, False, 1.5, 1.0, [], {}], ids=repr)
def test_what_is_no_id_makes_the_request_invalid_and_is_not_echoed(wire: Wire, bad: Any) -> None:
    request = draft("server/discover", {}, request_id=bad)
    answer = request.send(wire)
    assert error_of(answer) == (400, -32600, None)
    assert "id" not in answer.messages()[0]


@pytest.mark.parametrize("request_id", [0, -1, 2**53 + 1, 10**200, "", "0", "ä\u2028\U0001f600", "a\x00b", "\ud800"])
def test_every_id_comes_back_as_it_was_sent(wire: Wire, request_id: int | str) -> None:
    for method, status in (("server/discover", 200), ("ping", 404)):
        answer = draft(method, {}, request_id=request_id).send(wire)
        assert answer.status == status
        (message,) = answer.messages()
        assert message["id"] == request_id
        assert type(message["id"]) is type(request_id)


def test_a_request_with_the_id_of_another_is_no_conflict(wire: Wire) -> None:
    first, second = (draft(request_id=1).send(wire).messages()[0] for _ in range(2))
    assert first == second


def test_members_that_nobody_knows_are_no_fault(wire: Wire) -> None:
    request = draft()
    request.message |= {"trace": "x", "result": None}
    request.params["later"] = {"a": [1]}
    request.meta["com.example/mark"] = 1
    assert request.send(wire).status == 200


@pytest.mark.parametrize("version", [None, MODERN, LEGACY])
@pytest.mark.parametrize(
    "method", ["notifications/cancelled", "tools/call", "notifications/unheard of", "tasks/cancel"]
)
def test_a_notification_is_accepted_and_dropped(
    wire: Wire, mcp_tools: Callable[..., Any], method: str, version: str | None
) -> None:
    runs = []

    @mcp_tools(name="counted", task="never")
    def counted() -> str:
        runs.append(1)
        return "ran"

    request = draft(method, {"name": "counted", "requestId": "r-1", "taskId": "x"})
    del request.message["id"]
    del request.headers["MCP-Protocol-Version"]
    if version is not None:
        request.headers["MCP-Protocol-Version"] = version
    if version == LEGACY:
        del request.params["_meta"]
    answer = request.send(wire)
    assert (answer.status, answer.body) == (202, b"")
    assert not runs


def test_a_notification_in_a_version_nobody_speaks_is_refused(wire: Wire) -> None:
    request = draft("notifications/cancelled", {"requestId": "r-1"})
    del request.message["id"]
    request.headers["MCP-Protocol-Version"] = "2030-01-01"
    assert error_of(request.send(wire)) == (400, -32022, None)


@pytest.mark.parametrize("body", [{"result": {}}, {"error": {"code": 1, "message": "x"}}])
def test_an_answer_to_a_server_is_no_message_of_this_revision(wire: Wire, body: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", "id": 3, **body}
    assert posted(wire, json.dumps(message).encode()) == (400, -32600, 3)
    # The era before had them: there it is taken and means nothing.
    legacy = posted(wire, json.dumps(message).encode(), MCP_Protocol_Version=LEGACY)
    assert legacy == (202, None, None)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        pytest.param({"_meta": None}, -32602, id="null"),
        pytest.param({"_meta": []}, -32602, id="a list"),
        pytest.param({"_meta": {}}, -32602, id="empty"),
    ],
)
def test_a_wrong_meta_under_a_right_version_header_is_wrong_params(
    wire: Wire, spoil: dict[str, Any], code: int
) -> None:
    request = draft("tools/list", {})
    request.message["params"] = spoil
    assert error_of(request.send(wire)) == (400, code, "r-1")
    del request.message["params"]
    assert error_of(request.send(wire)) == (400, code, "r-1")


@pytest.mark.parametrize(
    "capabilities",
    [None, [], "all", {"extensions": []}, {"extensions": {"io.modelcontextprotocol/tasks": None}}, {"extensions": 1}],
)
def test_client_capabilities_of_a_wrong_shape_are_wrong_params(wire: Wire, capabilities: Any) -> None:
    request = draft()
    request.meta["io.modelcontextprotocol/clientCapabilities"] = capabilities
    assert error_of(request.send(wire)) == (400, -32602, "r-1")


@pytest.mark.parametrize("version", [None, 20260728, ["2026-07-28"], True, {}])
def test_a_version_that_is_no_text_is_wrong_params(wire: Wire, version: Any) -> None:
    request = draft()
    request.meta["io.modelcontextprotocol/protocolVersion"] = version
    assert error_of(request.send(wire)) == (400, -32602, "r-1")


def test_an_unsupported_version_names_those_that_discover_names(wire: Wire) -> None:
    discovered = draft("server/discover", {}).send(wire).messages()[0]["result"]["supportedVersions"]
    request = draft()
    request.meta["io.modelcontextprotocol/protocolVersion"] = request.headers["MCP-Protocol-Version"] = "2030-01-01"
    error = loads(request.send(wire).body)["error"]
    assert error["data"] == {"supported": discovered, "requested": "2030-01-01"}


def test_an_answer_is_utf8_json_whatever_the_question_held(wire: Wire) -> None:
    request = draft("ä\ud800\u2028", {}, request_id="ü\ud800")
    request.headers["Mcp-Method"] = "x"
    for sent in (request, draft(request_id="ü"), Draft({"id": "ü"}, {"Content-Type": "application/json"})):
        answer = sent.send(wire)
        assert answer.headers["content-type"] == "application/json"
        assert loads(answer.body)["id"][0] == "ü"


@pytest.mark.parametrize("adapter", ADAPTERS[1:])  # a WSGI server joins them before anybody sees them
@pytest.mark.parametrize("name", ["mcp-name", "mcp-method", "mcp-protocol-version"])
def test_a_routing_header_that_is_repeated_matches_nothing(wire: Wire, name: str) -> None:
    request = draft()
    scope = scope_of(request.headers)
    repeated = next(pair for pair in scope["headers"] if pair[0] == name.encode())
    scope["headers"].append(repeated)
    assert error_of(exchange(wire.application, scope, [request.text])) == (400, -32020, "r-1")
