"""
Kill a server under load, again and again, and see whether anything acknowledged was lost.

``python tests/faults/kill_server.py --kills 50 --database postgresql``. PostgreSQL is that of DATABASE_URL, else the
local one. Ends with 1 when a promise was broken.
"""

import argparse
import hashlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from mcp_tasks.protocol.errors import McpError  # noqa: E402
from mcp_tasks.testing.client import McpClient  # noqa: E402
from tests.faults.databases import READ_COMMITTED, SQLITE_IMMEDIATE, Database, database  # noqa: E402
from tests.faults.load import Load, Promise  # noqa: E402
from tests.support.servers import Server, manage, start  # noqa: E402

KINDS = {"sqlite": SQLITE_IMMEDIATE, "postgresql": READ_COMMITTED}
QUIET_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is noted of one task: the kinds of its events, and how often a stretch of its work may be tried."""

    max_attempts: int
    kinds: Sequence[str] = ()

    @property
    def is_used_up(self) -> bool:
        """Whether it was tried as often as it may. Asking begins a new stretch of work."""
        tries = 0
        for kind in self.kinds:
            tries = 0 if kind == "asked" else tries + (kind == "claimed")
        return tries == self.max_attempts

    def __str__(self) -> str:
        return f"{' '.join(self.kinds)}, of {self.max_attempts} tries"


def main() -> int:
    """Parse, run, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--database", choices=sorted(KINDS), default="sqlite")
    parser.add_argument("--seconds-max", type=float, default=400.0, help="no further kill after so long")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broken, report = run(options.kills, options.database, Path(folder), options.seconds_max, options.seed)
    for line in report:
        print(line)
    for line in broken:
        print(f"BROKEN: {line}")
    print(f"{options.database}: {'nothing acknowledged was lost' if not broken else f'{len(broken)} promises broken'}")
    return 1 if broken else 0


def run(kills: int, kind: str, folder: Path, seconds_max: float = 400.0, seed: int = 1) -> tuple[list[str], list[str]]:
    """Kill that many times; returns the broken promises and what was seen, as lines."""
    with database(KINDS[kind], f"kills_{os.getpid()}", folder) as made:
        tokens = dict(line.split() for line in manage(made.environment, "demo", "--show-tokens").splitlines())
        servers = [start(made.environment, folder, kind="daphne")]
        load = Load(lambda: servers[-1].url, tokens["alice"])
        try:
            load.start()
            killed = _kill(servers, made.environment, folder, kills, time.monotonic() + seconds_max, seed)
            load.stop()
            tasks = _settle(load)
            stranger = McpClient.http(servers[-1].url, token=tokens["bob"])
            broken = [
                *load.faults,
                *_broken(load.promises, tasks, _timelines(made)),
                *_seen_by(stranger, load.promises),
            ]
        finally:
            load.stop()
            servers[-1].end()
    outcomes = Counter(f"{p.kind} {tasks[p.task_id]['status']}" for p in load.promises if p.task_id in tasks)
    lines = [f"kills: {killed}", f"tasks acknowledged: {len(load.promises)}"]
    lines += [f"{what}: {count}" for what, count in sorted(load.seen.items())]
    lines += [f"ended: {what}: {count}" for what, count in sorted(outcomes.items())]
    return broken, lines


def _kill(
    servers: list[Server], environment: dict[str, str], folder: Path, kills: int, deadline: float, seed: int
) -> int:
    chance = random.Random(seed)
    for count in range(kills):
        if time.monotonic() > deadline:
            return count
        time.sleep(chance.uniform(0.2, 1.5))
        servers[-1].end()
        servers.append(start(environment, folder, kind="daphne"))
    time.sleep(1.0)
    return kills


def _settle(load: Load) -> dict[str, dict[str, Any]]:
    """Answer what is asked, and wait until every promise has an end; returns the last state of each task."""
    tasks: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + QUIET_SECONDS
    for promise in load.promises:
        if promise.kind == "survey":
            load.open_questions(promise)
    for promise in load.promises:
        while True:
            try:
                task = load.insist(lambda client, of=promise: client.get_task(of.task_id))  # type: ignore[misc]
            except McpError:
                break  # absent: the check that follows says whose it was
            tasks[promise.task_id] = task
            ended = task["status"] in ("completed", "failed", "cancelled")
            # A task whose client never got to cancel it counts on for hours.
            if ended or (promise.kind == "cancel" and not promise.cancelled) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
    return tasks


def _ref(task_id: str) -> str:
    """The name of a task in its table, as hex. Of our own: the one of the package needs a configured Django."""
    return UUID(bytes=hashlib.sha256(task_id.encode()).digest()[:16], version=4).hex


def _timelines(made: Database) -> dict[str, Timeline]:
    """What the database says of each task, by its ref as hex."""
    found = made.query(
        "SELECT REPLACE(CAST(task.ref AS TEXT), '-', ''), task.max_attempts, event.kind"
        " FROM mcp_tasks_task AS task JOIN mcp_tasks_taskevent AS event ON event.task_id = task.ref ORDER BY event.id"
    )
    timelines: dict[str, Timeline] = {}
    for ref, max_attempts, kind in found:
        before = timelines.get(ref, Timeline(max_attempts))
        timelines[ref] = Timeline(max_attempts, (*before.kinds, kind))
    return timelines


def _broken(promises: list[Promise], tasks: dict[str, dict[str, Any]], timelines: dict[str, Timeline]) -> list[str]:
    broken = []
    for promise in promises:
        timeline = timelines.get(_ref(promise.task_id), Timeline(0))
        why = why_broken(promise, tasks.get(promise.task_id), timeline)
        if why is not None:
            broken.append(f"{promise.kind}: {why}; {timeline}")
    return broken


def why_broken(promise: Promise, task: dict[str, Any] | None, timeline: Timeline) -> str | None:
    """What is wrong with the end of a task; None when every promise was kept."""
    if task is None:
        return "an acknowledged task is gone"
    status = task["status"]
    text = "".join(block.get("text", "") for block in task.get("result", {}).get("content", []))
    lost = status == "failed" and task["error"]["code"] == -32603 and bool(task.get("statusMessage"))
    # Whoever kills fast enough hits the same task at each of its tries; a charge has but one.
    excused = lost and timeline.is_used_up
    match promise.kind:
        case "echo" | "keyed" | "charge":
            right = excused or (status == "completed" and text == promise.text)
        case "survey":
            answers = [promise.answers.get(key) for key in ("first", "second")]
            right = excused or (status == "completed" and text.split() == answers)
        case _:
            right = status == "cancelled" or (not promise.cancelled and status == "working")
    return None if right else f"ended as {status} with {text or task.get('error')!r}"


def _seen_by(stranger: McpClient, promises: list[Promise]) -> list[str]:
    seen = []
    for promise in promises[:50]:
        try:
            stranger.get_task(promise.task_id)
        except McpError as refused:
            if refused.code == -32602:
                continue
        seen.append(f"{promise.kind}: another user saw it")
    return seen


if __name__ == "__main__":
    sys.exit(main())
