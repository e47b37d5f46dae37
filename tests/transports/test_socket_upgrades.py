"""The upgrade of a WebSocket: subprotocol, host, origin and credential, before anything is said."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication

from mcp_tasks.notifications.places import places
from tests.support.adapters import scope_of
from tests.support.push import Conversation, soon

from .sockets import ORIGIN, Sockets, message, session_of, sockets

__all__ = ["sockets"]

WRONG = "0" * 40


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# -- subprotocols and tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "answered"),
    [(["mcp"], "mcp"), (["other", "mcp"], "mcp"), ([], None), (["other"], None), (["MCP"], None)],
)
def test_our_subprotocol_is_answered_where_it_was_offered_and_no_other(
    sockets: Sockets, token: Callable[[str], str], offered: list[str], answered: str | None
) -> None:
    socket = sockets.upgrade(bearer(token("alice")), subprotocols=offered)
    assert socket.accepted().get("subprotocol") == answered
    assert "result" in socket.ask(message("server/discover"))


def test_a_token_in_a_subprotocol_is_a_credential_and_is_never_echoed(
    sockets: Sockets, token: Callable[[str], str]
) -> None:
    secret = token("alice")
    for offered in (["mcp", f"bearer.{secret}"], [f"bearer.{secret}", "mcp"]):
        accepted = sockets.upgrade(subprotocols=offered).accepted()
        assert accepted.get("subprotocol") == "mcp"
        assert secret not in repr(accepted)
    alone = sockets.upgrade(subprotocols=[f"bearer.{secret}"]).accepted()
    assert alone.get("subprotocol") is None


def test_a_token_in_the_header_goes_before_one_in_a_subprotocol(sockets: Sockets, token: Callable[[str], str]) -> None:
    socket = sockets.upgrade(bearer(WRONG), subprotocols=["mcp", f"bearer.{token('alice')}"])
    socket.accepted()
    assert socket.close_code() == 4401


@pytest.mark.parametrize(
    "show",
    [
        lambda: {"headers": bearer(WRONG)},
        lambda: {"headers": {}, "subprotocols": ["mcp", f"bearer.{WRONG}"]},
        lambda: {"headers": {}, "subprotocols": ["mcp", "bearer."]},
        lambda: {"headers": {}, "subprotocols": ["mcp", "bearer.\x00"]},
        lambda: {"headers": {}, "subprotocols": ["mcp", "bearer.ü"]},
        lambda: {"headers": {"Authorization": "Basic QWxhZGRpbjpv"}},
        lambda: {"headers": {"Origin": ORIGIN, "Cookie": "sessionid=nobody"}},
        lambda: {"headers": {}},
    ],
    ids=["header", "subprotocol", "empty", "nul", "latin", "scheme", "session", "nothing"],
)
def test_a_refused_credential_is_told_by_the_close_code(sockets: Sockets, show: Callable[[], Any]) -> None:
    shown = show()
    socket = sockets.upgrade(shown.pop("headers"), **shown)
    socket.accepted()
    assert socket.close_code() == 4401
    assert socket.is_over()
    assert socket.failure is None
    assert places.count() == 0


def test_anonymous_callers_come_in_where_they_may(sockets: Sockets, open_to_all: None) -> None:
    assert "result" in sockets.open(None).ask(message("tools/list"))


def test_a_wrong_token_is_refused_also_where_anonymous_callers_may_come_in(sockets: Sockets, open_to_all: None) -> None:
    socket = sockets.upgrade(bearer(WRONG))
    socket.accepted()
    assert socket.close_code() == 4401


# -- host and origin ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://testserver:8080"},
        {"Origin": "http://testserver.evil.example"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
    ids=["foreign", "null", "empty", "port", "suffix", "host", "rebinding"],
)
@pytest.mark.parametrize("credential", ["bearer", "session", "none"])
def test_a_foreign_origin_or_host_is_refused_before_the_connection_is_made(
    sockets: Sockets, token: Callable[[str], str], open_to_all: None, headers: dict[str, str], credential: str
) -> None:
    shown = {"bearer": bearer(token("alice")), "none": {}}.get(credential) or {
        "Cookie": f"sessionid={session_of('alice')}"
    }
    socket = sockets.upgrade({**shown, **headers})
    socket.close_code()
    assert socket.is_over()
    assert places.count() == 0


def test_an_allowed_origin_comes_in(
    sockets: Sockets, token: Callable[[str], str], configure: Callable[..., None]
) -> None:
    configure(ALLOWED_ORIGINS=["https://app.example"])
    socket = sockets.upgrade({**bearer(token("alice")), "Origin": "https://app.example"})
    socket.accepted()
    assert "result" in socket.ask(message("server/discover"))


@pytest.mark.parametrize(
    ("scheme", "origin"),
    [
        ("ws", ORIGIN),
        ("ws", "https://testserver"),
        ("ws", f"{ORIGIN}:80"),
        ("ws", "http://TESTSERVER"),
        ("wss", "https://testserver"),
    ],
)
def test_the_own_origin_comes_in(sockets: Sockets, token: Callable[[str], str], scheme: str, origin: str) -> None:
    socket = sockets.upgrade({**bearer(token("alice")), "Origin": origin}, scheme=scheme)
    socket.accepted()


def test_a_session_needs_an_origin_and_a_token_does_not(sockets: Sockets, token: Callable[[str], str]) -> None:
    cookies = f"sessionid={session_of('alice')}"
    silent = sockets.upgrade({"Cookie": cookies})
    silent.close_code()
    assert silent.is_over()
    own = sockets.upgrade({"Cookie": cookies, "Origin": ORIGIN})
    own.accepted()
    assert "result" in own.ask(message("tools/list"))
    program = sockets.upgrade(bearer(token("alice")))
    program.accepted()
    both = sockets.upgrade({"Cookie": cookies, **bearer(token("alice"))})
    both.accepted()


def test_a_session_over_tls_needs_an_origin_over_tls(sockets: Sockets, token: Callable[[str], str]) -> None:
    cookies = f"sessionid={session_of('alice')}"
    plain = sockets.upgrade({"Cookie": cookies, "Origin": ORIGIN}, scheme="wss")
    plain.close_code()
    assert plain.is_over()
    sockets.upgrade({"Cookie": cookies, "Origin": "https://testserver"}, scheme="wss").accepted()
    offered = ["mcp", f"bearer.{token('alice')}"]
    sockets.upgrade({"Cookie": cookies, "Origin": ORIGIN}, scheme="wss", subprotocols=offered).accepted()


def test_any_cookie_without_an_origin_is_refused(sockets: Sockets, open_to_all: None) -> None:
    socket = sockets.upgrade({"Cookie": "theme=dark"})
    socket.close_code()
    assert socket.is_over()


def test_a_session_is_the_user_it_belongs_to(sockets: Sockets, task: Callable[..., Any]) -> None:
    made = task("alice")
    socket = sockets.upgrade({"Cookie": f"sessionid={session_of('alice')}", "Origin": ORIGIN})
    socket.accepted()
    assert socket.ask(message("tasks/get", {"taskId": made.task_id}))["result"]["status"] == "working"


def test_a_path_that_is_no_text_is_refused(sockets: Sockets, token: Callable[[str], str]) -> None:
    scope = scope_of(bearer(token("alice")))
    scope |= {"type": "websocket", "subprotocols": ["mcp"], "scheme": "ws", "query_string": b"\xff"}
    del scope["method"]
    socket = Conversation(sockets._server, sockets.application, scope)
    socket.gone = {"type": "websocket.disconnect", "code": 1006}
    socket.give({"type": "websocket.connect"})
    assert socket.took()["type"] in ("websocket.accept", "websocket.close")
    assert socket.failure is None


def test_other_paths_are_the_projects_own(sockets: Sockets) -> None:
    socket = sockets.upgrade({}, path="/chat")
    assert socket.is_over()
    assert "is not ours" in str(socket.failure)


# -- places -------------------------------------------------------------------------------------------------------


def test_an_owner_has_so_many_sockets_and_a_place_comes_back(
    sockets: Sockets, token: Callable[[str], str], configure: Callable[..., None]
) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 2})
    first, _second = sockets.open(), sockets.open()
    third = sockets.upgrade(bearer(token("alice")))
    third.accepted()
    assert third.close_code() == 4429
    sockets.open("bob")
    first.leave()
    assert soon(lambda: places.count() == 2)
    sockets.open()


def test_a_client_that_leaves_while_it_is_looked_at_leaves_nothing_behind(
    sockets: Sockets, token: Callable[[str], str]
) -> None:
    for _ in range(5):
        sockets.upgrade(bearer(token("alice"))).hang_up()
    assert soon(lambda: all(socket.is_over(0) for socket in sockets._server.conversations))
    gc.collect()
    assert soon(lambda: places.count() == 0)


def test_a_client_that_cannot_be_told_of_the_acceptance_leaves_nothing_behind(
    sockets: Sockets, token: Callable[[str], str]
) -> None:
    socket = sockets.upgrade(bearer(token("alice")), unreachable=["websocket.accept"])
    assert socket.is_over()
    gc.collect()
    assert soon(lambda: places.count() == 0, 1)


def test_a_client_that_cannot_be_answered_leaves_nothing_behind(sockets: Sockets, token: Callable[[str], str]) -> None:
    socket = sockets.upgrade(bearer(token("alice")), unreachable=["websocket.send"])
    socket.accepted()
    socket.send(message("server/discover"))
    socket.send(message("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id=2))
    assert socket.is_silent(0.1)
    socket.leave()
    assert socket.failure is None
    assert soon(lambda: places.count() == 0, 1)


def test_a_fault_while_opening_is_told_by_the_close_code(
    sockets: Sockets, token: Callable[[str], str], configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    shown = bearer(token("alice"))
    configure(OWNER=f"{__name__}.broken_owner")
    socket = sockets.upgrade(shown)
    socket.accepted()
    assert socket.close_code() == 4500
    assert places.count() == 0


class Forbids(BaseAuthentication):
    """Knows everybody, and lets nobody in."""

    def authenticate(self, request: Any) -> Any:
        raise exceptions.PermissionDenied


def broken_owner(request: Any) -> Any:
    raise ZeroDivisionError


def test_a_caller_who_may_not_is_told_so(
    sockets: Sockets, token: Callable[[str], str], configure: Callable[..., None]
) -> None:
    shown = bearer(token("alice"))
    configure(AUTHENTICATION_CLASSES=[f"{__name__}.Forbids"])
    socket = sockets.upgrade(shown)
    socket.accepted()
    assert socket.close_code() == 4403
