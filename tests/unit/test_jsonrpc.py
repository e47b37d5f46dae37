"""The envelope: what is a request, what is a notification, what is neither, and the text of replies."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_tasks.protocol import errors
from mcp_tasks.protocol.errors import (
    INVALID_REQUEST,
    EnvelopeError,
    McpError,
    http_status_of,
    internal_error,
    invalid_params,
    missing_capability,
)
from mcp_tasks.protocol.jsonrpc import (
    InvalidEnvelope,
    Message,
    error_text,
    is_response,
    notification_text,
    parse,
    readable_id,
    result_text,
)

REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"a": 1}}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in REQUEST.items() if key != name}


@pytest.mark.parametrize("request_id", [0, 1, -1, 10**30, "", "1", "é", "\ud800"])
def test_a_request_keeps_its_id_with_its_type(request_id: str | int) -> None:
    message = parse({**REQUEST, "id": request_id})
    assert message == Message("tools/list", {"a": 1}, request_id)
    assert type(message.id) is type(request_id)
    assert not message.is_notification


def test_a_message_without_an_id_is_a_notification() -> None:
    message = parse(without("id"))
    assert message.is_notification
    assert message.id is None


def test_params_may_be_left_out_and_other_members_are_ignored() -> None:
    assert parse({**without("params"), "extra": 1, "_meta": []}).params == {}


@pytest.mark.parametrize("request_id", [None, True, False, 1.0, 1.5, [], {}, [1]])
def test_what_is_no_id_makes_no_request_and_is_not_echoed(request_id: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="id must be a string or an integer") as caught:
        parse({**REQUEST, "id": request_id})
    assert caught.value.id is None


@pytest.mark.parametrize("version", ["1.0", "2", 2.0, 2, None, ["2.0"], "2.0 ", ""])
def test_only_version_two_is_spoken(version: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="jsonrpc") as caught:
        parse({**REQUEST, "jsonrpc": version})
    assert caught.value.id == 1


@pytest.mark.parametrize("method", [None, 1, True, [], {}, ["tools/list"]])
def test_a_method_is_a_string(method: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="method must be a string") as caught:
        parse({**REQUEST, "method": method})
    assert caught.value.id == 1


@pytest.mark.parametrize("params", [None, [], [1], "a", 1, True])
def test_params_are_an_object(params: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="params must be an object") as caught:
        parse({**REQUEST, "params": params})
    assert caught.value.id == 1


@pytest.mark.parametrize("body", [None, 1, 1.5, "text", True])
def test_a_message_is_an_object(body: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="JSON object"):
        parse(body)


@pytest.mark.parametrize("body", [[], [REQUEST], [REQUEST, REQUEST]])
def test_a_batch_is_refused(body: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="Batches"):
        parse(body)


@pytest.mark.parametrize("member", ["result", "error"])
def test_a_response_is_refused_by_name(member: str) -> None:
    body = {"jsonrpc": "2.0", "id": 4, member: {}}
    with pytest.raises(InvalidEnvelope, match="no responses") as caught:
        parse(body)
    assert caught.value.id == 4
    assert is_response(body)


@pytest.mark.parametrize("body", [REQUEST, {**REQUEST, "result": {}}, {"id": 1}, [], None, "result", ["result"]])
def test_other_messages_are_no_responses(body: Any) -> None:
    assert not is_response(body)


def test_a_wrong_envelope_is_400_and_minus_32600() -> None:
    with pytest.raises(InvalidEnvelope) as caught:
        parse({})
    assert (caught.value.http_status, caught.value.code) == (400, INVALID_REQUEST)


@pytest.mark.parametrize("body", [None, [], "id", 5, {}, {"id": None}, {"id": True}, {"id": 1.0}, {"id": {}}])
def test_nothing_else_counts_as_a_readable_id(body: Any) -> None:
    assert readable_id(body) is None


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("2.0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
bodies = st.one_of(
    json_values, st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), json_values)
)


@given(bodies)
def test_any_body_is_a_message_or_a_named_refusal(body: Any) -> None:
    try:
        message = parse(body)
    except InvalidEnvelope:
        return
    assert body["jsonrpc"] == "2.0"
    assert message.is_notification == ("id" not in body)
    assert isinstance(message.params, dict)


@given(bodies)
def test_a_refusal_echoes_no_other_id_than_the_bodys(body: Any) -> None:
    found = readable_id(body)
    assert found is None or found == body["id"]


@pytest.mark.parametrize("request_id", [1, "1", 'a"b', "\ud800", 10**30])
def test_a_reply_echoes_the_id_with_its_type(request_id: str | int) -> None:
    reply = json.loads(result_text(request_id, '{"a":1}'))
    assert reply == {"jsonrpc": "2.0", "id": request_id, "result": {"a": 1}}
    assert type(reply["id"]) is type(request_id)
    result_text(request_id, "{}").encode("utf-8")


def test_a_result_is_spliced_in_as_it_is() -> None:
    assert result_text(1, '{ "big":1E2 }') == '{"jsonrpc":"2.0","id":1,"result":{ "big":1E2 }}'


def test_an_error_reply_without_a_readable_id_has_no_id_at_all() -> None:
    assert json.loads(error_text(None, McpError(-32700, "Parse error"))) == {
        "jsonrpc": "2.0",
        "error": {"code": -32700, "message": "Parse error"},
    }


@pytest.mark.parametrize("request_id", [0, ""])
def test_an_id_that_is_falsy_is_still_echoed(request_id: str | int) -> None:
    assert json.loads(error_text(request_id, internal_error()))["id"] == request_id


@pytest.mark.parametrize("data", [0, "", [], {}, False, {"a": [None]}])
def test_the_data_of_an_error_is_kept_whole(data: Any) -> None:
    assert json.loads(error_text(1, McpError(5, "m", data)))["error"] == {"code": 5, "message": "m", "data": data}


def test_an_error_without_data_has_no_such_member() -> None:
    assert "data" not in json.loads(error_text(1, McpError(5, "m")))["error"]


def test_a_notification_has_no_id() -> None:
    text = notification_text("notifications/progress", {"progress": 1})
    assert json.loads(text) == {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}


# -- errors -------------------------------------------------------------------------------------------------------


def test_the_codes_are_those_of_the_specification() -> None:
    assert (errors.PARSE_ERROR, errors.INVALID_REQUEST, errors.METHOD_NOT_FOUND) == (-32700, -32600, -32601)
    assert (errors.INVALID_PARAMS, errors.INTERNAL_ERROR) == (-32602, -32603)
    assert (errors.HEADER_MISMATCH, errors.MISSING_CLIENT_CAPABILITY) == (-32020, -32021)
    assert errors.UNSUPPORTED_PROTOCOL_VERSION == -32022


@pytest.mark.parametrize("code", [True, 1.0, "1", None])
def test_the_code_of_an_error_is_an_integer(code: Any) -> None:
    with pytest.raises(TypeError, match="code"):
        McpError(code, "m")


@pytest.mark.parametrize("message", [None, 1, b"m", ["m"]])
def test_the_message_of_an_error_is_a_string(message: Any) -> None:
    with pytest.raises(TypeError, match="message"):
        McpError(1, message)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (McpError(-32602, "m"), 200),
        (McpError(-32603, "m"), 200),
        (McpError(-32700, "m"), 200),
        (McpError(-32020, "m"), 400),
        (McpError(-32021, "m"), 400),
        (McpError(-32022, "m"), 400),
        (EnvelopeError(404, -32601, "m"), 404),
        (EnvelopeError(429, -32603, "m"), 429),
        (InvalidEnvelope("m"), 400),
    ],
)
def test_each_error_travels_with_its_http_status(error: McpError, status: int) -> None:
    assert http_status_of(error) == status


def test_a_missing_capability_names_what_is_required() -> None:
    assert missing_capability({"roots": {}}, "Needs roots").payload() == {
        "code": -32021,
        "message": "Needs roots",
        "data": {"requiredCapabilities": {"roots": {}}},
    }


def test_an_error_reads_well_in_a_log() -> None:
    assert str(invalid_params("Unknown tool: x")) == "Unknown tool: x (-32602)"


def test_an_internal_error_says_nothing_of_the_inside() -> None:
    assert internal_error().payload() == {"code": -32603, "message": "Internal error"}
