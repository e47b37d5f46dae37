"""What a stream keeps of its credential: where it can be shown again, where only its user is known, and the key."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.handlers.asgi import ASGIRequest
from django.db import OperationalError
from rest_framework.authentication import BaseAuthentication
from rest_framework.authtoken.models import Token

from mcp_tasks.access import credentials
from mcp_tasks.access.credentials import Credential
from mcp_tasks.access.owners import default_owner
from mcp_tasks.notifications.places import Places, places
from mcp_tasks.rpc.caller import Caller
from mcp_tasks.store import CreatedTask, get_store
from mcp_tasks.store.types import Owner
from tests.support.adapters import scope_of
from tests.support.push import LoopThread, Stream

from .listens import ACKNOWLEDGED, application_of, listen_draft, status_of

MakeTask = Callable[..., CreatedTask]


def shown(query: bytes = b"", **headers: str) -> ASGIRequest:
    return ASGIRequest({**scope_of(headers), "query_string": query}, BytesIO())


def opened(server: LoopThread, token: str | None = None, **notifications: Any) -> Stream:
    request = listen_draft(notifications, token=token)
    return Stream(server, application_of("view-asgi"), request.headers, request.text)


def test_streams_with_another_query_share_no_look() -> None:
    """An authentication class may read its token there."""
    caller = Caller(Owner(("x", "alice"), "alice"))
    same = [Credential(shown(b"token=a", Accept="a/b"), caller).key, Credential(shown(b"token=a"), caller).key]
    assert same[0] == same[1]
    assert Credential(shown(b"token=b"), caller).key != same[0]


@pytest.mark.usefixtures("transactional_db")
def test_a_stream_whose_user_alone_is_looked_at_shares_no_look_with_one_whose_credential_is(
    token: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = shown(Authorization=f"Bearer {token('alice')}")
    caller = credentials.authenticate(request)
    whole, user_only = Credential(request, caller), Credential(request, caller)
    whole.require_repeatable(request)
    monkeypatch.setattr(Credential, "caller", lambda self: None)
    user_only.require_repeatable(request)
    assert whole.key != user_only.key


class Attached(BaseAuthentication):
    """Takes for granted what a middleware sets."""

    def authenticate(self, request: Any) -> Any:
        return request._request.remote, None


def tenant_of(request: Any) -> Owner | None:
    assert request._request.tenant == "shop"
    return default_owner(request)


def of_the_project(get_response: Any) -> Any:
    """A middleware."""

    def middleware(request: Any) -> Any:
        request.remote, request.tenant = User.objects.filter(username="alice").first(), "shop"
        return get_response(request)

    return middleware


@pytest.mark.parametrize(
    "keys",
    [{"AUTHENTICATION_CLASSES": [f"{__name__}.Attached"]}, {"OWNER": f"{__name__}.tenant_of"}],
    ids=["class", "owner"],
)
def test_what_only_works_behind_a_middleware_opens_a_stream_whose_user_is_looked_at(
    server: LoopThread,
    task: MakeTask,
    token: Callable[[str], str],
    settings: Any,
    configure: Callable[..., None],
    keys: dict[str, Any],
) -> None:
    made = task()
    settings.MIDDLEWARE = [f"{__name__}.of_the_project"]
    configure(**keys)
    stream = opened(server, token("alice"), taskIds=[made.task_id])
    assert stream.next()["params"]["notifications"] == {"taskIds": [made.task_id]}
    assert status_of(stream.next()) == "working"
    User.objects.update(is_active=False)
    get_store().complete_task(made.ref, {"content": []})
    assert [status_of(message) for message in stream.rest()] == [None]


@pytest.mark.usefixtures("transactional_db")
def test_a_database_that_is_away_is_an_answer_and_keeps_no_place(
    server: LoopThread, token: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown_token = token("alice")

    def away(self: Credential) -> bool:
        raise OperationalError

    monkeypatch.setattr(Credential, "is_accepted", away)
    stream = opened(server, shown_token, toolsListChanged=True)
    assert (stream.status, stream.whole()["error"]["message"]) == (500, "Internal error")
    assert places.count() == 0


@pytest.mark.usefixtures("transactional_db")
def test_a_token_that_is_deleted_while_its_stream_is_opened_opens_none(
    server: LoopThread, token: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, shown_token = Places.take, token("alice")

    def take(self: Places, owner: str) -> Any:
        Token.objects.all().delete()
        return real(self, owner)

    monkeypatch.setattr(Places, "take", take)
    stream = opened(server, shown_token, toolsListChanged=True)
    assert stream.status == 401
    assert "www-authenticate" in stream.headers
    assert stream.whole()["error"]["message"]
    assert places.count() == 0


@pytest.mark.usefixtures("transactional_db")
def test_an_accepted_token_still_opens_one(server: LoopThread, token: Callable[[str], str]) -> None:
    assert opened(server, token("alice"), toolsListChanged=True).next()["method"] == ACKNOWLEDGED


@pytest.mark.usefixtures("transactional_db")
def test_a_user_model_need_not_have_the_column_is_active(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    """As AbstractBaseUser, where it is an attribute."""
    configure(ALLOW_ANONYMOUS=True)
    user: Any = Group.objects.create(name="stands for a user")
    monkeypatch.setattr(Group, "is_active", True, raising=False)
    monkeypatch.setattr(credentials, "get_user_model", lambda: Group)
    monkeypatch.setattr(credentials, "authenticate", lambda request: Caller(None, user if request is front else None))
    front = shown()
    credential = Credential(front, Caller(None, user))
    credential.require_repeatable(front)
    assert credential.is_accepted()
    monkeypatch.setattr(Group, "is_active", False)
    assert not credential.is_accepted()
    monkeypatch.setattr(Group, "is_active", True)
    user.delete()
    assert not credential.is_accepted()
