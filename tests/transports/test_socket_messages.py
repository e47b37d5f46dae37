"""Requests on a WebSocket: every method, answers in any order, cancellation, and messages that are none."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType

from mcp_tasks import TaskContext
from mcp_tasks.models import Task
from mcp_tasks.protocol.codec import dumps
from mcp_tasks.rpc.methods import table
from mcp_tasks.store import CreatedTask, get_store
from mcp_tasks.testing.contract_support import question
from mcp_tasks.transports.websocket import consumers, conversation
from tests.support.push import PATIENCE, Socket, soon
from tests.support.stage import Stage

from .sockets import Sockets, call, cancel, listen_to, message, sockets

__all__ = ["sockets"]

MakeTask = Callable[..., CreatedTask]
IDEMPOTENCY_KEY = "django-mcp-tasks/idempotencyKey"


@pytest.fixture
def stage(mcp_tools: Callable[..., Any]) -> Stage:
    stage = Stage()

    @mcp_tools(task="never")
    def patient(ctx: TaskContext) -> str:
        ctx.progress("begun", done=1)
        stage.play(ctx)
        return "done"

    @mcp_tools(inline_first=True)
    def becoming(ctx: TaskContext) -> str:
        if ctx.ref is None:
            stage.play(ctx)
        ctx.become_task()
        return "done"

    return stage


# -- every method -------------------------------------------------------------------------------------------------


def test_every_method_of_the_table_is_answered(
    sockets: Sockets, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket, made = sockets.open(), task()
    get_store().require_input(made.ref, {"sure": question()})
    params: dict[str, Any] = {
        "server/discover": {},
        "tools/list": {},
        "tools/call": {"name": "add", "arguments": {"a": 2, "b": 3}},
        "tasks/get": {"taskId": made.task_id},
        "tasks/update": {"taskId": made.task_id, "inputResponses": {"sure": {"action": "decline"}}},
        "tasks/cancel": {"taskId": made.task_id},
        "subscriptions/listen": {"notifications": {"toolsListChanged": True}},
    }
    ours = {name for name, method in table.methods.items() if method.handler is not None}
    assert ours == set(params)
    for number, (name, given) in enumerate(params.items()):
        socket.send(message(name, given, request_id=number))
        answer = socket.next()
        if name == "subscriptions/listen":
            assert answer["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
        else:
            assert answer["id"] == number
            assert answer["result"]["resultType"] == "complete"
    seen = get_store().get_task(made.ref)
    assert seen is not None
    assert seen.status == "cancelled"


def test_a_socket_can_push_and_says_so(sockets: Sockets) -> None:
    capabilities = sockets.open().ask(message("server/discover"))["result"]["capabilities"]
    assert capabilities["tools"] == {"listChanged": True}


def test_a_task_is_made_followed_and_read_on_one_socket(sockets: Sockets) -> None:
    socket = sockets.open()
    created = socket.ask(call("echo", {"text": "x"}))["result"]
    assert created["resultType"] == "task"
    sockets.listening(created["taskId"], socket=socket)
    get_store().complete_task(Task.objects.get().ref, {"content": []})
    assert socket.next()["params"]["status"] == "completed"


def test_progress_comes_before_the_answer_under_the_clients_own_token(sockets: Sockets, stage: Stage) -> None:
    socket = sockets.open()
    stage.release.set()
    socket.send(call("patient", request_id="c", progressToken="p"))
    note, answer = socket.next(), socket.next()
    assert (note["method"], note["params"]["progressToken"]) == ("notifications/progress", "p")
    assert answer["id"] == "c"


def test_the_older_era_is_answered_as_over_http(sockets: Sockets) -> None:
    socket = sockets.open()
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    answer = socket.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
    assert "ttlMs" not in answer["result"], "a message that names no version is of the older era"
    assert "tools" in answer["result"]
    answer = socket.ask({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": params})
    assert answer["result"]["protocolVersion"] == "2025-11-25"


# -- several at once ----------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_in_which_they_are_ready(sockets: Sockets, stage: Stage) -> None:
    socket = sockets.open()
    socket.send(call("patient", request_id="slow"))
    assert stage.begun.wait(5)
    assert socket.ask(call("add", {"a": 1, "b": 2}, request_id="quick"))["result"]["content"][0]["text"] == "3"
    stage.release.set()
    assert socket.next()["id"] == "slow"


@pytest.mark.parametrize("request_id", ["x", 1, ""])
def test_an_id_that_is_in_flight_may_not_be_used_again_and_may_later(
    sockets: Sockets, stage: Stage, request_id: Any
) -> None:
    socket = sockets.open()
    socket.send(call("patient", request_id=request_id))
    assert stage.begun.wait(5)
    refused = socket.ask(call("add", {"a": 1, "b": 2}, request_id=request_id))
    assert refused["error"]["code"] == -32600
    stage.release.set()
    assert socket.next()["result"]["content"][0]["text"] == "done"
    assert "result" in socket.ask(call("add", {"a": 1, "b": 2}, request_id=request_id))


def test_the_id_of_an_open_subscription_is_in_flight_too(sockets: Sockets) -> None:
    socket = sockets.open()
    socket.send(listen_to({}, request_id="L"))
    socket.next()
    assert socket.ask(message("tools/list", request_id="L"))["error"]["code"] == -32600


def test_a_number_and_its_text_are_two_ids(sockets: Sockets, stage: Stage) -> None:
    socket = sockets.open()
    socket.send(call("patient", request_id=1))
    assert stage.begun.wait(5)
    assert "result" in socket.ask(message("tools/list", request_id="1"))
    stage.release.set()
    assert socket.next()["id"] == 1


def test_the_same_id_on_two_sockets_are_two_requests(sockets: Sockets, stage: Stage) -> None:
    first, second = sockets.open(), sockets.open()
    first.send(call("patient", request_id=1))
    assert stage.begun.wait(5)
    assert "result" in second.ask(message("tools/list", request_id=1))
    second.send(cancel(1))
    assert second.is_silent(0.1)
    assert not stage.ended.is_set(), "only what is in flight on this very socket is cancelled"
    stage.release.set()
    assert first.next()["id"] == 1


# -- cancellation -------------------------------------------------------------------------------------------------


def test_a_cancelled_call_has_its_token_raised_and_is_not_answered(sockets: Sockets, stage: Stage) -> None:
    socket = sockets.open()
    socket.send(call("patient", request_id=1))
    assert stage.begun.wait(5)
    socket.send(cancel(1))
    assert stage.ended.wait(5)
    assert stage.reason == "disconnected"
    assert socket.is_silent()
    assert "result" in socket.ask(message("tools/list", request_id=1)), "and its id is free again"


@pytest.mark.parametrize("named", ["other", 2, True, None, 1.0, ["x"], {"x": 1}])
def test_a_cancellation_of_something_else_does_nothing(sockets: Sockets, stage: Stage, named: Any) -> None:
    socket = sockets.open()
    socket.send(call("patient", request_id=1))
    assert stage.begun.wait(5)
    socket.send(cancel(named))
    for params in (None, [], "x", {}):
        socket.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    assert socket.is_silent(0.2)
    assert not stage.ended.is_set()
    stage.release.set()
    assert socket.next()["id"] == 1


def test_the_id_of_the_call_that_made_a_task_cancels_no_task(sockets: Sockets) -> None:
    socket = sockets.open()
    created = socket.ask(call("echo", {"text": "x"}, request_id="made"))["result"]
    for named in ("made", created["taskId"]):
        socket.send(cancel(named))
    assert socket.is_silent()
    assert Task.objects.get().status == "working"
    assert Task.objects.get().cancel_requested_at is None


def test_a_call_that_made_a_task_after_it_was_cancelled_leaves_no_task(sockets: Sockets, stage: Stage) -> None:
    socket = sockets.open()
    socket.send(call("becoming", request_id=1))
    assert stage.begun.wait(5)
    socket.send(cancel(1))
    assert soon(lambda: Task.objects.filter(status="cancelled").exists())
    assert socket.is_silent()
    assert Task.objects.count() == 1


class SlowToMake:
    """Holds the creation of a task until a test lets it go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        real = get_store().create_task

        def create_task(*arguments: Any, **options: Any) -> Any:
            self.begun.set()
            assert self.release.wait(10)
            return real(*arguments, **options)

        monkeypatch.setattr(get_store(), "create_task", create_task)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_task_whose_maker_did_not_wait_to_hear_of_it_is_cancelled(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    making, socket = SlowToMake(monkeypatch), sockets.open()
    socket.send(call("echo", {"text": "x"}, request_id=1))
    assert making.begun.wait(5)
    if how == "cancelled":
        socket.send(cancel(1))
        assert socket.is_silent(0.2)
    else:
        socket.leave()
    making.release.set()
    assert soon(lambda: Task.objects.filter(status="cancelled").exists())


def test_under_an_idempotency_key_the_task_lives(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    making, socket = SlowToMake(monkeypatch), sockets.open()
    socket.send(call("echo", {"text": "x"}, request_id=1, **{IDEMPOTENCY_KEY: "k"}))
    assert making.begun.wait(5)
    socket.leave()
    making.release.set()
    assert soon(Task.objects.exists)
    time.sleep(0.2)
    assert Task.objects.get().status == "working"


def test_a_socket_that_is_closed_raises_the_tokens_of_its_calls(sockets: Sockets, stage: Stage) -> None:
    socket = sockets.open()
    socket.send(call("patient", request_id=1))
    assert stage.begun.wait(5)
    socket.leave()
    assert stage.ended.wait(5)
    assert stage.reason == "disconnected"


def test_a_closed_socket_leaves_tasks_alone_that_its_client_knows(sockets: Sockets) -> None:
    socket = sockets.open()
    socket.ask(call("echo", {"text": "x"}))
    socket.leave()
    time.sleep(0.1)
    assert Task.objects.get().status == "working"


def test_a_cancellation_does_not_overtake_its_request(sockets: Sockets, stage: Stage) -> None:
    socket = sockets.open()
    large = call("patient", {}, request_id=1, **{"com.example/padding": [["x"]] * 250_000})
    assert len(dumps(large)) < 4 * 1024 * 1024
    socket.send(large)
    socket.send(cancel(1))
    assert not stage.begun.wait(2.0) or stage.ended.wait(2.0)
    assert stage.reason in (None, "disconnected")
    stage.release.set()
    assert socket.is_silent(0.5), "a cancelled request is not answered"


# -- what is no message -------------------------------------------------------------------------------------------


def _padded(size: int) -> str:
    text = dumps(message("server/discover"))
    return text + " " * (size - len(text))


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"{}", -32600),
        (b"", -32600),
        ("", -32700),
        ("{", -32700),
        ('{"a":NaN}', -32700),
        ("[" * 200, -32700),
        ("[]", -32600),
        ("null", -32600),
        ("1", -32600),
        ([{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}], -32600),
        ({"id": 1, "method": "tools/list"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600),
        ({"jsonrpc": "2.0", "id": True, "method": "tools/list"}, -32600),
        ({"jsonrpc": "2.0", "id": None, "method": "tools/list"}, -32600),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}, -32600),
    ],
    ids=str,
)
def test_what_is_no_message_is_an_error_and_the_socket_stays_open(sockets: Sockets, frame: Any, code: int) -> None:
    socket = sockets.open()
    socket.send(frame)
    assert socket.next()["error"]["code"] == code
    assert "result" in socket.ask(message("server/discover", request_id=2))


