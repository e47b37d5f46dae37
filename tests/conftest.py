"""Fixtures of the whole suite: callers with tokens, and the ways into the server."""

import gc
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import TransactionTestCase

from mcp_tasks.testing.client import McpClient
from tests.support import emptying
from tests.support.adapters import ADAPTERS, Wire, make_client

# Ten thousand tests are objects that stay: to look through them again and again took a tenth of the suite's time.
gc.disable()

_SLOW = ("tests/browser/", "tests/e2e/", "tests/faults/")
_SOAK = ("tests/faults/test_push_leaks.py",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes, or a browser, is a run of its own: ``pytest -m slow``, ``pytest -m soak``."""
    for item in items:
        if item.nodeid.startswith(_SOAK):
            item.add_marker("soak")
        elif item.nodeid.startswith(_SLOW):
            item.add_marker("slow")
    # The largest groups first, for nothing else fills the time that one of them is alone at the end.
    sizes = Counter(_group(item) for item in items)
    items.sort(key=lambda item: -sizes[_group(item)] if _group(item) else 0)


def pytest_collection_finish() -> None:
    """From now on there is garbage, and only what comes from now on is looked through."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _group(item: pytest.Item) -> str | None:
    """Those of its tests that run in one process, one after another."""
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else None


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


@pytest.fixture
def own_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test does with the signals that stop a server is forgotten at its end."""
    from mcp_tasks.transports import stopping

    before = {number: signal.getsignal(number) for number in stopping.SIGNALS}
    monkeypatch.setattr(stopping, "_chained", {})
    monkeypatch.setattr(stopping, "_heard", set())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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
def _threads_of_the_server(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The threads of this process let go of the test database before it is dropped."""
    yield
    with django_db_blocker.unblock():
        emptying.end_threads()


@pytest.fixture(autouse=True, scope="session")
def _queues_begin_with_the_first() -> Iterator[None]:
    """Each process begins its count of starts somewhere else; in tests at nought."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcp_tasks.execution.queue.randrange", lambda stop: 0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _emptied_row_by_row() -> Iterator[None]:
    """After a test whose rows other threads see, in the place of Django's flush; see ``tests/support/emptying.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: emptying.empty())
        yield
