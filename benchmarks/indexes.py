"""
What the operators' indexes cost: create and cancel with them and without, in turns, as a ratio.

``python -m benchmarks.indexes [--database sqlite|URL] [--tasks 1000]``.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.settings import database as database_settings
from tests.settings import sqlite

OPERATORS = ("mcp_tasks_created", "mcp_tasks_status", "mcp_tasks_tool", "mcp_tasks_of_owner", "mcp_tasks_finished")
ROUNDS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="sqlite", help="sqlite (default), or a URL of an empty database")
    parser.add_argument("--tasks", type=int, default=1000, help="tasks in each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-indexes-") as folder:
        measure(options.database, options.tasks, Path(folder))
    return 0


def prepare(url: str, folder: Path) -> None:
    """Set Django up on that database, with all tables."""
    settings = sqlite(str(folder / "db.sqlite3")) if url == "sqlite" else database_settings(url)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "FAULTS_DATABASE": json.dumps(settings),
        "FAULTS_MCP_TASKS": json.dumps({"LIMITS": {"LIVE_TASKS_ANONYMOUS": None}}),
        "MCP_TASKS_DEMO_DIR": str(folder),
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def measure(url: str, number: int, folder: Path) -> None:
    prepare(url, folder)
    create_and_cancel(number)  # warm
    ratios = []
    for _ in range(ROUNDS):
        drop(OPERATORS)
        without = create_and_cancel(number)
        add(OPERATORS)
        with_them = create_and_cancel(number)
        ratios.append(with_them / without)
        print(f"without {1e6 * without / number:6.0f} us, with {1e6 * with_them / number:6.0f} us: {ratios[-1]:.2f}")
    print(f"create and cancel take {statistics.median(ratios):.2f} times as long with the operators' indexes")


def create_and_cancel(number: int) -> float:
    """Wall time: the write to the disk is part of what a client waits for."""
    from mcp_tasks.store import get_store

    store, began = get_store(), time.perf_counter()
    for _ in range(number):
        store.cancel_task(store.create_task("report", {}).ref)
    return time.perf_counter() - began


def _indexes(names: tuple[str, ...]) -> list[Any]:
    from mcp_tasks.models import Task

    return [index for index in Task._meta.indexes if index.name in names]


def drop(names: tuple[str, ...]) -> None:
    from django.db import connection

    from mcp_tasks.models import Task

    with connection.schema_editor() as editor:
        for index in _indexes(names):
            editor.remove_index(Task, index)


def add(names: tuple[str, ...]) -> None:
    from django.db import connection

    from mcp_tasks.models import Task

    with connection.schema_editor() as editor:
        for index in _indexes(names):
            editor.add_index(Task, index)


if __name__ == "__main__":
    sys.exit(main())
