"""
Many tasks through several worker processes, left alone, and while one of them is killed every two seconds.

``python -m benchmarks.many_workers [--tasks 10000] [--workers 4] [--slots 4] [--seconds 0.3] [--database URL]``.
Without a URL it starts a PostgreSQL of its own. Prints how long it took and what became of each task; ends with 1 where
a task that nobody disturbed ran more than once, where any task has no end, or more than one, or where the kills have
met so few legs that they prove nothing: less than one each.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.settings import database as database_settings
from tests.support.clusters import cluster
from tests.support.servers import ROOT, manage

KILL_SECONDS = 2.0
#: What a worker writes once it may claim.
READY = "runs up to"
QUIET_SECONDS = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.3, help="how long a task takes while workers are killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", help="a URL of an empty PostgreSQL database")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-tasks-workers-")))
        url = options.database
        settings = database_settings(url) if url else stack.enter_context(cluster()).settings
        _prepare(settings, folder)
        number = options.tasks
        _lease(60, 15, 10)  # as it is by default: nobody is lost
        left_alone = Run(folder, options.workers, options.slots)
        broken = left_alone.measure(number, "left alone")
        _lease(6, 2, 1)  # so that what was lost is found soon
        chance = random.Random(options.seed)
        killed = Run(folder, options.workers, options.slots, options.seconds, chance)
        broken += killed.measure(number, f"with a worker killed every {KILL_SECONDS:g} s")
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


def _prepare(settings: dict[str, Any], folder: Path) -> None:
    os.environ.update(
        {
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            "FAULTS_DATABASE": json.dumps(settings),
            "MCP_TASKS_DEMO_DIR": str(folder / "demo"),
        }
    )
    _lease(60, 15, 10)
    manage({}, "migrate", "-v", "0")
    import django

    django.setup()


def _lease(lease: int, heartbeat: int, sweep: int) -> None:
    """The settings of the workers that are started from now on, in seconds."""
    told = {
        "RUNNER": {"BACKEND": "mcp_tasks.runners.external.ExternalRunner"},
        "LIMITS": {"LIVE_TASKS_ANONYMOUS": None},
        "LEASE_SECONDS": lease,
        "HEARTBEAT_SECONDS": heartbeat,
        "SWEEP_SECONDS": sweep,
    }
    os.environ["FAULTS_MCP_TASKS"] = json.dumps(told)


@dataclass(slots=True)
class Process:
    """A worker, and where it writes."""

    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def is_ready(self) -> bool:
        return READY in self.log.read_text()

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()

    def legs(self) -> int:
        """How many legs have its lease."""
        from mcp_tasks.models import Task

        return Task.objects.filter(phase="running", lease_holder__endswith=f":{self.popen.pid}").count()


@dataclass(slots=True)
class Run:
    """So many worker processes; killed and started again where there is ``chance``. A task takes ``seconds``."""

    folder: Path
    workers: int
    slots: int
    seconds: float = 0.0
    chance: random.Random | None = None
    processes: list[Process] = field(default_factory=list)
    kills: int = 0
    #: Legs that ran in the killed processes.
    caught: int = 0

    def measure(self, number: int, name: str) -> list[str]:
        """Run so many tasks; returns what should not be."""
        from mcp_tasks.models import Task, TaskEvent

        TaskEvent.objects.all().delete()
        Task.objects.all().delete()
        took = _timed(lambda: _fill(number, self.seconds))
        print(f"{number} tasks, created in {took:.0f} s ({number / took:.0f} a second)")
        try:
            for _ in range(self.workers):
                self._start()
            took = _timed(self._until_all_have_ended)
        finally:
            for process in self.processes:
                process.kill()
        print(f"{name}: {took:.1f} s, {number / took:.0f} a second, {self.workers} x {self.slots} slots", end="")
        print(f", tasks of {self.seconds:g} s, {self.kills} kills" if self.chance else "")
        return _report(number, self)

    def _start(self) -> None:
        command = [sys.executable, "manage.py", "run_task_worker", "--slots", str(self.slots)]
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".log", delete=False) as log:
            popen = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self.processes.append(Process(popen, Path(log.name)))

    def _until_all_have_ended(self) -> None:
        from mcp_tasks.lifecycle import LIVE, QUEUED
        from mcp_tasks.models import Task

        kill_at, deadline = time.monotonic() + KILL_SECONDS, time.monotonic() + QUIET_SECONDS
        while Task.objects.filter(phase__in=LIVE).exists() and time.monotonic() < deadline:
            time.sleep(0.2)
            if self.chance is None or time.monotonic() < kill_at:
                continue
            # One that still starts, or has nothing left to take, would lose nothing.
            ready = [process for process in self.processes if process.is_ready]
            if ready and Task.objects.filter(phase=QUEUED).exists():
                self._kill(self.chance.choice(ready))
                kill_at = time.monotonic() + KILL_SECONDS

    def _kill(self, victim: Process) -> None:
        self.processes.remove(victim)
        victim.kill()
        self.kills += 1
        self.caught += victim.legs()
        self._start()


def _timed(run: Any) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def _fill(number: int, seconds: float) -> None:
    from mcp_tasks.store import get_store

    store = get_store()
    for n in range(number):
        store.create_task("slow_echo", {"text": str(n), "seconds": seconds}, max_attempts=3)


def _report(number: int, run: Run) -> list[str]:
    """What became of the tasks, by their rows and timelines."""
    from mcp_tasks.models import Task, TaskEvent

    disturbed = run.chance is not None

    statuses = Counter(Task.objects.values_list("status", flat=True))
    claims = Counter(TaskEvent.objects.filter(kind="claimed").values_list("task_id", flat=True))
    outcomes = Counter(
        TaskEvent.objects.filter(kind__in=("completed", "failed", "cancelled")).values_list("task_id", flat=True)
    )
    tries = Counter(claims.values())
    print(f"  ended: {', '.join(f'{status} {count}' for status, count in sorted(statuses.items()))}")
    print(f"  runs of a task: {', '.join(f'{count} had {times}' for times, count in sorted(tries.items()))}")
    broken = []
    if disturbed:
        again = TaskEvent.objects.filter(kind="leg_lost").count()
        over = TaskEvent.objects.filter(kind="failed", actor="janitor").count()  # their last try was lost
        print(f"  lost legs: {again + over} found by their leases, {again} to run again, {over} to fail", end="")
        print(f"; {run.caught} ran in what was killed")
        if again + over < run.kills:
            broken.append(f"{run.kills} kills lost {again + over} legs: they have met too few to prove anything")
    if sum(outcomes.values()) != number or set(outcomes.values()) != {1}:
        broken.append(f"{number} tasks have {sum(outcomes.values())} outcomes, at most {max(outcomes.values())} each")
    if not disturbed and (set(tries) != {1} or statuses != {"completed": number}):
        broken.append("a task that nobody disturbed did not run exactly once")
    if disturbed and max(tries) > 3:
        broken.append("a task was tried more often than it may")
    wrong = _texts()
    if wrong:
        broken.append(f"{len(wrong)} results are not those of their tasks, for instance {wrong[0]}")
    return broken


def _texts() -> list[str]:
    """Results that are not what their task was asked for."""
    from mcp_tasks.models import Task

    found = Task.objects.filter(status="completed").values_list("arguments_json", "result_json")
    pairs = ((json.loads(given)["text"], json.loads(made)["content"][0]["text"]) for given, made in found.iterator())
    return [f"{asked}: {said}" for asked, said in pairs if asked != said]


if __name__ == "__main__":
    sys.exit(main())