def test_what_is_too_large_is_an_error_and_what_is_not_is_answered(
    sockets: Sockets, configure: Callable[..., None]
) -> None:
    configure(LIMITS={"REQUEST_BYTES": 2048})
    socket = sockets.open()
    socket.send(_padded(2048))
    assert "result" in socket.next()
    socket.send(_padded(2049))
    error = socket.next()["error"]
    assert (error["code"], "2048" in error["message"]) == (-32600, True)
    socket.send(dumps(message("server/discover", {"x": "€" * 700})))
    assert socket.next()["error"]["code"] == -32600, "counted in bytes"
    assert "result" in socket.ask(message("server/discover", request_id=3))


@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/whatever", "tools/call"])
def test_a_notification_is_not_answered(sockets: Sockets, method: str) -> None:
    socket = sockets.open()
    socket.send({"jsonrpc": "2.0", "method": method, "params": {}})
    assert socket.is_silent(0.2)
    assert "result" in socket.ask(message("server/discover"))


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda sent: sent.update(method="no/such"), -32601),
        (lambda sent: sent["params"].pop("_meta"), -32601),
        (
            lambda sent: sent["params"]["_meta"].update({"io.modelcontextprotocol/protocolVersion": "1999-01-01"}),
            -32022,
        ),
        (lambda sent: sent["params"]["_meta"].update({"io.modelcontextprotocol/clientCapabilities": {}}), -32021),
    ],
    ids=["method", "of the older era", "version", "capability"],
)
def test_a_request_needs_all_that_it_needs_over_http(
    sockets: Sockets, task: MakeTask, spoil: Callable[[Any], Any], code: int
) -> None:
    socket = sockets.open()
    sent = message("tasks/get", {"taskId": task().task_id})
    spoil(sent)
    answer = socket.ask(sent)
    assert answer["error"]["code"] == code


