"""Observers for the length of a test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcp_tasks import observing
from mcp_tasks.observing import Observer
from mcp_tasks.testing.client import McpClient
from tests.support.adapters import make_client


@pytest.fixture(autouse=True)
def _observers() -> Iterator[None]:
    """Whoever was added by a test is forgotten after it."""
    before = observing._observers
    yield
    observing._observers = before


@pytest.fixture
def observe() -> Callable[[Observer], None]:
    """Tell this observer of everything until the test ends."""
    return observing.add


@pytest.fixture
def mcp(transactional_db: None, token: Callable[[str], str]) -> McpClient:
    """A caller with a token, on the test's own thread and connection."""
    return make_client("view-wsgi", token=token("alice"))


@pytest.fixture
def grant() -> Callable[[Any, str], None]:
    """Give a user a permission of this app."""

    def give(user: Any, codename: str) -> None:
        from django.contrib.auth.models import Permission

        user.user_permissions.add(Permission.objects.get(content_type__app_label="mcp_tasks", codename=codename))

    return give
