"""Projects that wrap every request in a transaction, on any of their databases: ours are left out."""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest
from django.db import connections

from mcp_tasks.contrib import health
from mcp_tasks.contrib.prometheus import views as prometheus
from mcp_tasks.transports.http import view as http
from mcp_tasks.transports.rest.base import RestView

VIEWS = [
    (http, "mcp"),
    (health, "live"),
    (health, "ready"),
    (health, "detail"),
    (prometheus, "metrics"),
    (prometheus, "open_metrics"),
]


@pytest.fixture(autouse=True)
def _two_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings, "other", connections.settings["default"])


def again(module: ModuleType) -> Any:
    """The module as another project would import it; what is imported already knows one database."""
    spec = spec_from_file_location(f"{module.__name__}_again", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


@pytest.mark.parametrize(("module", "name"), VIEWS, ids=[name for _, name in VIEWS])
def test_a_view_runs_outside_of_the_transactions_of_every_database(module: ModuleType, name: str) -> None:
    view: Callable[..., Any] = getattr(again(module), name)
    assert view._non_atomic_requests == {"default", "other"}  # type: ignore[attr-defined]


def test_so_does_every_rest_view() -> None:
    assert RestView.as_view()._non_atomic_requests == {"default", "other"}  # type: ignore[attr-defined]
