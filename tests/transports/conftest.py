"""What the tests of the HTTP layer share."""

import gc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_tasks.access import refusals
from mcp_tasks.access.owners import default_owner
from mcp_tasks.notifications.hub import hub
from mcp_tasks.notifications.places import places
from mcp_tasks.store import CreatedTask, get_store
from mcp_tasks.store.types import Owner
from tests.support.push import LoopThread


@pytest.fixture
def open_to_all(configure: Callable[..., None]) -> None:
    """Anonymous callers may come in: such requests touch no database."""
    configure(ALLOW_ANONYMOUS=True)


@pytest.fixture
def server(transactional_db: None) -> Iterator[LoopThread]:
    """The event loop of a server. What was opened on it is cut at the end of the test, and nobody listens any more."""
    thread = LoopThread()
    yield thread
    thread.end()
    hub.close()
    refusals.settle(5)
    if places.count():
        gc.collect()  # what was cut in the middle lets go of its place


@pytest.fixture
def owner(token: Callable[[str], str]) -> Callable[[str], Owner]:
    """The owner that a user's credential stands for: ``owner("alice")``."""

    def of(name: str) -> Owner:
        token(name)
        found = default_owner(SimpleNamespace(user=User.objects.get(username=name), auth=None))  # type: ignore[arg-type]
        assert found is not None
        return found

    return of


@pytest.fixture
def task(transactional_db: None, owner: Callable[[str], Owner]) -> Callable[..., CreatedTask]:
    """A queued task: ``task("alice")``, or of nobody."""

    def make(name: str | None = "alice", **options: Any) -> CreatedTask:
        return get_store().create_task("echo", {"text": "x"}, owner=None if name is None else owner(name), **options)

    return make
