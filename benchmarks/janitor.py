"""
The janitor beside a site in use: many expired tasks are purged while clients poll, create and answer.

``python -m benchmarks.janitor [--database sqlite|URL] [--tasks 200000]``. Two janitors run at once, one of them is
stopped in the middle, and a third finds nothing. Prints how long it took and what the clients noticed; ends with 1
where a client was refused, or something was left.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.settings import database as database_settings
from tests.settings import sqlite
from tests.support.servers import ROOT, manage, serving

BATCH = 2_000
EVENTS = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="sqlite", help="sqlite (default), or a URL of an empty database")
    parser.add_argument("--tasks", type=int, default=200_000, help="expired tasks to begin with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-janitor-") as folder:
        return measure(options.database, options.tasks, Path(folder))


def measure(url: str, number: int, folder: Path) -> int:
    settings = sqlite(str(folder / "db.sqlite3")) if url == "sqlite" else database_settings(url)
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "FAULTS_DATABASE": json.dumps(settings),
        # The site does not sweep: all of it is left to the janitors of this program.
        "FAULTS_MCP_TASKS": json.dumps({"SWEEP_SECONDS": 0, "LIMITS": {"LIVE_TASKS_PER_OWNER": None}}),
        "MCP_TASKS_DEMO_DIR": str(folder),
    }
    os.environ.update(environment)
    manage(environment, "migrate", "-v", "0")
    token = dict(line.split() for line in manage(environment, "demo", "--show-tokens").splitlines())["alice"]
    took = timed(lambda: fill(number))
    print(f"{number} expired tasks with {EVENTS} events and a question each, written in {took:.0f} s")
    with serving(environment, folder) as server:
        quiet = Clients(server.url, token)
        with quiet.at_work():
            time.sleep(5)
        busy = Clients(server.url, token)
        with busy.at_work():
            took, reports = purge(environment)
    last = expire_tasks(environment)
    print(f"purged in {took:.1f} s, {number / took:.0f} tasks a second, by two janitors, one of which was stopped:")
    for report in reports:
        print(f"  {report}")
    print(f"  and after them: {last}")
    quiet.report("quiet")
    busy.report("beside the janitors")
    purged = sum(report["purged"] for report in reports) + last["purged"]
    wrong = busy.faults + quiet.faults
    for fault in wrong[:10]:
        print(f"FAULT {fault}")
    found_again = last["purged"] + last["expired"]
    print(f"left over: {found_again}; counted: {purged} purged of {number}")
    return 1 if wrong or found_again or purged < number or any(report["errors"] for report in reports) else 0


def timed(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def fill(number: int) -> None:
    """Tombstones whose time is over, as a site has them that nobody has swept for long."""
    import django

    django.setup()
    from django.db import connection

    from mcp_tasks.models import Task, TaskEvent, TaskInput

    long_ago = datetime.now(UTC) - timedelta(days=3)
    for start in range(0, number, BATCH):
        tasks = [_expired(long_ago) for _ in range(start, min(start + BATCH, number))]
        Task.objects.bulk_create(tasks)
        TaskEvent.objects.bulk_create(
            TaskEvent(task=task, revision=1, kind=kind, actor="worker", at=long_ago)
            for task in tasks
            for kind in ("created", "claimed", "asked", "completed")[:EVENTS]
        )
        TaskInput.objects.bulk_create(
            TaskInput(
                task=task,
                key="ok",
                key_hash="0" * 64,
                request_hash="0" * 64,
                state="withdrawn",
                asked_leg=1,
                asked_at=long_ago,
                request_json="{}",
            )
            for task in tasks
        )
    connection.close()


def _expired(at: datetime) -> Any:
    from mcp_tasks.models import Task

    return Task(
        ref=uuid4(),
        method="tools/call",
        tool="report",
        status="completed",
        phase="expired",
        created_at=at,
        updated_at=at,
        finished_at=at,
        phase_at=at,
        ttl_ms=1,
        expires_at=at,
        sweep_at=at,
        poll_interval_ms=1000,
    )


def purge(environment: dict[str, str]) -> tuple[float, list[dict[str, Any]]]:
    """Two janitors at once; one is told to stop once both are at work. Both say what they did."""
    from django.db import connection

    from mcp_tasks.models import Task

    before = Task.objects.filter(phase="expired").count()
    began = time.monotonic()
    first, second = start_janitor(environment), start_janitor(environment)
    while first.poll() is None and Task.objects.filter(phase="expired").count() > before * 0.8:
        time.sleep(0.2)
    connection.close()
    second.send_signal(signal.SIGTERM)
    reports = [finished(second), finished(first)]
    return time.monotonic() - began, reports


def start_janitor(environment: dict[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "manage.py", "expire_tasks", "--format", "json", "--max-seconds", "3600"]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)


def finished(janitor: "subprocess.Popen[str]") -> dict[str, Any]:
    out, _ = janitor.communicate(timeout=3600)
    report: dict[str, Any] = json.loads(out)
    return report


def expire_tasks(environment: dict[str, str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(manage(environment, "expire_tasks", "--format", "json"))
    return report


class Clients:
    """A few clients that poll, create and answer, and note how long each answer took."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._stop = threading.Event()
        self.seconds: dict[str, list[float]] = {"poll": [], "create": [], "answer": []}
        self.faults: list[str] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=work) for work in (self._poll, self._poll, self._create, self._answer)]
        for thread in threads:
            thread.start()
        yield
        self._stop.set()
        for thread in threads:
            thread.join()

    def _client(self) -> Any:
        from mcp_tasks.testing.client import McpClient

        return McpClient.http(self._url, token=self._token)

    def _timed(self, kind: str, call: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return call()
        except Exception as error:  # whatever a client notices is what this program is about
            self.faults.append(f"{kind}: {type(error).__name__}: {error}")
        finally:
            self.seconds[kind].append(time.monotonic() - began)

    def _poll(self) -> None:
        client = self._client()
        task_id = client.call_tool("slow_echo", {"text": "x", "seconds": 0.1})["taskId"]
        while not self._stop.is_set():
            self._timed("poll", lambda: client.get_task(task_id))
            time.sleep(0.005)

    def _create(self) -> None:
        client = self._client()
        while not self._stop.is_set():
            self._timed("create", lambda: client.call_tool("slow_echo", {"text": "x", "seconds": 0}))
            time.sleep(0.02)

    def _answer(self) -> None:
        client = self._client()
        answer = {"approval": {"action": "accept", "content": {"approve": True}}}
        while not self._stop.is_set():
            task_id = client.call_tool("needs_approval", {"service": "web"})["taskId"]
            client.wait_for(task_id, ("input_required",))
            self._timed("answer", lambda task_id=task_id: client.update_task(task_id, answer))

    def report(self, when: str) -> None:
        for kind, seconds in self.seconds.items():
            if len(seconds) > 1:
                ms = sorted(1000 * second for second in seconds)
                p99 = ms[int(len(ms) * 0.99)]
                middle, longest = statistics.median(ms), ms[-1]
                print(
                    f"{when:>20} {kind:>7}: {len(ms):6} answers, p50 {middle:6.1f} ms, p99 {p99:7.1f} ms, "
                    f"longest {longest:7.1f} ms"
                )


if __name__ == "__main__":
    sys.exit(main())
