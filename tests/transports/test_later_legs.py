"""What a call said of itself is so in every leg of its task, whoever answers in between, and how."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import translation
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from mcp_tasks import TaskContext
from mcp_tasks.testing import McpClient, run_until_idle
from tests.support.adapters import Wire

pytestmark = pytest.mark.usefixtures("transactional_db")

FORM = {"type": "object", "properties": {}}
#: The endpoint runs no middleware of Django, so no language of a request is known there.
VIEWS = pytest.mark.parametrize("adapter", ["view-wsgi", "view-asgi"])


class Scoped(BaseAuthentication):
    """As an OAuth package does: the credential says what it is good for."""

    def authenticate(self, request: Request) -> tuple[Any, Any]:
        user, _ = User.objects.get_or_create(username="alice")
        return user, SimpleNamespace(scope=request.headers["X-Scope"])


@pytest.fixture(autouse=True)
def _site(settings: Any, configure: Any) -> None:
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware"]
    configure(AUTHENTICATION_CLASSES=[f"{Scoped.__module__}.Scoped"])


def client(wire: Wire, *, scope: str, language: str) -> McpClient:
    """Alice with a credential of this scope, who reads this language."""
    own = {"X-Scope": scope, "Accept-Language": language}

    def post(body: bytes, headers: Any) -> Any:
        with translation.override("it"):  # what the request leaves on its thread is not there for a leg
            return wire.send(body, {**headers, **own})

    return McpClient(post)


def run() -> None:
    with translation.override("it"):
        run_until_idle()


def seen_in_legs(wire: Wire, mcp_tools: Any) -> list[tuple[int, list[str], str]]:
    """Leg, scopes and language of a task with one question, answered with another scope and language."""
    seen: list[tuple[int, list[str], str]] = []

    @mcp_tools(task="required")
    def looks(ctx: TaskContext) -> str:
        seen.append((ctx.leg, sorted(ctx.scopes), translation.get_language() or ""))
        ctx.elicit("go", "Go on?", FORM)
        return f"{' '.join(sorted(ctx.scopes))} {translation.get_language()}"

    task_id = client(wire, scope="a b", language="de").call_tool("looks")["taskId"]
    run()
    other = client(wire, scope="c", language="fr")
    other.update_task(task_id, {"go": {"action": "accept", "content": {}}})
    run()
    text = other.get_task(task_id)["result"]["content"][0]["text"]
    assert text == f"{' '.join(seen[-1][1])} {seen[-1][2]}"
    return seen


def test_the_scopes_of_the_call_are_those_of_every_leg(wire: Wire, mcp_tools: Any) -> None:
    assert [(leg, scopes) for leg, scopes, _ in seen_in_legs(wire, mcp_tools)] == [(1, ["a", "b"]), (2, ["a", "b"])]


@VIEWS
def test_the_language_of_the_call_is_that_of_every_leg(wire: Wire, mcp_tools: Any) -> None:
    assert [(leg, language) for leg, _, language in seen_in_legs(wire, mcp_tools)] == [(1, "de"), (2, "de")]
