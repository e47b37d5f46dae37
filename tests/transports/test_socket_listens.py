"""Subscriptions on a WebSocket: each by its id, ended one by one, and none after the credential is lost."""

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from rest_framework.authtoken.models import Token

from mcp_tasks import TaskContext
from mcp_tasks.access.credentials import Credential
from mcp_tasks.models import Task
from mcp_tasks.notifications import list_changed
from mcp_tasks.notifications.hub import hub
from mcp_tasks.notifications.places import places
from mcp_tasks.notifications.subscription import end_all
from mcp_tasks.store import CreatedTask, get_store
from mcp_tasks.transports import listening as listening_module
from mcp_tasks.transports import stopping
from mcp_tasks.transports.websocket import conversation
from tests.support.push import Socket, soon

from .listens import ACKNOWLEDGED, SERVER_INFO, SUBSCRIPTION_ID, TASKS, status_of
from .sockets import CANCELLED, ORIGIN, Sockets, call, cancel, listen_to, message, session_of, sockets

__all__ = ["sockets"]

MakeTask = Callable[..., CreatedTask]
RESULT: dict[str, Any] = {"content": []}


def of(sent: Any) -> Any:
    """The subscription that a message belongs to."""
    return sent["params"]["_meta"][SUBSCRIPTION_ID]


# -- several on one socket ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [("L-1", "L-2"), (1, "1"), ("\u2028", "\x85"), (0, "")])
def test_several_subscriptions_on_one_socket_stay_separate(sockets: Sockets, task: MakeTask, ids: Any) -> None:
    socket, first, second = sockets.open(), task(), task()
    sockets.listening(first.task_id, socket=socket, request_id=ids[0])
    sockets.listening(second.task_id, socket=socket, request_id=ids[1])
    for made, request_id in ((second, ids[1]), (first, ids[0])):
        get_store().complete_task(made.ref, RESULT)
        sent = socket.next()
        assert (sent["params"]["taskId"], sent["params"]["status"]) == (made.task_id, "completed")
        assert of(sent) == request_id
        assert type(of(sent)) is type(request_id)
    assert socket.is_silent()


def test_one_task_in_two_subscriptions_is_told_in_both(sockets: Sockets, task: MakeTask) -> None:
    socket, made = sockets.open(), task()
    for request_id in (1, 2):
        sockets.listening(made.task_id, socket=socket, request_id=request_id)
    get_store().complete_task(made.ref, RESULT)
    told = [socket.next(), socket.next()]
    assert sorted(of(sent) for sent in told) == [1, 2]
    assert [sent["params"]["status"] for sent in told] == ["completed"] * 2


def test_the_acknowledgement_is_the_first_message_of_its_subscription(sockets: Sockets, task: MakeTask) -> None:
    socket, made = sockets.open(), [task() for _ in range(3)]
    for number in range(5):
        socket.send(listen_to({"taskIds": [one.task_id for one in made], "toolsListChanged": True}, request_id=number))
        list_changed("tools")
        get_store().set_status(made[number % 3].ref, f"at {number}")
    for one in made:
        get_store().complete_task(one.ref, RESULT)
    seen: dict[Any, list[str]] = {}
    while sum(methods.count("completed") for methods in seen.values()) < 15:
        sent = socket.next()
        seen.setdefault(of(sent), []).append(status_of(sent))
    assert {methods[0] for methods in seen.values()} == {ACKNOWLEDGED}
    assert all(methods.count(ACKNOWLEDGED) == 1 for methods in seen.values())


def test_foreign_and_unknown_ids_are_left_out_as_over_http(sockets: Sockets, task: MakeTask) -> None:
    own, foreign, unowned = task(), task("bob"), task(None)
    socket = sockets.open()
    socket.send(listen_to({"taskIds": [foreign.task_id, own.task_id, "A" * 43, unowned.task_id]}))
    assert socket.next()["params"]["notifications"] == {"taskIds": [own.task_id]}
    assert socket.next()["params"]["taskId"] == own.task_id
    for made in (foreign, unowned):
        get_store().complete_task(made.ref, RESULT)
    assert socket.is_silent()


