"""Pages whose modules are imported into the test's own process: quick, and undone afterwards."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mcp_tasks.rpc.methods import table
from mcp_tasks.testing import McpClient
from mcp_tasks.tools.registry import registry

from .pages import ROOT, blocks
from .projects import write

PACKAGES = ("mysite", "shop")


class Page:
    """A page's files as modules, and its settings as a namespace."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def module(self, name: str) -> ModuleType:
        """One of its modules, imported on first use."""
        return importlib.import_module(name)


@pytest.fixture
def page(
    request: pytest.FixtureRequest, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Page]:
    """The page that the test module names as ``PAGE``: its tools are the only ones, its settings hold."""
    found = blocks(ROOT / request.module.PAGE)
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    namespace: dict[str, Any] = {"INSTALLED_APPS": [], "DATABASES": {"default": {}}}
    for block in found:
        if block.target == "mysite/settings.py":
            exec(compile(block.text, block.where, "exec"), namespace)
        elif block.target:
            write(tmp_path, block)
    settings.MCP_TASKS = {**namespace.get("MCP_TASKS", {}), **settings.MCP_TASKS}
    monkeypatch.syspath_prepend(tmp_path)
    tools, methods = list(registry), dict(table.methods)
    capabilities = {name: dict(value) for name, value in table.capabilities.items()}
    _forget_tools()
    try:
        if (tmp_path / "shop" / "mcp_tools.py").exists():
            importlib.import_module("shop.mcp_tools")
            assert registry.problems() == []
        yield Page(namespace)
    finally:
        _forget_tools()
        for tool in tools:
            registry.add(tool)
        table.methods.clear()
        table.methods.update(methods)
        table.capabilities.clear()
        table.capabilities.update(capabilities)
        for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
            del sys.modules[name]


def _forget_tools() -> None:
    for tool in list(registry):
        registry.remove(tool.name)


@pytest.fixture
def ada(page: Page, transactional_db: None, token: Callable[[str], str]) -> McpClient:
    """A caller of the page's server; transactional, since progress is written on another connection."""
    return McpClient.django(token=token("ada"))
