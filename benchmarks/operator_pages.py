"""
The pages of operators over many tasks: how long each takes, how many statements it is, and that none scans the table.

``python -m benchmarks.operator_pages [--database sqlite|URL] [--tasks 200000]``. Ends with 1 where the first page of
the list takes more than 50 ms at best, the overview more than 200 ms, or a statement reads the whole table of tasks.
"""

import argparse
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.settings import database as database_settings
from tests.settings import sqlite

BATCH = 5_000
TIMES = 15
GOALS_MS = {"list": 50.0, "overview": 200.0}
TOOLS = ("render_pdf", "send_campaign", "build_report", "import_rows", "train")
#: Lists count up to 10 001; of what has a filter that many match, some more rows are looked at.
MOST_READ = 100_000
#: One in so many tasks is unfinished: most of what a table holds has ended.
UNFINISHED = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="sqlite", help="sqlite (default), or a URL of an empty database")
    parser.add_argument("--tasks", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-pages-") as folder:
        return measure(options.database, options.tasks, Path(folder))


def measure(url: str, number: int, folder: Path) -> int:
    settings = sqlite(str(folder / "db.sqlite3")) if url == "sqlite" else database_settings(url)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "FAULTS_DATABASE": json.dumps(settings),
        "MCP_TASKS_DEMO_DIR": str(folder),
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    began = time.perf_counter()
    fill(number)
    print(f"{number} tasks written in {time.perf_counter() - began:.0f} s")
    return 1 if look(pages()) else 0


def fill(number: int) -> None:
    """A site in use: most tasks have ended in the last days; of the newest tenth some run, wait or are stalled."""
    from django.db import connection

    from mcp_tasks.models import Task
    from mcp_tasks.store import rollups

    chance, now = random.Random(1), datetime.now(UTC)
    for start in range(0, number, BATCH):
        end = min(start + BATCH, number)
        Task.objects.bulk_create(_task(chance, now, place / number) for place in range(start, end))
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE mcp_tasks_task")
    rollups.roll_up()


def _task(chance: random.Random, now: datetime, place: float) -> Any:
    """They come in the order of their creation, as they do on a site; ``place`` is from 0, the oldest, to 1."""
    from mcp_tasks.models import Task

    age = timedelta(seconds=60 + (1 - place) * 6 * 86_400)
    phase, status = "done", chance.choice(("completed", "completed", "completed", "failed", "cancelled"))
    if place >= 0.9 and chance.randrange(UNFINISHED // 10) == 0:
        phase, status = chance.choice((("queued", "working"), ("running", "working"), ("parked", "input_required")))
    created_at = now - age
    stalled = phase == "running" and chance.randrange(20) == 0
    payload = json.dumps({"text": "x" * 2000})
    return Task(
        ref=uuid4(),
        method="tools/call",
        tool=chance.choice(TOOLS),
        owner_key=f"{chance.randrange(500):064x}",
        owner_label=f"agent-{chance.randrange(500)}",
        phase=phase,
        status=status,
        created_at=created_at,
        updated_at=created_at,
        phase_at=created_at,
        started_at=created_at,
        finished_at=created_at + timedelta(seconds=1) if phase == "done" else None,
        due_at=None if phase == "done" else now + timedelta(seconds=-60 if stalled else 3600),
        ttl_ms=7 * 86_400_000,
        expires_at=created_at + timedelta(days=7),
        sweep_at=created_at + timedelta(days=7),
        poll_interval_ms=1000,
        run_ms=chance.randrange(60_000),
        lease_holder="web-1:1" if phase == "running" else None,
        asks_json=payload if status == "input_required" else None,
        result_json=payload if status == "completed" else None,
        error_json='{"code":-32603,"message":"no"}' if status == "failed" else None,
        arguments_json=payload,
    )


def pages() -> dict[str, str]:
    """Addresses by name; the first two have goals."""
    from django.urls import reverse

    from mcp_tasks.models import Task
    from mcp_tasks.operators.states import FILTERS

    tasks = reverse("admin:mcp_tasks_task_changelist")
    found = {"list": tasks, "overview": reverse("admin:mcp_tasks_task_overview")}
    found |= {f"list, {name}": f"{tasks}?state={name}" for name in FILTERS}
    found |= {"list, a tool": f"{tasks}?tool={TOOLS[0]}", "list, page 200": f"{tasks}?p=200"}
    found["task"] = reverse("admin:mcp_tasks_task_change", args=[Task.objects.values_list("pk", flat=True)[0]])
    return found


def look(found: dict[str, str]) -> list[str]:
    """Print a line for each page; returns what misses its goal."""
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    client, missed = Client(headers={"host": "localhost"}), []
    client.force_login(get_user_model().objects.create_superuser("operator"))
    for name, address in found.items():
        client.get(address)
        with CaptureQueriesContext(connection) as captured:
            answer = client.get(address)
        assert answer.status_code == 200, (name, answer.status_code)
        asked = [statement["sql"] for statement in captured.captured_queries]
        scans = [statement for statement in asked if reads_the_table(statement)]
        took = [_milliseconds(lambda address=address: client.get(address)) for _ in range(TIMES)]
        best, middle, own = min(took)[0], statistics.median(wall for wall, _ in took), min(own for _, own in took)
        times = f"best {best:6.1f} ms, half within {middle:6.1f} ms, processor {own:6.1f} ms"
        print(f"{name:>24}: {times}, {len(asked)} statements")
        for statement in scans:
            print(f"   reads the whole table: {statement[:300]}")
        # What else uses the machine only ever adds to it.
        if scans or best > GOALS_MS.get(name, float("inf")):
            missed.append(name)
    if missed:
        print(f"missed: {', '.join(missed)}")
    return missed


def _milliseconds(run: Any) -> tuple[float, float]:
    """On the clock, and of the processor: a server of a database works elsewhere, SQLite in this very process."""
    began, own = time.perf_counter(), time.process_time()
    run()
    return 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - own)


def reads_the_table(statement: str) -> bool:
    """Whether the database reads every task for it. A count that stops at its bound does not."""
    from django.db import connection

    if "mcp_tasks_task" not in statement or not statement.lstrip("( ").upper().startswith("SELECT"):
        return False
    prefix = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN ANALYZE"
    with connection.cursor() as cursor:
        cursor.execute(f"{prefix} {statement}".replace("%", "%%"))
        plan = "\n".join(str(row[-1]) for row in cursor.fetchall())
    if connection.vendor == "sqlite":
        scan = re.search(r"SCAN (TABLE )?mcp_tasks_task(?! USING)", plan)
        return scan is not None and "LIMIT" not in statement
    return any(read > MOST_READ for read in _read_one_by_one(plan))


def _read_one_by_one(plan: str) -> list[int]:
    """How many tasks PostgreSQL looked at without an index, for each part of a plan that did so."""
    found = []
    for part in re.split(r"\n\s*->", plan):
        if "Seq Scan on mcp_tasks_task " in part:
            numbers = re.findall(r"actual time=\S+ rows=(\d+)|Rows Removed by Filter: (\d+)", part)
            found.append(sum(int(kept or removed) for kept, removed in numbers))
    return found


if __name__ == "__main__":
    sys.exit(main())
