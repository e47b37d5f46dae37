"""How a stream lives and ends: signs of life, its place, the server's end, the client's, and a lost credential."""

import asyncio
import gc
import threading
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.handlers.asgi import ASGIRequest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client
from rest_framework.authentication import BaseAuthentication
from rest_framework.authtoken.models import Token

from mcp_tasks import compat
from mcp_tasks.access.credentials import Credential
from mcp_tasks.notifications import list_changed
from mcp_tasks.notifications.hub import hub
from mcp_tasks.notifications.places import places
from mcp_tasks.notifications.subscription import end_all
from mcp_tasks.rpc.requests import Listen
from mcp_tasks.store import CreatedTask, get_store
from mcp_tasks.transports import listening as listening_module
from mcp_tasks.transports import stopping
from mcp_tasks.transports.http.checks import Received, receive
from mcp_tasks.transports.http.view import mcp
from tests.support.adapters import scope_of
from tests.support.push import KEEP_ALIVE, Ended, LoopThread, Stream, soon

from .listens import (
    ACKNOWLEDGED,
    SERVER_INFO,
    STREAMING,
    SUBSCRIPTION_ID,
    Listening,
    application_of,
    listen_draft,
    listening,
    status_of,
    streaming,
)
from .requests import Draft

__all__ = ["listening", "streaming"]

RESULT = {"content": []}
MakeTask = Callable[..., CreatedTask]


def taken() -> int:
    """How many streams are open, whoever has them."""
    return places.count()


@pytest.fixture(autouse=True)
def _nothing_is_left_of_other_tests() -> None:
    """A response that a test made and never sent has its place until it is collected."""
    gc.collect()
    assert soon(lambda: taken() == 0, 2), "a stream of another test is still open"


def is_result(message: Any) -> bool:
    return "result" in message


# -- signs of life ------------------------------------------------------------------------------------------------


def test_a_silent_stream_is_kept_alive_by_comments(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "KEEP_ALIVE_SECONDS", 0.05)
    stream = listening.open(toolsListChanged=True)
    assert [stream.event() for _ in range(3)] == [stream_ack(), KEEP_ALIVE, KEEP_ALIVE]
    list_changed("tools")
    assert stream.next()["method"] == "notifications/tools/list_changed"
    assert stream.event() == KEEP_ALIVE


def stream_ack() -> Any:
    return {
        "jsonrpc": "2.0",
        "method": ACKNOWLEDGED,
        "params": {"notifications": {"toolsListChanged": True}, "_meta": {SUBSCRIPTION_ID: "L-1"}},
    }


def test_a_sign_of_life_comes_in_time_for_every_proxy() -> None:
    assert 5 <= listening_module.KEEP_ALIVE_SECONDS <= 30


def test_a_stream_forbids_to_keep_or_change_or_buffer_it(listening: Listening) -> None:
    stream = listening.open(toolsListChanged=True)
    assert stream.status == 200
    headers = stream.headers
    assert headers["content-type"] == "text/event-stream"
    assert {"no-cache", "no-store", "no-transform"} <= set(headers["cache-control"].split(", "))
    assert (headers["x-accel-buffering"], headers["x-content-type-options"]) == ("no", "nosniff")
    assert "content-length" not in headers
    assert headers.get("content-encoding", "identity") == "identity"


# -- the server ends it -------------------------------------------------------------------------------------------


def test_a_server_that_stops_ends_each_stream_with_its_result(listening: Listening, task: MakeTask) -> None:
    made = task()
    streams = [listening.to(made.task_id, request_id=request_id) for request_id in ("L-1", 1)]
    end_all()
    for stream, request_id in zip(streams, ("L-1", 1), strict=True):
        (message,) = stream.rest()
        meta = message["result"].pop("_meta")
        assert message == {"jsonrpc": "2.0", "id": request_id, "result": {"resultType": "complete"}}
        assert meta[SUBSCRIPTION_ID] == request_id
        assert meta[SERVER_INFO]["name"] == "django-mcp-tasks"
        assert stream.is_over()
        assert stream.failure is None
    assert taken() == 0
    assert hub.count() == 0


def test_a_stream_that_is_ended_twice_or_without_any_open_does_no_harm(listening: Listening) -> None:
    end_all()
    stream = listening.open()
    stream.next()
    end_all()
    end_all()
    assert len(stream.rest()) == 1