@pytest.mark.parametrize(
    ("notifications", "capabilities", "code"),
    [({"taskIds": "T"}, None, -32602), (None, None, -32602), ({"taskIds": ["T"]}, {}, -32021)],
)
def test_a_wrong_filter_is_an_error_and_opens_nothing(
    sockets: Sockets, notifications: Any, capabilities: Any, code: int
) -> None:
    socket = sockets.open()
    sent = listen_to(notifications)
    if capabilities is not None:
        sent["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities
    assert socket.ask(sent)["error"]["code"] == code
    assert socket.is_silent(0.05)


def test_a_socket_has_so_many_subscriptions(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "LISTENS", 2)
    socket = sockets.open()
    for number in range(2):
        socket.send(listen_to({}, request_id=number))
        socket.next()
    assert socket.ask(listen_to({}, request_id="third"))["error"]["code"] == -32603
    socket.send(cancel(0))
    assert socket.is_silent(0.1)
    socket.send(listen_to({}, request_id="fourth"))
    assert socket.next()["method"] == ACKNOWLEDGED


def test_the_subscriptions_of_a_socket_name_so_many_tasks_together(
    sockets: Sockets, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "HEARD_OF", 3)
    first, second = task(), task()
    socket = sockets.open()
    sockets.listening(first.task_id, second.task_id, socket=socket, request_id=1)
    wanted = {"taskIds": [first.task_id, second.task_id]}
    assert socket.ask(listen_to(wanted, request_id=2))["error"]["code"] == -32603
    sockets.listening(first.task_id, socket=socket, request_id=3)
    socket.send(listen_to({"toolsListChanged": True}, request_id=4))
    assert socket.next()["method"] == ACKNOWLEDGED, "one without tasks has room"
    socket.send(cancel(1))
    assert socket.is_silent(0.1)
    sockets.listening(first.task_id, second.task_id, socket=socket, request_id=5)


def test_open_subscriptions_take_no_room_from_requests(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "IN_FLIGHT", 2)
    socket = sockets.open()
    for number in range(6):
        socket.send(listen_to({}, request_id=f"L-{number}"))
        assert socket.next()["method"] == ACKNOWLEDGED
    assert "result" in socket.ask(message("server/discover"))


# -- ends ---------------------------------------------------------------------------------------------------------


def test_a_cancelled_subscription_falls_silent_and_touches_no_task(sockets: Sockets, task: MakeTask) -> None:
    socket, first, second = sockets.open(), task(), task()
    sockets.listening(first.task_id, socket=socket, request_id=1)
    sockets.listening(second.task_id, socket=socket, request_id=2)
    socket.send(cancel(1))
    assert soon(lambda: hub.count() == 1)
    get_store().set_status(first.ref, "Reading")
    get_store().complete_task(second.ref, RESULT)
    assert of(socket.next()) == 2
    assert socket.is_silent(), "no result, no message of the one that was cancelled"
    seen = get_store().get_task(first.ref)
    assert seen is not None
    assert (seen.status, seen.cancel_requested_at) == ("working", None)
    sockets.listening(first.task_id, socket=socket, request_id=1)


def test_a_socket_that_is_closed_ends_its_subscriptions_and_leaves_tasks_alone(
    sockets: Sockets, task: MakeTask
) -> None:
    made = task()
    socket = sockets.listening(made.task_id)
    assert places.count() == 1
    socket.leave()
    assert soon(lambda: (hub.count(), places.count()) == (0, 0))
    seen = get_store().get_task(made.ref)
    assert seen is not None
    assert (seen.status, seen.cancel_requested_at) == ("working", None)


@pytest.mark.parametrize("request_id", ["L-1", 7])
def test_a_server_that_stops_sends_the_result_and_then_the_cancellation(
    sockets: Sockets, task: MakeTask, request_id: Any
) -> None:
    socket = sockets.listening(task().task_id, request_id=request_id)
    end_all()
    result, cancelled = socket.next(), socket.next()
    assert result["id"] == request_id
    assert result["result"]["resultType"] == "complete"
    assert result["result"]["_meta"][SUBSCRIPTION_ID] == request_id
    assert result["result"]["_meta"][SERVER_INFO]["name"] == "django-mcp-tasks"
    assert cancelled == {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": request_id}}
    assert socket.close_code() == 4503, "and the client may come back, to another server"
    assert soon(lambda: (hub.count(), places.count()) == (0, 0))


def test_a_server_that_stops_closes_the_socket_after_its_last_subscription(sockets: Sockets, task: MakeTask) -> None:
    socket = sockets.open()
    for number in range(5):
        sockets.listening(task().task_id, socket=socket, request_id=number)
    end_all()
    told = [socket.next() for _ in range(10)]
    assert sorted(sent["id"] for sent in told if "result" in sent) == [*range(5)]
    assert sorted(sent["params"]["requestId"] for sent in told if "method" in sent) == [*range(5)]
    assert socket.close_code() == 4503


def test_a_server_that_stops_leaves_a_socket_without_subscriptions_to_its_server(sockets: Sockets) -> None:
    socket = sockets.open()
    end_all()
    assert "result" in socket.ask(message("server/discover"))


def test_a_subscription_that_opens_once_the_server_was_told_to_stop_is_ended_at_once(
    sockets: Sockets, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = sockets.open()
    monkeypatch.setattr(stopping, "_heard", {15})
    socket.send(listen_to({"taskIds": [task().task_id]}))
    assert socket.next()["method"] == ACKNOWLEDGED
    told = [socket.next(), socket.next()]
    if told[0].get("method") == TASKS:
        told = [told[1], socket.next()]
    assert told[0]["result"]["resultType"] == "complete"
    assert told[1]["method"] == CANCELLED
    assert socket.close_code() == 4503


def test_a_socket_that_its_server_cuts_still_tells_that_its_subscriptions_ended(
    sockets: Sockets, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = sockets.listening(task().task_id)
    monkeypatch.setattr(stopping, "_heard", {15})
    end_all()
    socket.cut()
    assert "result" in socket.next()
    assert socket.next()["method"] == CANCELLED
    assert socket.is_over(3)
    gc.collect()
    assert soon(lambda: (hub.count(), places.count()) == (0, 0), 1)


# -- the credential -----------------------------------------------------------------------------------------------


def _by_token(sockets: Sockets) -> Socket:
    return sockets.open()


def _by_session(sockets: Sockets) -> Socket:
    socket = sockets.upgrade({"Cookie": f"sessionid={session_of('alice')}", "Origin": ORIGIN})
    socket.accepted()
    return socket


LOSSES: dict[str, tuple[Callable[[Sockets], Socket], Callable[[], Any]]] = {
    "deactivated": (_by_token, lambda: User.objects.filter(username="alice").update(is_active=False)),
    "token deleted": (_by_token, lambda: Token.objects.filter(user__username="alice").delete()),
    "logged out": (_by_session, lambda: Session.objects.all().delete()),
    "deactivated in a session": (_by_session, lambda: User.objects.filter(username="alice").update(is_active=False)),
}


@pytest.mark.parametrize("how", LOSSES)
def test_a_lost_credential_closes_the_socket_instead_of_the_next_answer(
    sockets: Sockets, task: MakeTask, how: str
) -> None:
    open_socket, lose = LOSSES[how]
    made = task()
    socket = open_socket(sockets)
    assert "result" in socket.ask(message("tasks/get", {"taskId": made.task_id}))
    lose()
    socket.send(message("tasks/get", {"taskId": made.task_id}))
    assert socket.close_code() == 4401
    assert socket.is_over()
    assert socket.failure is None
    assert places.count() == 0


@pytest.mark.parametrize("how", LOSSES)
def test_a_lost_credential_closes_the_socket_instead_of_the_next_push(
    sockets: Sockets, task: MakeTask, how: str
) -> None:
    open_socket, lose = LOSSES[how]
    made = task()
    socket = sockets.listening(made.task_id, socket=open_socket(sockets))
    get_store().set_status(made.ref, "Reading")
    assert socket.next()["method"] == TASKS
    lose()
    get_store().complete_task(made.ref, RESULT)
    assert socket.close_code() == 4401
    assert socket.is_over()
    assert soon(lambda: (hub.count(), places.count()) == (0, 0))


def test_no_tool_is_called_and_no_task_made_with_a_lost_credential(
    sockets: Sockets, mcp_tools: Callable[..., Any]
) -> None:
    called = []

    @mcp_tools(task="never")
    def touch() -> str:
        called.append(1)
        return "touched"

    socket = sockets.open()
    User.objects.update(is_active=False)
    socket.send(call("touch"))
    socket.send(call("echo", {"text": "x"}, request_id=2))
    assert socket.close_code() == 4401
    assert not called
    assert not Task.objects.exists()


def test_an_answer_that_took_long_is_not_given_to_who_lost_the_credential_meanwhile(
    sockets: Sockets, mcp_tools: Callable[..., Any]
) -> None:
    begun, release = threading.Event(), threading.Event()

    @mcp_tools(task="never")
    def long(ctx: TaskContext) -> str:
        begun.set()
        release.wait(10)
        return "secret"

    socket = sockets.open()
    socket.send(call("long"))
    assert begun.wait(5)
    User.objects.update(is_active=False)
    release.set()
    assert socket.close_code() == 4401


def test_progress_is_not_told_to_who_lost_the_credential_meanwhile(
    sockets: Sockets, mcp_tools: Callable[..., Any]
) -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    @mcp_tools(task="never")
    def long(ctx: TaskContext) -> str:
        begun.set()
        release.wait(10)
        ctx.progress("secret", done=1)
        ctx.token.wait(10)
        ended.set()
        return "secret"

    socket = sockets.open()
    socket.send(call("long", progressToken="p"))
    assert begun.wait(5)
    Token.objects.all().delete()
    release.set()
    assert socket.close_code() == 4401
    assert ended.wait(5), "and the call is told that nobody waits"


def test_any_amount_of_progress_costs_few_looks_at_the_credential(
    sockets: Sockets, mcp_tools: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    accepted = Credential.is_accepted
    monkeypatch.setattr(Credential, "is_accepted", lambda self: looks.append(1) or time.sleep(0.02) or accepted(self))

    @mcp_tools(task="never")
    def chatty(ctx: TaskContext) -> str:
        for number in range(300):
            ctx.progress(str(number), done=number + 1)
        return "done"

    socket = sockets.open()
    socket.send(call("chatty", progressToken="p"))
    told = [socket.next() for _ in range(301)]
    assert [message["params"]["message"] for message in told[:300]] == [str(number) for number in range(300)]
    assert len(looks) < 30


def test_a_silent_socket_whose_credential_is_lost_is_closed(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "RECHECK_SECONDS", 0.2)
    socket = sockets.open()
    assert socket.is_silent(0.5), "an accepted credential keeps it open"
    User.objects.update(is_active=False)
    assert socket.close_code() == 4401


def test_a_user_of_another_socket_is_not_touched(sockets: Sockets, task: MakeTask) -> None:
    sockets.open("alice")
    bob = sockets.open("bob")
    User.objects.filter(username="alice").update(is_active=False)
    assert "result" in bob.ask(message("server/discover"))
