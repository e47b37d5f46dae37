"""
What a claim costs with a long queue, and what its index costs a task's life; with the index and without, in turns.

``python -m benchmarks.claims [--database sqlite|URL] [--queued 20000] [--tasks 500]``.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from .indexes import add, drop, prepare

INDEX = ("mcp_tasks_claim",)
ROUNDS, LOOKS = 5, 21


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="sqlite", help="sqlite (default), or a URL of an empty database")
    parser.add_argument("--queued", type=int, default=20_000, help="tasks in the queue; as many more have ended")
    parser.add_argument("--tasks", type=int, default=500, help="tasks that live in each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-claims-") as folder:
        prepare(options.database, Path(folder))
        ratios = []
        for _ in range(ROUNDS):
            drop(INDEX)
            without = live(options.tasks)
            add(INDEX)
            ratios.append(live(options.tasks) / without)
        print(f"create, claim, complete: {statistics.median(ratios):.2f} times as long with the index")
        fill(options.queued)
        print(f"one claim, with {options.queued} tasks queued, in ms:")
        found = look()
        drop(INDEX)
        without_index = look()
        add(INDEX)
        for name, milliseconds in found.items():
            print(f"  {name:<44}{milliseconds:8.2f}   without the index {without_index[name]:8.2f}")
    return 0


def live(number: int) -> float:
    """Wall time of the whole life of so many tasks, while a hundred others wait."""
    from mcp_tasks.store import get_store

    store, result = get_store(), {"content": []}
    for _ in range(100):
        store.create_task("report", {})
    began = time.perf_counter()
    for _ in range(number):
        store.create_task("report", {})
        claim = store.claim()
        assert claim is not None
        store.complete_task(claim.ref, result, leg=claim.leg)
    return time.perf_counter() - began


def fill(number: int) -> None:
    """A queue of which every third task is urgent and the last three are of another tool, and as many ended tasks."""
    from django.db import connection

    from mcp_tasks.models import Task, TaskEvent

    for model in (TaskEvent, Task):
        model.objects.all()._raw_delete("default")
    now = datetime.now(UTC)

    def row(n: int, **values: Any) -> Task:
        at = now + timedelta(milliseconds=n)
        common = {"created_at": at, "updated_at": at, "phase_at": at, "poll_interval_ms": 1000, "method": "tools/call"}
        later = {"ttl_ms": 3_600_000, "expires_at": at + timedelta(hours=1), "sweep_at": at + timedelta(hours=1)}
        return Task(ref=uuid4(), arguments_json="{}", context_json="{}", **common, **later, **values)

    for n in range(0, number, 1000):
        batch = range(n, min(n + 1000, number))
        Task.objects.bulk_create(row(i, phase="done", status="completed", tool="bulk", result_json="{}") for i in batch)
        Task.objects.bulk_create(
            row(
                i,
                phase="queued",
                status="working",
                tool="bulk" if i < number - 3 else "rare",
                priority=int(i % 3 == 0),
                due_at=now + timedelta(hours=1),
            )
            for i in batch
        )
    if connection.vendor != "sqlite":
        with connection.cursor() as cursor:
            table = "TABLE mcp_tasks_task" if connection.vendor == "mysql" else "mcp_tasks_task"
            cursor.execute(f"ANALYZE {table}")


def look() -> dict[str, float]:
    """Medians in milliseconds. Each claim is given back, so that all see the same queue."""
    from mcp_tasks.store import RunningLimit, get_store

    store = get_store()
    asked: dict[str, dict[str, Any]] = {
        "by priority": {},
        "the oldest": {"oldest_first": True},
        "of a tool with few tasks": {"tools": ("rare",)},
        "of a tool without tasks": {"tools": ("absent",)},
        "of a limited tool": {"limits": {"bulk": RunningLimit(total=2)}},
        "beside a tool that has reached its limit": {"limits": {"bulk": RunningLimit(total=0)}},
    }
    return {name: _median(lambda options=options: store.claim(**options)) for name, options in asked.items()}


def _median(claim: Callable[[], Any]) -> float:
    from mcp_tasks.models import Task

    times = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        found = claim()
        times.append(time.perf_counter() - began)
        if found is not None:
            Task.objects.filter(pk=found.ref).update(phase="queued", leg=found.leg)
    return 1000 * statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
