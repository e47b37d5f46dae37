"""Rates of MCP messages: off unless classes are named; then 429 with the time to wait, whatever the transport."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from rest_framework.throttling import BaseThrottle

from mcp_tasks.access.throttles import class_problem
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import CreatedTask, get_store
from mcp_tasks.testing.client import HttpAnswer, McpClient
from mcp_tasks.testing.contract_support import question
from mcp_tasks.transports.http.checks import require_servable

from .requests import draft, error_of
from .sockets import Sockets, message, sockets

__all__ = ["sockets"]

OURS = "mcp_tasks.access.throttles.ScopeThrottle"
SCOPES = ("mcp_call", "mcp_poll", "mcp_update", "mcp_listen")
MakeTask = Callable[..., CreatedTask]


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def rates(configure: Callable[..., None], settings: Any) -> Callable[..., None]:
    """Turn our class on, with these rates by scope and no limit for the others."""

    def set_rates(**given: str | None) -> None:
        configure(THROTTLE_CLASSES=[OURS])
        settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {**dict.fromkeys(SCOPES), **given}}

    return set_rates


def post(client: McpClient, method: str, params: dict[str, Any]) -> HttpAnswer:
    return client.post(client.envelope(method, params))


def is_refused(answer: HttpAnswer) -> bool:
    """Whether it is the one answer to too many requests, and whole."""
    if answer.status != 429:
        return False
    seconds = int(answer.headers["retry-after"])
    (reply,) = answer.messages()
    assert 1 <= seconds <= 60
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/json", "no-store")
    assert reply["error"]["code"] == -32603
    assert reply["error"]["data"] == {"retryAfterSeconds": seconds}
    assert set(reply) == {"jsonrpc", "id", "error"}
    return True


def test_nothing_is_counted_unless_a_class_is_named(alice: McpClient) -> None:
    for _ in range(70):
        assert alice.call_tool("add", {"a": 1, "b": 2})["resultType"] == "complete"
    assert cache._cache == {}  # type: ignore[attr-defined]


def test_calls_beyond_their_rate_are_refused_with_the_id_of_the_request(
    alice: McpClient, bob: McpClient, rates: Callable[..., None]
) -> None:
    rates(mcp_call="2/min")
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    assert [is_refused(post(alice, "tools/call", params)) for _ in range(3)] == [False, False, True]
    refused = post(alice, "tools/call", params)
    assert refused.messages()[0]["id"] == alice.envelope("x")["id"] - 1
    assert post(alice, "tools/list", {}).status == 200
    assert post(bob, "tools/call", params).status == 200


def test_a_refused_call_makes_no_task(alice: McpClient, rates: Callable[..., None]) -> None:
    rates(mcp_call="1/min")
    alice.call_tool("echo", {"text": "x"})
    with pytest.raises(McpError, match="Too many requests"):
        alice.call_tool("echo", {"text": "x"})
    assert len(list(get_store().list_tasks())) == 1


def test_polls_are_counted_for_each_task(alice: McpClient, task: MakeTask, rates: Callable[..., None]) -> None:
    rates(mcp_poll="2/min")
    one, other = task().task_id, task().task_id
    assert [is_refused(post(alice, "tasks/get", {"taskId": one})) for _ in range(3)] == [False, False, True]
    assert post(alice, "tasks/get", {"taskId": other}).status == 200
    assert post(alice, "tasks/cancel", {"taskId": one}).status == 200


def test_a_task_of_somebody_else_is_counted_like_one_that_never_was(
    bob: McpClient, task: MakeTask, rates: Callable[..., None]
) -> None:
    rates(mcp_poll="1/min")
    foreign = task("alice").task_id
    for task_id in (foreign, "A" * 43):
        assert error_of(post(bob, "tasks/get", {"taskId": task_id}))[:2] == (200, -32602)
        assert is_refused(post(bob, "tasks/get", {"taskId": task_id}))


@pytest.mark.parametrize("params", [{}, {"taskId": 7}, {"taskId": "no id"}, {"taskId": None}])
def test_polls_that_name_no_task_are_counted_together(
    alice: McpClient, rates: Callable[..., None], params: dict[str, Any]
) -> None:
    rates(mcp_poll="1/min")
    assert post(alice, "tasks/get", {"taskId": "not one"}).status == 200
    assert is_refused(post(alice, "tasks/get", params))


def test_answers_and_cancellations_share_a_rate(alice: McpClient, task: MakeTask, rates: Callable[..., None]) -> None:
    rates(mcp_update="2/min")
    made = task()
    get_store().claim(made.ref)
    get_store().require_input(made.ref, {"a": question("a")}, leg=1)
    params = {"taskId": made.task_id, "inputResponses": {}}
    assert post(alice, "tasks/update", params).status == 200
    assert post(alice, "tasks/cancel", {"taskId": made.task_id}).status == 200
    assert is_refused(post(alice, "tasks/update", params))
    assert is_refused(post(alice, "tasks/cancel", {"taskId": made.task_id}))
    assert post(alice, "tasks/get", {"taskId": made.task_id}).status == 200


def test_streams_are_counted_when_they_are_opened(alice: McpClient, rates: Callable[..., None], adapter: str) -> None:
    rates(mcp_listen="1/min")
    params: dict[str, Any] = {"notifications": "wrong"}  # refused, so that it does not stay open
    first = post(alice, "subscriptions/listen", params)
    assert first.status == (404 if adapter == "view-wsgi" else 200)
    assert is_refused(post(alice, "subscriptions/listen", params))


def test_a_client_of_the_older_era_is_counted_too(alice: McpClient, rates: Callable[..., None]) -> None:
    rates(mcp_call="1/min")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    old = {"MCP-Protocol-Version": "2025-11-25"}
    assert alice.post(call, old).status == 200
    assert is_refused(alice.post(call, old))


def test_notifications_and_what_is_no_message_count_nothing(alice: McpClient, rates: Callable[..., None]) -> None:
    rates(mcp_call="1/min")
    notice = alice.envelope("tools/call", {"name": "add"})
    del notice["id"]
    for body in (notice, [notice], {"id": 1}, 7, b"{"):
        assert alice.post(body, alice.headers(notice)).status in (202, 400)
    assert post(alice, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}).status == 200


@pytest.mark.usefixtures("open_to_all")
def test_anonymous_callers_are_told_apart_by_their_address(wire: Any, rates: Callable[..., None]) -> None:
    rates(mcp_call="1/min")
    near, far = draft(), draft()
    far.headers["X-Forwarded-For"] = "203.0.113.9"
    assert [near.send(wire).status, far.send(wire).status] == [200, 200]
    assert [near.send(wire).status, far.send(wire).status] == [429, 429]


def test_a_token_of_the_same_user_is_the_same_caller_whatever_the_address(
    alice: McpClient, rates: Callable[..., None]
) -> None:
    rates(mcp_call="1/min")
    message = alice.envelope("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert alice.post(message, {"X-Forwarded-For": "203.0.113.1"}).status == 200
    assert alice.post(message, {"X-Forwarded-For": "203.0.113.2"}).status == 429


def test_without_rates_of_the_project_polls_have_twice_the_asked_rate(
    alice: McpClient, task: MakeTask, configure: Callable[..., None], settings: Any
) -> None:
    configure(THROTTLE_CLASSES=[OURS], POLL_INTERVAL_MS=30_000)
    settings.REST_FRAMEWORK = {}
    task_id = task().task_id
    statuses = [post(alice, "tasks/get", {"taskId": task_id}).status for _ in range(5)]
    assert statuses == [200] * 4 + [429]


@pytest.mark.parametrize(
    ("path", "scope"),
    [("rest_framework.throttling.UserRateThrottle", "user"), ("rest_framework.throttling.ScopedRateThrottle", None)],
)
def test_classes_of_drf_do_as_well(
    alice: McpClient, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, path: str, scope: str | None
) -> None:
    from rest_framework.throttling import SimpleRateThrottle

    configure(THROTTLE_CLASSES=[path])
    rates = {scope or "mcp_call": "1/min", **({} if scope else dict.fromkeys(SCOPES[1:]))}
    monkeypatch.setattr(SimpleRateThrottle, "THROTTLE_RATES", rates)
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    assert post(alice, "tools/call", params).status == 200
    assert is_refused(post(alice, "tools/call", params))
    # One that knows no scopes counts every method.
    assert post(alice, "tools/list", {}).status == (200 if scope is None else 429)


class Busy(BaseThrottle):
    """Never lets anybody in, and does not know for how long."""

    def allow_request(self, request: Any, view: Any) -> bool:
        assert request.user.is_authenticated
        return False


class Patient(Busy):
    def wait(self) -> float:
        return 7.2


class Broken(BaseThrottle):
    def allow_request(self, request: Any, view: Any) -> bool:
        raise OSError("the cache is gone")


def test_the_longest_wait_counts_rounded_up(alice: McpClient, configure: Callable[..., None]) -> None:
    configure(THROTTLE_CLASSES=[f"{__name__}.Busy"])
    assert post(alice, "tools/list", {}).headers["retry-after"] == "1"
    configure(THROTTLE_CLASSES=[f"{__name__}.Busy", f"{__name__}.Patient"])
    assert post(alice, "tools/list", {}).headers["retry-after"] == "8"


def test_a_throttle_that_fails_refuses_and_says_nothing_of_the_inside(
    alice: McpClient, configure: Callable[..., None]
) -> None:
    configure(THROTTLE_CLASSES=[f"{__name__}.Broken"])
    with pytest.raises(McpError, match=r"^Internal error \(-32603\)$"):
        alice.call_tool("add", {"a": 1, "b": 2})


def test_neither_ids_nor_owners_reach_the_cache(alice: McpClient, task: MakeTask, rates: Callable[..., None]) -> None:
    rates(mcp_poll="5/min")
    made = task()
    post(alice, "tasks/get", {"taskId": made.task_id})
    (key,) = cache._cache  # type: ignore[attr-defined]
    assert key.startswith(":1:throttle_mcp_poll_")
    assert not any(part in key for part in (made.task_id, str(made.ref), "alice"))


def test_a_socket_is_told_in_the_message(sockets: Sockets, rates: Callable[..., None], task: MakeTask) -> None:
    rates(mcp_poll="1/min", mcp_listen="1/min")
    made = task("alice")
    socket = sockets.open("alice")
    replies = [
        socket.ask(message("tasks/get", {"taskId": made.task_id}, request_id=number)) for number in ("one", "two")
    ]
    assert replies[0]["result"]["status"] == "working"
    assert replies[1]["id"] == "two"
    assert replies[1]["error"]["code"] == -32603
    assert 1 <= replies[1]["error"]["data"]["retryAfterSeconds"] <= 60
    sockets.listening(made.task_id, socket=socket)
    again = socket.ask(message("subscriptions/listen", {"notifications": {}}, request_id="again"))
    assert again["error"]["message"].startswith("Too many requests")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (OURS, None),
        ("rest_framework.throttling.AnonRateThrottle", None),
        ("rest_framework.throttling.Nothing", "cannot be imported"),
        ("rest_framework.permissions.IsAdminUser", "is no DRF throttle class"),
        ("mcp_tasks.access.throttles.count", "is no DRF throttle class"),
    ],
)
def test_a_wrong_class_stops_what_serves(configure: Callable[..., None], path: str, problem: str | None) -> None:
    configure(THROTTLE_CLASSES=[path])
    if problem is None:
        require_servable()
        assert class_problem(path) is None
        return
    with pytest.raises(ImproperlyConfigured, match=problem):
        require_servable()
