"""The shapes of a task on the wire: which members, of which types, and the payloads as they were stored."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_tasks import lifecycle
from mcp_tasks.protocol.capabilities import RELATED_TASK_KEY
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.protocol.tasks import (
    CANCELLED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    TERMINAL,
    WORKING,
    WireTask,
    is_task_id,
    responses_of,
    task_id_of,
    timestamp,
)

AT = datetime(2026, 7, 28, 12, 0, 0, 123999, tzinfo=UTC)
TASK = WireTask(
    status=WORKING, status_message=None, created_at=AT, updated_at=AT, ttl_ms=3_600_000, poll_interval_ms=1000
)
PAYLOADS = {
    "input_requests": '{"k":{"method":"roots/list"}}',
    "result": '{"content":[],"resultType":"complete"}',
    "error": '{"code":-32603,"message":"Internal error"}',
}
META = '{"server":1}'
PLAIN = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta"}


def full(status: str, **more: Any) -> WireTask:
    """A task that has every payload at once, as no task ever has."""
    return replace(TASK, status=status, **PAYLOADS, **more)


@pytest.mark.parametrize("status", lifecycle.STATUSES)
def test_a_create_result_is_flat_and_never_has_a_payload(status: str) -> None:
    shown = json.loads(full(status).create_result("the-id", META))
    assert set(shown) == PLAIN
    assert shown["resultType"] == "task"
    assert shown["taskId"] == "the-id"
    assert shown["status"] == status


@pytest.mark.parametrize(
    ("status", "member", "value"),
    [
        (WORKING, None, None),
        (INPUT_REQUIRED, "inputRequests", {"k": {"method": "roots/list"}}),
        (COMPLETED, "result", {"content": [], "resultType": "complete"}),
        (FAILED, "error", {"code": -32603, "message": "Internal error"}),
        (CANCELLED, None, None),
    ],
)
def test_a_detailed_task_has_the_payload_of_its_status_and_no_other(
    status: str, member: str | None, value: Any
) -> None:
    shown = json.loads(full(status).detailed("the-id", META))
    assert shown["resultType"] == "complete"
    assert set(shown) == PLAIN | ({member} if member else set())
    if member:
        assert shown[member] == value


def test_a_payload_is_spliced_in_as_the_text_that_was_stored() -> None:
    text = '{"b":1E2,"a":"\\ud800","b":10000000000000000000000000000000000000001}'
    assert f'"result":{text}' in replace(TASK, status=COMPLETED, result=text).detailed("the-id", META)


@pytest.mark.parametrize("status", lifecycle.STATUSES)
@pytest.mark.parametrize("method", ["create_result", "detailed"])
def test_nothing_is_null_but_a_ttl(status: str, method: str) -> None:
    shown = json.loads(getattr(full(status, ttl_ms=None), method)("the-id", META))
    assert {name for name, value in shown.items() if value is None} == {"ttlMs"}


def test_a_ttl_is_shown_also_where_there_is_none() -> None:
    assert '"ttlMs":null' in replace(TASK, ttl_ms=None).detailed("the-id", META)


@pytest.mark.parametrize("method", ["create_result", "detailed"])
def test_times_in_milliseconds_are_integers(method: str) -> None:
    shown = json.loads(getattr(replace(TASK, ttl_ms=604_800_000, poll_interval_ms=1), method)("the-id", META))
    assert (shown["ttlMs"], type(shown["ttlMs"])) == (604_800_000, int)
    assert (shown["pollIntervalMs"], type(shown["pollIntervalMs"])) == (1, int)
    assert not {"ttl", "pollInterval", "task"} & set(shown)


@pytest.mark.parametrize("message", ["", "Reading rows", '"quoted"', "line\nbreak", "é\U0001f600", "\ufffd"])
def test_a_status_message_is_shown_where_there_is_one(message: str) -> None:
    assert json.loads(replace(TASK, status_message=message).detailed("i", META))["statusMessage"] == message


def test_the_meta_of_the_task_and_of_the_server_are_one_object() -> None:
    shown = json.loads(replace(TASK, meta='{"mine":{"a":[1]}}').detailed("the-id", META))
    assert shown["_meta"] == {"mine": {"a": [1]}, "server": 1}
    assert json.loads(replace(TASK, meta="{}").create_result("the-id", "{}"))["_meta"] == {}


@pytest.mark.parametrize("status", lifecycle.STATUSES)
def test_a_task_is_named_by_its_id_and_not_by_a_related_task(status: str) -> None:
    text = full(status).detailed("the-id", META) + full(status).create_result("the-id", META)
    assert RELATED_TASK_KEY not in text
    assert "requestState" not in text


@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_any_message_makes_valid_json_in_utf_8(task_id: str, message: str) -> None:
    text = replace(TASK, status_message=message).detailed(task_id, META)
    text.encode("utf-8")
    json.loads(text)


# -- timestamps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (AT, "2026-07-28T12:00:00.123Z"),
        (datetime(2026, 7, 28, tzinfo=UTC), "2026-07-28T00:00:00.000Z"),
        (datetime(2026, 7, 28, 0, 0, 0, 999, tzinfo=UTC), "2026-07-28T00:00:00.000Z"),
        (datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "2026-12-31T23:59:59.999Z"),
        (datetime(2026, 7, 28, 1, 0, tzinfo=timezone(timedelta(hours=2))), "2026-07-27T23:00:00.000Z"),
    ],
)
def test_a_timestamp_is_utc_with_milliseconds(at: datetime, text: str) -> None:
    assert timestamp(at) == text


moments = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2999, 1, 1), timezones=st.just(UTC))


@given(moments, moments)
def test_timestamps_sort_as_time_goes_by(one: datetime, other: datetime) -> None:
    assert (one <= other) == (timestamp(one) <= timestamp(other)) or timestamp(one) == timestamp(other)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", timestamp(one))
    assert timedelta(0) <= one - datetime.fromisoformat(timestamp(one)) < timedelta(milliseconds=1)


# -- params of tasks/* --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_id", ["A" * 43, "abcXYZ019_-" + "a" * 32])
def test_our_ids_have_a_shape(task_id: str) -> None:
    assert is_task_id(task_id)


@pytest.mark.parametrize(
    "task_id",
    ["", "A" * 42, "A" * 44, "A" * 42 + "\n", "A" * 43 + "\n", "A" * 42 + "\x00", "A" * 42 + "é", "A" * 42 + "="],
)
def test_what_has_another_shape_need_not_be_looked_up(task_id: str) -> None:
    assert not is_task_id(task_id)


@pytest.mark.parametrize("task_id", [None, 5, True, [], {}, ["a"]])
def test_a_task_id_is_a_string(task_id: Any) -> None:
    with pytest.raises(McpError, match="taskId must be a string") as caught:
        task_id_of({"taskId": task_id})
    assert caught.value.code == -32602
    with pytest.raises(McpError, match="taskId must be a string"):
        task_id_of({"task_id": "x"})


def test_any_string_may_be_asked_for() -> None:
    assert task_id_of({"taskId": ""}) == ""


@pytest.mark.parametrize("responses", [None, [], "k", 5, True])
def test_responses_are_an_object(responses: Any) -> None:
    with pytest.raises(McpError, match="inputResponses must be an object") as caught:
        responses_of({"inputResponses": responses})
    assert caught.value.code == -32602
    with pytest.raises(McpError):
        responses_of({})


@pytest.mark.parametrize("responses", [{}, {"k": None}, {"k": 5, "unknown-key": {"ignored": True}}])
def test_the_values_of_responses_are_judged_later(responses: dict[str, Any]) -> None:
    assert responses_of({"inputResponses": responses}) == responses


# -- the table of states ------------------------------------------------------------------------------------------


def test_every_phase_has_its_statuses_and_every_status_a_phase() -> None:
    assert set(lifecycle.PAIRS) == set(lifecycle.PHASES)
    assert {status for allowed in lifecycle.PAIRS.values() for status in allowed} == set(lifecycle.STATUSES)


def test_a_task_is_terminal_exactly_when_nothing_is_to_happen_any_more() -> None:
    for phase, allowed in lifecycle.PAIRS.items():
        if phase in lifecycle.LIVE:
            assert not set(allowed) & set(TERMINAL)
    assert set(lifecycle.PAIRS[lifecycle.DONE]) == set(TERMINAL)


def test_only_a_task_that_asks_is_parked() -> None:
    assert lifecycle.PAIRS[lifecycle.PARKED] == (INPUT_REQUIRED,)
    assert lifecycle.PAIRS[lifecycle.QUEUED] == (WORKING,)