def test_a_stream_that_opens_once_the_server_was_told_to_stop_is_ended_at_once(
    listening: Listening, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request was on the way when the signal came: a server that waits for its streams would wait for ever."""
    made = task()
    monkeypatch.setattr(stopping, "_heard", {15})
    stream = listening.open(taskIds=[made.task_id])
    first, *_, last = stream.rest()
    assert first["method"] == ACKNOWLEDGED
    assert is_result(last)
    assert soon(lambda: (taken(), hub.count()) == (0, 0))


@pytest.mark.parametrize("told", [True, False])
def test_a_stream_that_its_server_cuts_says_so_only_where_the_server_was_told_to_stop(
    server: LoopThread, token: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    stream = Listening(server, "endpoint", token).open(toolsListChanged=True)
    assert stream.next()["method"] == ACKNOWLEDGED
    monkeypatch.setattr(stopping, "_heard", {15} if told else set())
    stream.cut()
    assert stream.is_over(3)
    try:
        sent = [stream.next(0.1)]
    except Ended:
        sent = []
    assert [is_result(message) for message in sent] == ([True] if told else [])
    assert soon(lambda: taken() == 0)


# -- the client ends it -------------------------------------------------------------------------------------------


def test_a_client_that_leaves_gives_back_all_that_it_had(listening: Listening, task: MakeTask) -> None:
    made = task()
    stream = listening.to(made.task_id)
    assert (taken(), hub.count()) == (1, 1)
    stream.leave()
    assert soon(lambda: (taken(), hub.count()) == (0, 0))
    assert stream.failure is None


def test_a_closed_stream_cancels_no_task(listening: Listening, task: MakeTask) -> None:
    made = task()
    listening.to(made.task_id).leave()
    seen = get_store().get_task(made.ref)
    assert seen is not None
    assert (seen.status, seen.cancel_requested_at, made.token.is_raised) == ("working", None, False)
    assert listening.to(made.task_id).is_silent(0.05), "and it can be listened to again"


def test_many_clients_that_leave_while_tasks_change_leave_nothing_behind(listening: Listening, task: MakeTask) -> None:
    store, made = get_store(), [task() for _ in range(3)]
    streams = [listening.to(*[one.task_id for one in made]) for _ in range(10)]
    for number, stream in enumerate(streams):
        stream.hang_up()
        store.set_status(made[number % 3].ref, f"at {number}")
    assert soon(lambda: (taken(), hub.count()) == (0, 0))
    assert all(stream.is_over() for stream in streams)


# -- places -------------------------------------------------------------------------------------------------------


def test_an_owner_has_so_many_streams_and_a_place_comes_back_with_each_end(
    listening: Listening, configure: Callable[..., None]
) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 2})
    first, second = listening.open(), listening.open()
    assert first.next()["method"] == second.next()["method"] == ACKNOWLEDGED
    refused = listening.open(request_id="L-3")
    answer = refused.whole()
    assert (refused.status, answer["id"], answer["error"]["code"]) == (200, "L-3", -32603)
    assert "2" in answer["error"]["message"]
    assert listening.open("bob").next()["method"] == ACKNOWLEDGED
    first.leave()
    assert soon(lambda: taken() == 2)
    third = listening.open()
    assert third.next()["method"] == ACKNOWLEDGED
    end_all()
    assert soon(lambda: taken() == 0)


def test_without_a_limit_nobody_is_refused(listening: Listening, configure: Callable[..., None]) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": None})
    streams = [listening.open() for _ in range(40)]
    assert {stream.next()["method"] for stream in streams} == {ACKNOWLEDGED}


def _received(request: Draft) -> Any:
    scope = scope_of(request.headers)
    return receive(
        ASGIRequest(scope, BytesIO()), request.text, {name.lower(): value for name, value in request.headers.items()}
    )


@pytest.mark.usefixtures("transactional_db", "open_to_all")
def test_a_response_that_was_made_and_never_sent_gives_its_place_back() -> None:
    received = _received(listen_draft({"toolsListChanged": True}))
    assert isinstance(received, Received)
    assert isinstance(received.response, Listen)
    assert taken() == 1
    del received
    gc.collect()
    assert taken() == 0


@pytest.mark.usefixtures("transactional_db", "open_to_all")
def test_the_views_response_that_nobody_iterates_gives_its_place_back() -> None:
    request = listen_draft({"toolsListChanged": True})
    made = ASGIRequest(scope_of(request.headers), BytesIO(request.text))

    async def respond() -> Any:
        return await asyncio.to_thread(mcp, made)

    response = asyncio.run(respond())
    assert (response.status_code, taken()) == (200, 1)
    response.close()
    assert taken() == 0, "at once, and not when somebody collects the garbage"


@pytest.mark.usefixtures("transactional_db", "open_to_all")
@pytest.mark.parametrize("adapter", STREAMING)
def test_a_client_that_leaves_while_it_is_written_to_gives_its_place_back_at_once(adapter: str) -> None:
    request = listen_draft({"toolsListChanged": True})
    headers = {**request.headers, "Content-Length": str(len(request.text))}

    async def scenario() -> None:
        given: asyncio.Queue[Any] = asyncio.Queue()
        given.put_nowait({"type": "http.request", "body": request.text, "more_body": False})
        writing = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                writing.set()
                await asyncio.Event().wait()  # the client reads no more

        application: Any = application_of(adapter)
        running = asyncio.create_task(application(scope_of(headers, path="/mcp"), given.get, send))
        await asyncio.wait_for(writing.wait(), 10)
        assert taken() == 1
        given.put_nowait({"type": "http.disconnect"})
        if adapter == "endpoint":
            running.cancel()  # a server that cannot write cancels, or raises
        await asyncio.wait({running}, timeout=10)
        await asyncio.sleep(0.05)
        assert (taken(), hub.count()) == (0, 0), "before anybody collects the garbage"

    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


def test_a_client_that_left_before_the_stream_began_gives_its_place_back(
    listening: Listening, server: LoopThread, streaming: str, token: Callable[[str], str]
) -> None:
    for _ in range(5):
        listening.open().hang_up()
    assert soon(lambda: all(conversation.is_over(0) for conversation in server.conversations))
    gc.collect()
    assert soon(lambda: (taken(), hub.count()) == (0, 0))


def test_a_refused_request_takes_no_place(listening: Listening) -> None:
    assert listening.open(taskIds="T").whole()["error"]["code"] == -32602
    assert taken() == 0


# -- two at once --------------------------------------------------------------------------------------------------


def test_two_owners_with_the_same_id_stay_apart(listening: Listening, task: MakeTask) -> None:
    hers, his = task("alice"), task("bob")
    both = [hers.task_id, his.task_id]
    alice, bob = listening.open("alice", request_id=1, taskIds=both), listening.open("bob", request_id=1, taskIds=both)
    for stream, own in ((alice, hers), (bob, his)):
        assert stream.next()["params"]["notifications"] == {"taskIds": [own.task_id]}
        assert stream.next()["params"]["taskId"] == own.task_id
    alice.leave()
    get_store().complete_task(his.ref, RESULT)
    assert status_of(bob.next()) == "completed"


def test_many_streams_of_one_task_are_all_told(listening: Listening, task: MakeTask) -> None:
    made = task()
    streams = [listening.to(made.task_id, request_id=number) for number in range(8)]
    get_store().complete_task(made.ref, RESULT)
    for number, stream in enumerate(streams):
        message = stream.next()
        assert (status_of(message), message["params"]["_meta"][SUBSCRIPTION_ID]) == ("completed", number)


# -- the credential -----------------------------------------------------------------------------------------------


def _sessions(configure: Callable[..., None]) -> None:
    configure(AUTHENTICATION_CLASSES=["rest_framework.authentication.SessionAuthentication"])


def _session_of(name: str) -> str:
    browser = Client()
    browser.force_login(User.objects.get(username=name))
    return browser.cookies["sessionid"].value


def _deactivate() -> None:
    User.objects.filter(username="alice").update(is_active=False)


def _delete_token() -> None:
    Token.objects.filter(user__username="alice").delete()


def _delete_user() -> None:
    User.objects.get(username="alice").delete()


LOSSES = {"deactivated": _deactivate, "token deleted": _delete_token, "user deleted": _delete_user}


@pytest.mark.parametrize("how", LOSSES)
def test_a_lost_credential_ends_the_stream_instead_of_the_next_message(
    listening: Listening, task: MakeTask, how: str
) -> None:
    made = task()
    stream = listening.to(made.task_id)
    LOSSES[how]()
    get_store().complete_task(made.ref, {"content": [{"type": "text", "text": "secret"}]})
    (message,) = stream.rest()
    assert is_result(message)
    assert message["result"]["_meta"][SUBSCRIPTION_ID] == "L-1"
    assert b"secret" not in stream.body
    assert stream.is_over()
    assert stream.failure is None
    assert soon(lambda: (taken(), hub.count()) == (0, 0))


def test_a_lost_credential_hides_even_that_a_list_changed(listening: Listening) -> None:
    stream = listening.open(toolsListChanged=True)
    stream.next()
    _deactivate()
    list_changed("tools")
    assert [is_result(message) for message in stream.rest()] == [True]


def test_a_silent_stream_whose_credential_is_lost_ends_by_itself(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_module, "KEEP_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(listening_module, "RECHECK_SECONDS", 0.2)
    stream = listening.open(toolsListChanged=True)
    assert stream.next()["method"] == ACKNOWLEDGED
    _deactivate()
    assert [is_result(message) for message in stream.rest()] == [True]


def test_a_session_that_was_logged_out_ends_its_stream(
    listening: Listening, task: MakeTask, configure: Callable[..., None]
) -> None:
    made = task()
    _sessions(configure)
    # DRF's class wants a CSRF token from a cookie session.
    secret = "c" * 32
    request = listen_draft({"taskIds": [made.task_id]})
    session = _session_of("alice")
    request.headers |= {"Cookie": f"sessionid={session}; csrftoken={secret}", "X-CSRFToken": secret}
    stream = listening.send(request)
    assert stream.next()["params"]["notifications"] == {"taskIds": [made.task_id]}
    assert status_of(stream.next()) == "working"
    get_store().set_status(made.ref, "Reading")
    assert status_of(stream.next()) == "working"
    Session.objects.all().delete()
    get_store().complete_task(made.ref, RESULT)
    assert [is_result(message) for message in stream.rest()] == [True]


def test_another_owner_behind_the_same_credential_is_no_longer_the_caller(listening: Listening, task: MakeTask) -> None:
    made = task()
    stream = listening.to(made.task_id)
    mallory = User.objects.create(username="mallory")
    Token.objects.filter(user__username="alice").update(user=mallory)
    get_store().complete_task(made.ref, RESULT)
    assert [is_result(message) for message in stream.rest()] == [True]


class FromTheMiddleware(BaseAuthentication):
    """Believes what a middleware of the project found out, as DRF's RemoteUserAuthentication does."""

    def authenticate(self, request: Any) -> Any:
        user = getattr(request._request, "remote", None)
        return None if user is None else (user, None)


def remote_user(get_response: Any) -> Any:
    """A middleware that alone knows who calls."""

    def middleware(request: Any) -> Any:
        request.remote = User.objects.filter(username="alice").first()
        return get_response(request)

    return middleware


@pytest.mark.parametrize("how", ["deactivated", "user deleted"])
def test_where_a_middleware_alone_knows_who_calls_the_user_is_looked_at(
    server: LoopThread, task: MakeTask, settings: Any, configure: Callable[..., None], how: str
) -> None:
    made = task()
    settings.MIDDLEWARE = [f"{__name__}.remote_user"]
    configure(AUTHENTICATION_CLASSES=[f"{__name__}.FromTheMiddleware"])
    request = listen_draft({"taskIds": [made.task_id]})
    stream = Stream(server, application_of("view-asgi"), request.headers, request.text)
    assert stream.next()["params"]["notifications"] == {"taskIds": [made.task_id]}
    assert status_of(stream.next()) == "working"
    get_store().set_status(made.ref, "Reading")
    assert status_of(stream.next()) == "working"
    LOSSES[how]()
    get_store().complete_task(made.ref, RESULT)
    assert [is_result(message) for message in stream.rest()] == [True]


def test_a_credential_that_cannot_be_checked_delays_the_message_and_does_not_lose_it(
    listening: Listening, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_module, "_RETRY_SECONDS", 0.05)
    made = task()
    stream = listening.to(made.task_id)
    real, tries = Credential.is_accepted, iter([ConnectionError("away")] * 3)

    def flaky(self: Credential) -> bool:
        for problem in tries:
            raise problem
        return real(self)

    monkeypatch.setattr(Credential, "is_accepted", flaky)
    get_store().complete_task(made.ref, RESULT)
    assert status_of(stream.next()) == "completed"


def test_streams_of_one_caller_share_the_look_at_the_credential(
    listening: Listening, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = task()
    streams = [listening.to(made.task_id, request_id=number) for number in range(10)]
    looks = []
    real = Credential.is_accepted

    def counted(self: Credential) -> bool:
        looks.append(1)
        return real(self)

    monkeypatch.setattr(Credential, "is_accepted", counted)
    get_store().complete_task(made.ref, RESULT)
    for stream in streams:
        assert status_of(stream.next()) == "completed"
    assert len(looks) < 5


def test_two_callers_never_share_a_look(listening: Listening, task: MakeTask) -> None:
    hers, his = task("alice"), task("bob")
    alice, bob = listening.to(hers.task_id), listening.to(his.task_id, name="bob")
    _deactivate()
    for made in (hers, his):
        get_store().complete_task(made.ref, RESULT)
    assert [is_result(message) for message in alice.rest()] == [True]
    assert status_of(bob.next()) == "completed"


def _nobody_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: Credential) -> bool:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(listening_module, "_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(Credential, "is_accepted", away)


def test_a_server_can_stop_while_nobody_can_say_whether_a_credential_is_good(
    listening: Listening, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = task()
    stream = listening.to(made.task_id)
    _nobody_can_say(monkeypatch)
    get_store().complete_task(made.ref, RESULT)
    assert stream.is_silent()
    end_all()
    assert stream.is_over(3)


def test_a_client_can_leave_while_nobody_can_say_whether_its_credential_is_good(
    listening: Listening, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = task()
    stream = listening.to(made.task_id)
    _nobody_can_say(monkeypatch)
    get_store().complete_task(made.ref, RESULT)
    assert stream.is_silent()
    stream.hang_up()
    assert stream.is_over(3)
    assert soon(lambda: taken() == 0, 1)


def _open_connections() -> int:
    gc.collect()
    # By type, as isinstance() would wake lazy objects.
    found = [item for item in gc.get_objects() if issubclass(type(item), BaseDatabaseWrapper)]
    return sum(wrapper.connection is not None for wrapper in found)


def test_an_open_stream_holds_no_database_connection(listening: Listening, task: MakeTask) -> None:
    made = task()
    listening.to(made.task_id)
    before = _open_connections()
    for number in range(5):
        listening.to(made.task_id, request_id=number)
    assert _open_connections() <= before + 1


@pytest.mark.parametrize("middleware", [[], [f"{__name__}.remote_user"]], ids=["none", "sync"])
def test_an_idle_stream_holds_no_thread_of_djangos_handler(
    server: LoopThread,
    token: Callable[[str], str],
    settings: Any,
    configure: Callable[..., None],
    middleware: list[str],
) -> None:
    settings.MIDDLEWARE = middleware
    configure(LIMITS={"STREAMS_PER_OWNER": None})
    request = listen_draft({"toolsListChanged": True}, token=token("alice"))
    handler = application_of("view-asgi")
    before = threading.active_count()
    streams = [Stream(server, handler, request.headers, request.text) for _ in range(50)]
    for stream in streams:
        assert stream.next()["method"] == ACKNOWLEDGED
    assert soon(lambda: threading.active_count() < before + 15), "those of this process aside, none is kept"
    list_changed("tools")
    for stream in streams:
        assert stream.next()["method"] == "notifications/tools/list_changed"
    for stream in streams:
        stream.leave()  # Django closes the response on a thread of the same context
        assert stream.failure is None
    assert soon(lambda: threading.active_count() < before + 15)


def test_what_runs_in_the_context_after_its_thread_was_taken_gets_another() -> None:
    async def story() -> None:
        async with ThreadSensitiveContext():
            first = await sync_to_async(threading.get_ident)()
            executor = compat.take_thread()
            assert executor is not None
            assert compat.take_thread() is None
            executor.shutdown(wait=False)
            second = await sync_to_async(threading.current_thread)()
            assert await sync_to_async(threading.current_thread)() is second
            assert first != threading.get_ident() != second.ident
        assert not second.is_alive()

    asyncio.run(story())
