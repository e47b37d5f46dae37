"""docs/how-to/choose-a-runner.md: the settings of each runner make that runner, with what the page says of it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_tasks import compat
from mcp_tasks.runners.base import get_runner

from .pages import ROOT, Block, blocks

PAGE = "docs/how-to/choose-a-runner.md"
BLOCKS = blocks(ROOT / PAGE)
SETTINGS = [block for block in BLOCKS if block.target == "mysite/settings.py"]


@pytest.fixture
def apply(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Block], dict[str, Any]]]:
    """Make the settings of a block hold, with the modules of the page beside them."""
    for block in BLOCKS:
        if block.target.endswith("celery.py"):
            (tmp_path / "mysite").mkdir()
            (tmp_path / "mysite" / "__init__.py").touch()
            (tmp_path / block.target).write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)

    def change(block: Block) -> dict[str, Any]:
        namespace: dict[str, Any] = {"INSTALLED_APPS": list(settings.INSTALLED_APPS)}
        exec(compile(block.text, block.where, "exec"), namespace)
        if "TASKS" in namespace:
            settings.INSTALLED_APPS = namespace["INSTALLED_APPS"]
            settings.TASKS = namespace["TASKS"]
            backends = compat.django_tasks().task_backends
            monkeypatch.setattr(backends, "settings", backends.configure_settings(namespace["TASKS"]))
            if hasattr(backends._connections, "default"):
                del backends._connections.default
        settings.MCP_TASKS = namespace["MCP_TASKS"]
        return namespace

    yield change
    for name in [name for name in sys.modules if name.partition(".")[0] == "mysite"]:
        del sys.modules[name]
    backends = compat.django_tasks().task_backends
    if hasattr(backends._connections, "default"):
        del backends._connections.default


def test_the_page_has_settings_for_each_runner() -> None:
    assert len(SETTINGS) == 4


@pytest.mark.parametrize("block", SETTINGS, ids=lambda block: block.where)
def test_the_settings_make_the_runner_that_they_name(block: Block, apply: Any) -> None:
    namespace = apply(block)
    runner = get_runner()
    named = namespace["MCP_TASKS"]["RUNNER"]["BACKEND"]
    assert f"{type(runner).__module__}.{type(runner).__qualname__}" == named


def test_the_celery_app_is_the_one_of_the_page(apply: Any) -> None:
    apply(next(block for block in SETTINGS if "celery" in block.text))
    runner: Any = get_runner()
    assert (runner._app.main, runner._options) == ("mysite", {"queue": "mcp"})
    assert "mcp_tasks.run_leg" in runner._app.tasks


def test_the_commands_of_the_page_are_commands() -> None:
    from django.core.management import get_commands

    commands = {*get_commands(), "db_worker"}
    for block in BLOCKS:
        for line in block.text.splitlines():
            if line.startswith("python manage.py"):
                assert line.split()[2] in commands, block.where
