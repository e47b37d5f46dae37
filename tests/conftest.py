"""Fixtures of the whole suite: callers with tokens, and the ways into the server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcp_tasks.testing.client import McpClient
from tests.support.adapters import ADAPTERS, Wire, make_client


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> str:
    """Each way into the server: a test that takes this runs once for every adapter."""
    return str(request.param)


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Change single keys of ``MCP_TASKS`` for the length of a test: ``configure(STRICT_HEADERS=True)``."""

    def change(**keys: Any) -> None:
        settings.MCP_TASKS = {**settings.MCP_TASKS, **keys}

    return change


@pytest.fixture(scope="session")
def _threads_of_the_server(django_db_setup: None) -> Iterator[None]:
    """The threads of this process let go of the test database before it is dropped."""
    yield
    from mcp_tasks.transports.http.endpoint import lanes
    from mcp_tasks.transports.http.streams import inline_pool

    lanes.end(wait_seconds=5)
    inline_pool.end(wait_seconds=5)


@pytest.fixture
def transactional_db(_threads_of_the_server: None, django_db_blocker: Any) -> Iterator[None]:
    """
    A database whose rows every thread sees, in the place of pytest-django's fixture of this name.

    What tests over HTTP write is deleted row by row, which takes a tenth of the time of the usual flush.
    """
    with django_db_blocker.unblock():
        yield
        _empty()


def _empty() -> None:
    from django.contrib.auth.models import User
    from django.contrib.sessions.models import Session

    from mcp_tasks.models import OwnerGate, Task, TaskEvent, TaskInput, TaskStep

    for model in (TaskEvent, TaskInput, TaskStep, Task, OwnerGate):
        model._base_manager.all()._raw_delete("default")
    User.objects.all().delete()
    Session.objects.all().delete()


@pytest.fixture
def token() -> Callable[[str], str]:
    """The API token of a user, who is made on first use."""

    def make(name: str) -> str:
        from django.contrib.auth.models import User
        from rest_framework.authtoken.models import Token

        user, _ = User.objects.get_or_create(username=name)
        return str(Token.objects.get_or_create(user=user)[0].key)

    return make


@pytest.fixture
def wire(adapter: str) -> Wire:
    """Single HTTP requests, right or wrong, through the adapter of this run. Needs no database by itself."""
    return Wire(adapter)


@pytest.fixture
def client_of(transactional_db: None, adapter: str, token: Callable[[str], str]) -> Callable[[str], McpClient]:
    """A client of a user, through the adapter of this run; tests read ``client_of("alice")``."""
    return lambda name: make_client(adapter, token=token(name))


@pytest.fixture
def alice(client_of: Callable[[str], McpClient]) -> McpClient:
    """A caller with a token, through each adapter."""
    return client_of("alice")


@pytest.fixture
def bob(client_of: Callable[[str], McpClient]) -> McpClient:
    """Another caller with a token."""
    return client_of("bob")


@pytest.fixture
def anonymous(transactional_db: None, adapter: str) -> McpClient:
    """A caller without a credential."""
    return make_client(adapter)


@pytest.fixture(autouse=True, scope="session")
def _plain_flush(django_db_setup: None) -> None:
    """The flush after a transactional test makes no permissions and content types anew: no test needs them."""
    from django.contrib.contenttypes.management import create_contenttypes
    from django.db.models.signals import post_migrate

    post_migrate.disconnect(create_contenttypes)
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
