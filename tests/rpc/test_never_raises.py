"""Whatever a message holds, it is answered, under its own id, with a status and a shape that clients know."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_tasks.protocol.codec import dumps, loads
from mcp_tasks.rpc.caller import Caller
from mcp_tasks.store.types import Owner
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import answer, rpc_client

ALICE = Caller(Owner(("test", "alice"), "alice"))
STATUSES = {200, 202, 400, 404}

texts = st.text(st.characters(codec=None, categories=None), max_size=8) | st.sampled_from(
    ["", "\x00", "\ud800", "2026-07-28", "2025-11-25", "tools/call", "tasks/get", "io.modelcontextprotocol/tasks"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)


def messages() -> list[dict[str, Any]]:
    """A right request of every method, of both eras."""
    client: McpClient = rpc_client("alice")
    task = {"taskId": "x" * 43}
    call = {"name": "add", "arguments": {"a": 1, "b": 2}, "inputResponses": {}, "task": {}}
    found = [
        client.envelope("server/discover"),
        client.envelope("tools/list", {"cursor": "YWRk"}),
        client.envelope("tools/call", call, progressToken=1),
        client.envelope("tasks/get", task),
        client.envelope("tasks/update", {**task, "inputResponses": {"a": {"action": "accept"}}}),
        client.envelope("tasks/cancel", task),
    ]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    for method, params in (("initialize", hello), ("ping", {}), ("tools/list", {}), ("tools/call", call)):
        found.append({"jsonrpc": "2.0", "id": 1, "method": method, "params": copy.deepcopy(params)})
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a message that can be spoiled."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        found += places(child, (*path, key))
    return found


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    message = copy.deepcopy(draw(st.sampled_from(messages())))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(message)))
        holder = message
        for key in path[:-1]:
            holder = holder[key]
        if draw(st.booleans()):
            holder[path[-1]] = draw(values)
        elif isinstance(holder, dict):
            del holder[path[-1]]
        if not places(message):
            break
    return message


def headers_of(message: dict[str, Any]) -> dict[str, str]:
    method = message.get("method")
    return {"mcp-protocol-version": "2026-07-28", "mcp-method": method if isinstance(method, str) else ""}


@pytest.mark.django_db
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=spoiled(), with_headers=st.booleans())
def test_a_spoiled_message_is_answered_all_the_same(message: dict[str, Any], with_headers: bool) -> None:
    reply = answer(ALICE, dumps(message), headers_of(message) if with_headers else None)
    assert reply.status in STATUSES
    if reply.status == 202:
        assert reply.body == b""
        return
    last = reply.messages()[-1]
    assert last["jsonrpc"] == "2.0"
    assert ("result" in last) != ("error" in last)
    request_id = message.get("id")
    if isinstance(request_id, (int, str)) and not isinstance(request_id, bool):
        assert last["id"] == request_id
    else:
        assert "id" not in last
    if "error" in last:
        assert isinstance(last["error"]["code"], int)
        assert isinstance(last["error"]["message"], str)
        assert last["error"]["code"] != -32603
    else:
        assert isinstance(last["result"], dict)


@settings(max_examples=120, deadline=None)
@given(body=values)
def test_any_json_at_all_is_answered(body: Any) -> None:
    reply = answer(ALICE, dumps(body), {})
    assert reply.status in (202, 400)


@settings(max_examples=120, deadline=None)
@given(body=st.binary(max_size=60) | texts.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_at_all_are_answered(body: bytes) -> None:
    reply = answer(ALICE, body, {})
    assert reply.status in (202, 400)
    if reply.body:
        assert "id" not in loads(reply.body)
