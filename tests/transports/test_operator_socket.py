"""The socket of an open list in the admin: who is told that a task changed, of which tasks, and how little."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from channels.generic.websocket import AsyncWebsocketConsumer
from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.urls import set_script_prefix

from mcp_tasks.models import Task
from mcp_tasks.notifications.hub import hub
from mcp_tasks.notifications.places import places
from mcp_tasks.operators.policy import Policy
from mcp_tasks.store import DatabaseTaskStore, get_store
from mcp_tasks.testing import rewind
from mcp_tasks.transports.websocket import operators
from tests.support.push import Socket, soon

from .sockets import ORIGIN, Sockets, session_of, sockets

__all__ = ["sockets"]

PATH = "/mcp/operators"
RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "SECRET-RESULT"}]}


def grant(name: str, *codenames: str, **flags: Any) -> None:
    create_permissions(apps.get_app_config("mcp_tasks"), verbosity=0)  # a flush between tests takes them away
    user, _ = User.objects.update_or_create(username=name, defaults={"is_staff": True, **flags})
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))


def shown(name: str) -> dict[str, str]:
    """What the browser of this user sends with an upgrade."""
    return {"Cookie": f"sessionid={session_of(name)}", "Origin": ORIGIN}


Open = Callable[..., Socket]


@pytest.fixture
def page(sockets: Sockets) -> Open:
    """The socket of a page with these rows, once they are watched: ``page(ref)``."""
    grant("operator", "view_task")

    def opened(*refs: UUID, name: str = "operator", watched: int | None = None) -> Socket:
        socket = sockets.upgrade(shown(name), path=PATH, subprotocols=[])
        socket.accepted()
        socket.send({"refs": [str(ref) for ref in refs]})
        for _ in range(len(refs) if watched is None else watched):
            socket.next()  # a row may have changed since the page was made: each is told of once
        return socket

    return opened


def running() -> UUID:
    ref = get_store().create_task("report", {"a": "SECRET-ARGUMENT"}).ref
    assert get_store().claim(ref, holder="web-1:1")
    return ref


# -- what is said -------------------------------------------------------------------------------------------------


def test_it_says_which_row_has_which_revision_and_nothing_else(page: Open) -> None:
    ref = running()
    socket = page(ref)
    get_store().complete_task(ref, RESULT, leg=1, status_message="SECRET-MESSAGE")
    assert socket.next() == {"ref": str(ref), "revision": Task.objects.get(pk=ref).revision}
    assert socket.is_silent()


def test_rows_that_the_page_does_not_show_are_not_told_of(page: Open) -> None:
    mine, other = running(), running()
    socket = page(mine)
    get_store().complete_task(other, RESULT, leg=1)
    assert socket.is_silent()


def test_the_rows_may_be_named_anew(page: Open) -> None:
    first, second = running(), running()
    socket = page(first)
    socket.send({"refs": [str(second)]})
    assert socket.next()["ref"] == str(second)
    get_store().complete_task(first, RESULT, leg=1)
    get_store().complete_task(second, RESULT, leg=1)
    assert socket.next()["ref"] == str(second)
    assert socket.is_silent()


def test_finished_rows_are_not_even_watched(page: Open) -> None:
    done = running()
    get_store().complete_task(done, RESULT, leg=1)
    ref = running()
    page(done, ref, watched=1)
    assert hub.count() == 1
    get_store().complete_task(ref, RESULT, leg=1)
    assert soon(lambda: hub.count() == 0)


def test_a_row_that_is_gone_is_told_of_without_a_revision(page: Open) -> None:
    ref = get_store().create_task("report", {}, ttl_ms=60_000).ref
    socket = page(ref)
    rewind(ref, 61)
    DatabaseTaskStore().expire()
    assert socket.next() == {"ref": str(ref), "revision": None}


def test_who_leaves_is_watched_for_no_more(page: Open) -> None:
    page(running(), running()).leave()
    assert hub.count() == 0
    assert places.count() == 0


# -- who is told --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codenames", "flags"),
    [
        ((), {}),
        (("cancel_task", "change_task", "view_task_payload"), {}),
        (("view_task",), {"is_staff": False}),
        (("view_task",), {"is_active": False}),
        ((), {"is_staff": False, "is_superuser": True}),
    ],
    ids=["nothing", "others", "not staff", "not active", "superuser without staff"],
)
def test_who_may_not_view_tasks_is_refused(sockets: Sockets, codenames: Any, flags: Any) -> None:
    grant("operator", *codenames)
    headers = shown("operator")
    User.objects.update(**flags)
    socket = sockets.upgrade(headers, path=PATH)
    socket.accepted()
    assert socket.close_code() == 4403
    assert places.count() == 0


@pytest.mark.parametrize("cookies", [{}, {"Cookie": "sessionid=nobody"}, {"Cookie": "sessionid=a\x00b"}])
def test_nobody_is_refused(sockets: Sockets, cookies: dict[str, str]) -> None:
    socket = sockets.upgrade({**cookies, "Origin": ORIGIN}, path=PATH)
    socket.accepted()
    assert socket.close_code() == 4403


def test_a_token_of_the_api_opens_nothing_here(sockets: Sockets, token: Callable[[str], str]) -> None:
    grant("operator", "view_task", is_superuser=True)
    socket = sockets.upgrade({"Authorization": f"Bearer {token('operator')}"}, path=PATH)
    socket.accepted()
    assert socket.close_code() == 4403


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": None}])
def test_a_page_of_another_site_is_refused_before_the_connection_is_made(
    sockets: Sockets, headers: dict[str, str | None]
) -> None:
    grant("operator", "view_task")
    given = {name: value for name, value in {**shown("operator"), **headers}.items() if value is not None}
    socket = sockets.upgrade(given, path=PATH)
    socket.close_code()
    assert socket.is_over()


class OnlyReports(Policy):
    """A tenant."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(tool="report") if request.user.username == "operator" else queryset.none()


