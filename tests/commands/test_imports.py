"""A real worker process of a site whose tools cannot be imported: it does not start, and loses nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from mcp_tasks.models import Task
from mcp_tasks.store import get_store
from tests.support.servers import ROOT

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS = """
import prices
from mcp_tasks import tool

@tool
def quote() -> str:
    return prices.NOW
"""
SETTINGS = """
from tests.faults.settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "shop"]
"""


def worker(folder: Path) -> "subprocess.CompletedProcess[str]":
    """One that runs what is queued, on the database of this test."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "site_settings",
        "FAULTS_DATABASE": json.dumps(connection.settings_dict),
        "MCP_TASKS_DEMO_DIR": str(folder / "demo"),
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
    }
    command = [sys.executable, str(ROOT / "manage.py"), "run_task_worker", "--once"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_a_worker_whose_tools_cannot_be_imported_does_not_start_and_its_tasks_wait_for_one_that_does(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "mcp_tools.py").write_text(TOOLS)
    (tmp_path / "site_settings.py").write_text(SETTINGS)
    ref = get_store().create_task("quote", {}).ref
    ended = worker(tmp_path)
    assert ended.returncode == 1
    assert "No module named 'prices'" in ended.stderr
    assert str(Path("shop", "mcp_tools.py")) in ended.stderr
    task = Task.objects.get(pk=ref)
    assert (task.phase, task.leg, task.attempts) == ("queued", 0, 0)

    (tmp_path / "prices.py").write_text('NOW = "3.50"')
    ended = worker(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert Task.objects.get(pk=ref).status == "completed"