def test_nothing_is_remembered_of_an_earlier_frame(sockets: Sockets, task: MakeTask) -> None:
    socket, made = sockets.open(), task()
    assert "result" in socket.ask(message("tasks/get", {"taskId": made.task_id}))
    bare = message("tasks/get", {"taskId": made.task_id}, request_id=2)
    bare["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {}
    assert socket.ask(bare)["error"]["code"] == -32021


def test_a_foreign_task_is_a_missing_one(sockets: Sockets, task: MakeTask) -> None:
    socket, foreign = sockets.open(), task("bob")
    for method in ("tasks/get", "tasks/cancel"):
        answers = [socket.ask(message(method, {"taskId": task_id}))["error"] for task_id in (foreign.task_id, "A" * 43)]
        assert answers[0] == answers[1]
    seen = get_store().get_task(foreign.ref)
    assert seen is not None
    assert seen.status == "working"


def test_a_request_beyond_what_may_be_in_flight_is_refused_until_there_is_room(
    sockets: Sockets, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "IN_FLIGHT", 2)
    socket = sockets.open()
    for number in range(2):
        socket.send(call("patient", request_id=number))
    assert stage.begun.wait(5)
    refused = socket.ask(message("server/discover", request_id="late"))["error"]
    assert refused["code"] == -32603
    assert "2 requests are in flight" in refused["message"]
    stage.release.set()
    assert {socket.next()["id"] for _ in range(2)} == {0, 1}
    assert "result" in socket.ask(message("server/discover", request_id="late"))


def test_a_fault_of_ours_is_an_answer_and_the_socket_stays_open(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    socket = sockets.open()
    with monkeypatch.context() as patched:
        patched.setattr(conversation, "serve_message", broken)
        assert socket.ask(message("server/discover"))["error"]["code"] == -32603
    assert "result" in socket.ask(message("server/discover"))


# -- a socket that is full ----------------------------------------------------------------------------------------


@pytest.fixture
def full(sockets: Sockets, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Socket:
    """A socket with as many calls as it may have in flight."""
    monkeypatch.setattr(conversation, "IN_FLIGHT", 2)
    socket = sockets.open()
    for number in range(2):
        socket.send(call("patient", request_id=number))
    assert stage.begun.wait(5)
    return socket


def test_a_notification_is_not_answered_by_a_full_socket_either(full: Socket) -> None:
    full.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})
    assert full.is_silent()


def test_a_client_can_cancel_what_keeps_its_socket_full(full: Socket, stage: Stage) -> None:
    full.send(cancel(0))
    assert stage.ended.wait(PATIENCE)
    assert stage.reason == "disconnected"


def test_a_client_that_leaves_a_full_socket_stops_its_calls(full: Socket, stage: Stage) -> None:
    full.hang_up()
    assert stage.ended.wait(PATIENCE)
    assert stage.reason == "disconnected"


def test_a_lost_credential_stops_calls_though_its_client_never_closes(sockets: Sockets, stage: Stage) -> None:
    socket = sockets.open()
    socket.send(call("patient", request_id=1))
    assert stage.begun.wait(5)
    User.objects.update(is_active=False)
    socket.send(message("server/discover", request_id=2))
    assert socket.took()["type"] == "websocket.close"
    assert stage.ended.wait(PATIENCE)
    assert stage.reason == "disconnected"


def test_a_call_that_nobody_had_looked_at_when_its_socket_was_closed_is_stopped(
    sockets: Sockets, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Event(), threading.Event()
    real = consumers.loads

    def slow(text: Any) -> Any:
        begun.set()
        assert release.wait(10)
        return real(text)

    monkeypatch.setattr(consumers, "loads", slow)
    monkeypatch.setattr(consumers, "SHORT", -1)  # parsed on a thread, as long messages are
    socket = sockets.open()
    socket.send(call("patient"))
    assert begun.wait(5)
    socket.hang_up()
    release.set()
    assert not stage.begun.wait(1) or stage.ended.wait(PATIENCE), "it is never begun, or told to stop"
    stage.release.set()


# -- rights -------------------------------------------------------------------------------------------------------


def test_a_right_that_is_taken_away_is_gone_with_the_next_request(
    sockets: Sockets, mcp_tools: Callable[..., Any]
) -> None:
    @mcp_tools(task="never", permission="mcp_tasks.view_task")
    def guarded() -> str:
        return "inside"

    ContentType.objects.clear_cache()
    socket = sockets.open()
    assert socket.ask(call("guarded"))["error"]["code"] == -32602
    content_type = ContentType.objects.get_for_model(Task)
    right, _ = Permission.objects.get_or_create(codename="view_task", content_type=content_type)
    user = User.objects.get(username="alice")
    user.user_permissions.add(right)
    assert socket.ask(call("guarded"))["result"]["content"][0]["text"] == "inside"
    user.user_permissions.clear()
    assert socket.ask(call("guarded"))["error"]["code"] == -32602