def test_the_policy_hides_tasks_here_too(page: Open, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": f"{__name__}.OnlyReports"})
    mine, hidden = running(), get_store().create_task("other", {}).ref
    socket = page(mine, hidden, uuid4(), watched=1)
    get_store().cancel_task(hidden)
    assert socket.is_silent()
    get_store().cancel_task(mine)
    assert socket.next()["ref"] == str(mine)


class OfATenant(Policy):
    """Needs what a middleware of the project sets."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(tool=request.tenant)


def test_a_policy_that_needs_a_middleware_makes_the_page_stop_to_come_back(
    page: Open, configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    configure(OPERATOR={"POLICY": f"{__name__}.OfATenant"})
    socket = page(running(), watched=0)
    assert socket.close_code() == 4403
    assert socket.failure is None
    assert [record.getMessage() for record in caplog.records] == ["the policy cannot be asked for a socket"]


def lose_the_permission() -> None:
    User.objects.get(username="operator").user_permissions.clear()


def sign_out() -> None:
    Session.objects.all().delete()


@pytest.mark.parametrize("lose", [lose_the_permission, sign_out])
def test_rights_are_looked_at_again_while_the_page_is_open(
    page: Open, monkeypatch: pytest.MonkeyPatch, lose: Callable[[], None]
) -> None:
    async def close(self: Any, **how: Any) -> None:
        await asyncio.sleep(0)  # as servers do that write to a network
        await AsyncWebsocketConsumer.close(self, **how)

    monkeypatch.setattr(operators.OperatorConsumer, "close", close)
    monkeypatch.setattr(operators, "RECHECK_SECONDS", 0.05)
    socket = page(running())
    assert socket.is_silent()
    lose()
    assert socket.close_code() == 4403
    assert soon(lambda: hub.count() == 0)


def test_tasks_that_the_policy_takes_away_are_watched_no_longer(
    page: Open, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    monkeypatch.setattr(operators, "RECHECK_SECONDS", 0.05)
    ref = get_store().create_task("other", {}).ref
    page(ref)
    assert hub.count() == 1
    monkeypatch.setattr(operators, "visible", lambda request, found: found.none())
    assert soon(lambda: hub.count() == 0)


def test_a_row_that_a_look_at_rights_finds_ended_is_told_of(page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "publish", lambda change: None)  # the message is lost
    monkeypatch.setattr(operators, "RECHECK_SECONDS", 0.05)
    ref = running()
    socket = page(ref)
    get_store().complete_task(ref, RESULT, leg=1)
    assert socket.next() == {"ref": str(ref), "revision": None}
    assert socket.is_silent()


def test_a_slow_look_at_rights_does_not_take_back_the_rows_named_meanwhile(
    page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, began = operators.Operator.visible_of, threading.Event()

    def visible_of(self: Any, refs: set[UUID]) -> Any:
        if not refs:
            began.set()
            time.sleep(0.3)
        return real(self, refs)

    monkeypatch.setattr(operators, "RECHECK_SECONDS", 0.05)
    ref, socket = running(), page()
    monkeypatch.setattr(operators.Operator, "visible_of", visible_of)
    assert began.wait(5)
    socket.send({"refs": [str(ref)]})
    assert socket.next()["ref"] == str(ref)
    assert socket.is_silent(0.4)
    get_store().complete_task(ref, RESULT, leg=1)
    assert socket.next()["ref"] == str(ref)


# -- what it stands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        b"bytes",
        "no json",
        "[]",
        "{}",
        '{"refs": "x"}',
        '{"refs": ["x"]}',
        '{"refs": [7]}',
        {"refs": [str(uuid4()) for _ in range(101)]},
        "[" * 9000,
    ],
    ids=["bytes", "text", "list", "empty", "word", "no uuid", "number", "too many", "too long"],
)
def test_a_message_that_no_page_sends_ends_it(page: Open, message: Any) -> None:
    socket = page()
    socket.send(message)
    assert socket.close_code() == 4400
    assert socket.failure is None
    assert hub.count() == 0


def test_an_operator_has_so_many_of_them(page: Open, sockets: Sockets, configure: Callable[..., None]) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 2})
    page(), page()
    socket = sockets.upgrade(shown("operator"), path=PATH)
    socket.accepted()
    assert socket.close_code() == 4429


def test_a_database_that_is_away_is_told_by_the_close_code(
    page: Open, sockets: Sockets, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    headers, socket = shown("operator"), page(running())

    def away(request: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(operators, "provide_session", away)
    socket.send({"refs": []})
    assert socket.close_code() == 4500
    another = sockets.upgrade(headers, path=PATH)
    another.accepted()
    assert another.close_code() == 4500


def test_a_browser_that_cannot_be_told_ends_nothing_else(page: Open, sockets: Sockets) -> None:
    ref = running()
    deaf = sockets.upgrade(shown("operator"), path=PATH, unreachable=["websocket.send"])
    deaf.accepted()
    deaf.send({"refs": [str(ref)]})
    socket = page(ref)
    get_store().complete_task(ref, RESULT, leg=1)
    assert socket.next()["ref"] == str(ref)
    deaf.leave()
    assert deaf.failure is None


# -- where it is --------------------------------------------------------------------------------------------------


def test_pages_know_the_address_only_where_the_process_serves_it(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operators.address() == PATH
    set_script_prefix("/site")
    try:
        assert operators.address() == "/site/mcp/operators"
    finally:
        set_script_prefix("/")
    monkeypatch.setattr(operators, "_mounted", [])
    assert operators.address() is None
