"""Fixtures for pytest, found by its entry point. Everything of Django is imported when a fixture is used."""

import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..store.types import CreatedTask
    from .client import McpClient

# Before anybody imports them: a failing assert is to show its values although it is not in a test module.
pytest.register_assert_rewrite(
    *(
        f"{__package__}.{module.name}"
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if module.name.startswith("contract")
    )
)


@pytest.fixture
def mcp_client(db: None) -> "McpClient":
    """An anonymous client straight into the project's URLconf at ``/mcp``; give it a ``token`` to be somebody."""
    from .client import McpClient

    return McpClient.django()


@pytest.fixture
def task_factory(db: None) -> "Callable[..., CreatedTask]":
    """Makes tasks in the configured store: ``task_factory("tool", {"argument": 1}, owner=…)``."""
    from ..store import get_store

    def make(tool: str = "example", arguments: dict[str, Any] | None = None, **options: Any) -> "CreatedTask":
        return get_store().create_task(tool, arguments or {}, **options)

    return make


@pytest.fixture
def mcp_tools() -> "Iterator[Callable[..., Any]]":
    """``@tool`` for the length of a test: what it registers is forgotten afterwards."""
    from ..tools.registry import registry
    from ..tools.registry import tool as decorate

    before = [tool.name for tool in registry]
    yield decorate
    for tool in registry:
        if tool.name not in before:
            registry.remove(tool.name)
