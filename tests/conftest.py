"""Fixtures of the whole suite: callers with tokens, and the two ways into the server."""

from collections.abc import Callable, Iterator

import pytest

from mcp_tasks.testing.client import McpClient
from tests.support.adapters import ADAPTERS, make_client


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> str:
    """Each way into the server: a test that takes this runs once for every adapter."""
    return str(request.param)


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
def _no_connections_left() -> Iterator[None]:
    """The threads of this process let go of the test database before it is dropped."""
    yield
    from mcp_tasks.transports.http.endpoint import lanes
    from mcp_tasks.transports.http.streams import inline_pool

    lanes.end()
    inline_pool.end()
