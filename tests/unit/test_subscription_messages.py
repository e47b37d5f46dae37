"""The texts of a subscription: valid JSON around any id, the same for all who listen."""

import json
from typing import Any

import mcp_types
import pytest

from mcp_tasks.protocol.codec import dumps
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.protocol.subscriptions import (
    MAX_TASK_IDS,
    Filter,
    acknowledged,
    ended,
    filter_of,
    frame,
    list_changed,
    too_many,
    wants_tasks,
)
from mcp_tasks.transports.http.streams import event, events

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
IDS = ["L-1", "", "1", 1, 0, -1, 2**63, 'a"b\\c', "\u2028\u2029\x85", "\ud800", "\n\r\x00", "💡", "{}", '"}}']


@pytest.mark.parametrize("request_id", IDS)
@pytest.mark.parametrize(
    "made",
    [
        acknowledged((), ()),
        acknowledged(("tools", "prompts"), ("T1", "T\u20282")),
        list_changed("resources"),
        frame("notifications/tasks", '"status":"working"', '{"k":[1,null],"z":"\u2028"}'),
        frame("notifications/x"),
    ],
    ids=["nothing", "acknowledged", "list", "meta", "bare"],
)
def test_every_message_is_json_with_the_id_as_it_was(made: Any, request_id: Any) -> None:
    message = json.loads(made.text(dumps(request_id)))
    found = message["params"]["_meta"][SUBSCRIPTION_ID]
    assert (found, type(found)) == (request_id, type(request_id))
    assert message["jsonrpc"] == "2.0"
    assert next(iter(message["params"]["_meta"])) == SUBSCRIPTION_ID


@pytest.mark.parametrize("request_id", IDS)
def test_several_messages_are_events_of_one_line_each_however_often_they_are_encoded(request_id: Any) -> None:
    frames = [list_changed("tools"), frame("notifications/tasks", '"x":"\u2028\u2029\x85"')]
    body = events(frames, dumps(request_id))
    assert body == b"".join(event(made.text(dumps(request_id))) for made in frames)
    assert events(frames, dumps(request_id)) == body
    lines = body.decode("utf-8", "surrogatepass").splitlines()
    assert lines[::3] == ["event: message"] * 2
    assert [json.loads(line.removeprefix("data: "))["jsonrpc"] for line in lines[1::3]] == ["2.0", "2.0"]
    assert lines[2::3] == ["", ""]


def test_one_frame_serves_subscriptions_of_many_ids() -> None:
    made = list_changed("tools")
    bodies = {events([made], dumps(request_id)) for request_id in (1, "1", "x")}
    assert len(bodies) == 3
    assert made.encoded is not None


def test_the_acknowledgement_says_what_is_honoured_and_no_more() -> None:
    said = json.loads(acknowledged(("tools",), ()).text('"L"'))["params"]["notifications"]
    assert said == {"toolsListChanged": True}
    said = json.loads(acknowledged((), ("b", "a")).text('"L"'))["params"]["notifications"]
    assert said == {"taskIds": ["b", "a"]}


@pytest.mark.parametrize("request_id", [1, "L"])
def test_the_result_is_what_the_schema_wants(request_id: Any) -> None:
    message = json.loads(ended(request_id, {"name": "acme", "version": "1"}))
    assert message["id"] == request_id
    result = message["result"]
    assert result["resultType"] == "complete"
    assert result["_meta"][SUBSCRIPTION_ID] == request_id
    mcp_types.SubscriptionsListenResult.model_validate(result)


def test_a_filter_is_read_without_duplicates_in_the_clients_order() -> None:
    wanted = {"taskIds": ["b", "a", "b"], "promptsListChanged": True, "toolsListChanged": True, "other": 5}
    assert filter_of({"notifications": wanted}) == Filter(("tools", "prompts"), ("b", "a"))
    assert filter_of({"notifications": {}}) == Filter((), ())


def test_so_many_ids_and_no_more() -> None:
    ids = [str(number) for number in range(MAX_TASK_IDS)]
    assert len(filter_of({"notifications": {"taskIds": ids}}).task_ids) == MAX_TASK_IDS == 1000
    with pytest.raises(McpError) as refused:
        filter_of({"notifications": {"taskIds": [*ids, "one more"]}})
    assert refused.value.code == -32602
    assert "1000" in refused.value.message


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({}, False),
        ({"notifications": None}, False),
        ({"notifications": []}, False),
        ({"notifications": {}}, False),
        ({"notifications": {"taskIds": []}}, False),
        ({"notifications": {"taskIds": ["x"]}}, True),
        ({"notifications": {"taskIds": "x"}}, True),
    ],
)
def test_tasks_are_wanted_by_any_filter_that_names_some(params: Any, wanted: bool) -> None:
    assert wants_tasks(params) is wanted


def test_too_many_streams_is_an_internal_error_with_a_way_out() -> None:
    assert too_many(32).code == -32603
    assert "32" in too_many(32).message
