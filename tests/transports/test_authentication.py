"""Who calls: every request proves it on its own, and what nobody accepts is refused."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.request import Request

from mcp_tasks.access.owners import Owner
from mcp_tasks.models import Task
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.testing import McpClient
from mcp_tasks.testing.client import HttpAnswer
from tests.support.adapters import Wire

from .requests import draft, error_of

pytestmark = pytest.mark.usefixtures("transactional_db")

BEARER = "mcp_tasks.access.authentication.BearerTokenAuthentication"
SESSION = "rest_framework.authentication.SessionAuthentication"
BASIC = "rest_framework.authentication.BasicAuthentication"
HERE = "tests.transports.test_authentication"
SECRET = "c" * 32


def asked(wire: Wire, **headers: str) -> HttpAnswer:
    request = draft()
    return wire.send(request.text, {**request.headers, **{n.replace("_", "-"): v for n, v in headers.items()}})


def refused(answer: HttpAnswer, challenge: str = "Bearer") -> bool:
    assert "id" not in answer.messages()[0]
    return error_of(answer) == (401, -32600, None) and answer.headers["www-authenticate"] == challenge


def test_a_bearer_token_is_accepted(wire: Wire, token: Callable[[str], str]) -> None:
    assert asked(wire, Authorization=f"Bearer {token('alice')}").status == 200
    assert asked(wire, Authorization=f"bearer {token('alice')}").status == 200


def test_without_a_credential_the_caller_is_challenged(wire: Wire) -> None:
    assert refused(asked(wire))


@pytest.mark.parametrize(
    "credential",
    [
        "Bearer unknown",
        "Bearer",
        "Bearer a b",
        "Bearer ",
        "Bearer \xe9",
        "Bearer " + "x" * 5000,
        "Token {}",
        "Basic {}",
        "{}",
        "",
        "Bearer {} ,Bearer {}",
        "Bearer \x00",
    ],
)
def test_what_nobody_accepts_is_refused_even_where_nobody_must_be_known(
    wire: Wire, configure: Callable[..., None], token: Callable[[str], str], credential: str
) -> None:
    key = token("alice")
    for anonymous_too in (False, True):
        configure(ALLOW_ANONYMOUS=anonymous_too)
        answer = asked(wire, Authorization=credential.replace("{}", key))
        assert refused(answer)
        assert key.encode() not in answer.body


def test_anonymous_callers_come_in_where_they_are_allowed(wire: Wire, configure: Callable[..., None]) -> None:
    configure(ALLOW_ANONYMOUS=True)
    assert asked(wire).status == 200


def test_a_token_in_the_address_is_not_looked_at(wire: Wire, token: Callable[[str], str]) -> None:
    key = token("alice")
    request = draft()
    for query in (f"token={key}", f"access_token={key}", f"Authorization=Bearer%20{key}"):
        assert refused(wire.send(request.text, request.headers, path=f"/mcp?{query}"))


def test_a_user_who_was_deactivated_is_refused_at_once(wire: Wire, token: Callable[[str], str]) -> None:
    header = f"Bearer {token('alice')}"
    assert asked(wire, Authorization=header).status == 200
    User.objects.filter(username="alice").update(is_active=False)
    assert refused(asked(wire, Authorization=header))


def test_a_token_that_was_withdrawn_is_refused_at_once(wire: Wire, token: Callable[[str], str]) -> None:
    header = f"Bearer {token('alice')}"
    Token.objects.all().delete()
    assert refused(asked(wire, Authorization=header))


def session_of(name: str) -> str:
    client = Client()
    client.force_login(User.objects.create_user(name))
    return client.cookies["sessionid"].value


def test_a_login_in_the_browser_is_accepted_with_the_csrf_header(wire: Wire) -> None:
    cookie = f"sessionid={session_of('alice')}; csrftoken={SECRET}"
    answer = asked(wire, Cookie=cookie, X_CSRFToken=SECRET)
    assert answer.status == 200
    assert asked(wire, Cookie=cookie, X_CSRFToken=SECRET, Origin="http://testserver").status == 200


def test_a_login_in_the_browser_is_forbidden_without_the_csrf_header(
    wire: Wire, configure: Callable[..., None]
) -> None:
    configure(ALLOW_ANONYMOUS=True)
    session = session_of("alice")
    for headers in (
        {"Cookie": f"sessionid={session}"},
        {"Cookie": f"sessionid={session}; csrftoken={SECRET}"},
        {"Cookie": f"sessionid={session}; csrftoken={SECRET}", "X_CSRFToken": "d" * 32},
        {"Cookie": f"sessionid={session}", "X_CSRFToken": SECRET},
    ):
        assert error_of(asked(wire, **headers)) == (403, -32600, None)


def test_a_token_needs_no_csrf_header_though_a_cookie_comes_along(wire: Wire, token: Callable[[str], str]) -> None:
    cookie = f"sessionid={session_of('carol')}"
    assert asked(wire, Authorization=f"Bearer {token('alice')}", Cookie=cookie).status == 200


def test_a_session_that_is_over_makes_nobody_known(wire: Wire) -> None:
    for session in ("gone-for-good", "", "a\x00bcdefghij", "x" * 5000):
        assert refused(asked(wire, Cookie=f"sessionid={session}; csrftoken={SECRET}", X_CSRFToken=SECRET))


def test_a_session_outlives_the_rotation_of_the_secret_key(settings: Any) -> None:
    """Django gives it a new key then, and by the endpoint nobody would send the cookie."""
    settings.SECRET_KEY = "before-" + "x" * 50
    session = session_of("alice")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "after-" + "y" * 50, [settings.SECRET_KEY]
    for _ in range(2):
        answer = asked(Wire("endpoint"), Cookie=f"sessionid={session}; csrftoken={SECRET}", X_CSRFToken=SECRET)
        assert answer.status == 200
        assert Session.objects.filter(pk=session).exists()


def test_the_tasks_of_a_login_and_of_a_token_of_one_user_are_the_same(wire: Wire, alice: McpClient) -> None:
    created = alice.call_tool("echo", {"text": "hi"})
    client = Client()
    client.force_login(User.objects.get(username="alice"))
    request = draft("tasks/get", {"taskId": created["taskId"]})
    cookie = f"sessionid={client.cookies['sessionid'].value}; csrftoken={SECRET}"
    answer = wire.send(request.text, {**request.headers, "Cookie": cookie, "X-CSRFToken": SECRET})
    assert answer.messages()[0]["result"]["taskId"] == created["taskId"]


def test_the_first_class_gives_the_challenge(wire: Wire, configure: Callable[..., None]) -> None:
    configure(AUTHENTICATION_CLASSES=[BASIC, BEARER])
    assert refused(asked(wire), 'Basic realm="api"')
    configure(AUTHENTICATION_CLASSES=[SESSION, BEARER])
    assert refused(asked(wire), "Bearer")
    configure(AUTHENTICATION_CLASSES=[SESSION])
    assert refused(asked(wire), 'Bearer realm="api"')


class Forbidding(BaseAuthentication):
    def authenticate(self, request: Request) -> None:
        raise exceptions.PermissionDenied("Not from there")


class Failing(BaseAuthentication):
    def authenticate(self, request: Request) -> None:
        raise ConnectionError("directory at 10.0.0.9 down")


def test_a_class_may_forbid(wire: Wire, configure: Callable[..., None]) -> None:
    configure(AUTHENTICATION_CLASSES=[f"{HERE}.Forbidding"], ALLOW_ANONYMOUS=True)
    assert error_of(asked(wire)) == (403, -32600, None)


def test_a_class_that_fails_is_an_internal_error_that_says_nothing(
    wire: Wire, configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    configure(AUTHENTICATION_CLASSES=[f"{HERE}.Failing"], ALLOW_ANONYMOUS=True)
    answer = asked(wire)
    assert error_of(answer) == (500, -32603, None)
    assert b"10.0.0.9" not in answer.body
    assert "10.0.0.9" in caplog.text


def team(request: Request) -> Owner | None:
    return Owner(("team", "red")) if request.user.is_authenticated else None


def no_owner(request: Request) -> str:
    return "alice"


def test_another_function_may_say_who_owns(
    configure: Callable[..., None], alice: McpClient, bob: McpClient, anonymous: McpClient
) -> None:
    configure(OWNER=f"{HERE}.team", ALLOW_ANONYMOUS=True)
    created = alice.call_tool("echo", {"text": "hi"})
    assert bob.get_task(created["taskId"])["status"] == "working"
    with pytest.raises(McpError, match="not found"):
        anonymous.get_task(created["taskId"])
    assert Task.objects.get().owner_key == Owner(("team", "red")).key


def test_an_owner_of_a_wrong_type_stops_the_call(
    configure: Callable[..., None], alice: McpClient, caplog: pytest.LogCaptureFixture
) -> None:
    configure(OWNER=f"{HERE}.no_owner")
    answer = alice.post(alice.envelope("tools/call", {"name": "echo", "arguments": {"text": "x"}}))
    assert error_of(answer) == (500, -32603, None)
    assert not Task.objects.exists()
    assert "no_owner" in caplog.text


def test_a_refused_credential_is_logged_without_itself(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        asked(wire, Authorization="Bearer hunter2")
    (record,) = [record for record in caplog.records if record.name == "mcp_tasks.access"]
    known: dict[str, Any] = record.__dict__
    assert (known["event"], known["reason"], record.levelname) == ("access_refused", "credential", "WARNING")
    assert all("hunter2" not in str(record.__dict__) for record in caplog.records)
