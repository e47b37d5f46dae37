"""What the tests of the REST addresses share: a site that mounts them, operators, and tasks in every state."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from rest_framework.authtoken.models import Token

from mcp_tasks.models import Task
from mcp_tasks.operators.policy import Policy
from mcp_tasks.store import CreatedTask, DatabaseTaskStore
from mcp_tasks.store.types import Owner
from mcp_tasks.testing import rewind
from mcp_tasks.testing.contract_support import question

from .api import Api

ALICE = Owner(("issuer", "alice"), "alice@example.com")
RATES = ("mcp_call", "mcp_poll", "mcp_update", "mcp_listen", "mcp_operator_read", "mcp_operator_write")
RATES += ("mcp_operator_lookup", "mcp_operator_bulk")


@pytest.fixture(autouse=True)
def _site(settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = "tests.rest.urls"
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ]
    settings.REST_FRAMEWORK = {
        "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
        "DEFAULT_AUTHENTICATION_CLASSES": [
            "rest_framework.authentication.TokenAuthentication",
            "rest_framework.authentication.SessionAuthentication",
        ],
        "DEFAULT_THROTTLE_RATES": dict.fromkeys(RATES),
    }
    cache.clear()
    yield
    cache.clear()


def user(name: str, *permissions: str, **more: Any) -> User:
    """A member of staff with these permissions."""
    made, _ = User.objects.get_or_create(username=name, defaults={"is_staff": True, **more})
    wanted = Permission.objects.filter(content_type__app_label="mcp_tasks", codename__in=permissions)
    assert len(wanted) == len(set(permissions))
    made.user_permissions.set(wanted)
    return made


@pytest.fixture
def staff() -> Callable[..., Api]:
    """An operator with these permissions, known by a token: ``staff("view_task")``."""

    def make(*permissions: str, name: str = "operator", **more: Any) -> Api:
        found = user(name, *permissions, **more)
        return Api(f"Token {Token.objects.get_or_create(user=found)[0].key}")

    return make


@pytest.fixture
def root(staff: Callable[..., Api]) -> Api:
    """A superuser."""
    return staff(name="root", is_superuser=True)


@pytest.fixture
def boss() -> int:
    """The primary key of the superuser."""
    return int(User.objects.get(username="root").pk)


class Tasks:
    """Tasks of Alice, by the state that they are in."""

    store = DatabaseTaskStore()
    result: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}

    def made(self, tool: str = "echo", arguments: Any = None, **options: Any) -> CreatedTask:
        options.setdefault("owner", ALICE)
        return self.store.create_task(tool, arguments or {"text": "x"}, **options)

    def queued(self, **options: Any) -> UUID:
        return self.made(**options).ref

    def running(self, **options: Any) -> UUID:
        ref = self.queued(**options)
        assert self.store.claim(ref, holder="web-1:7")
        return ref

    def stalled(self) -> UUID:
        ref = self.running()
        rewind(ref, 61)
        return ref

    def parked(self, *keys: str, ask: Any = None) -> UUID:
        ref = self.running()
        assert self.store.require_input(ref, {key: ask or question(key) for key in keys or ("a",)}, leg=1)
        return ref

    def completed(self) -> UUID:
        ref = self.running()
        assert self.store.complete_task(ref, self.result, leg=1)
        return ref

    def cancelled(self) -> UUID:
        ref = self.queued()
        assert self.store.cancel_task(ref, "enough")
        return ref

    def expired(self) -> UUID:
        ref = self.queued(ttl_ms=10_000)
        rewind(ref, 11)
        self.store.expire()
        return ref


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


def row(ref: UUID) -> Task:
    return Task.objects.get(pk=ref)


class OnlyEcho(Policy):
    """A project's policy: other tools are nobody's business here, and slow tasks are not to be cancelled."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        assert request.user.is_staff
        return queryset.exclude(tool="hidden")

    def may(self, request: Any, verb: str, task: Task) -> bool | str:
        return "This one is being looked into." if task.tool == "kept" else True

    def mask(self, request: Any, task: Task, path: str, key: str) -> bool | None:
        return True if path == "$.card.number" else None


@pytest.fixture
def policy(configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": f"{__name__}.OnlyEcho", "DISMISS_INPUT": True})
