"""A site for each runner: a server in front that runs no tasks, and worker processes behind it that may be killed."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from mcp_tasks.store.types import ref_of
from mcp_tasks.testing.client import McpClient
from tests.faults.databases import Database, database, recommended
from tests.support.brokers import Door, rabbitmq
from tests.support.push_needs import PUBSUB, Redis, layer, redis
from tests.support.servers import ROOT, Server, free_port, manage, start
from tests.support.template import spawn

LEASE, BEAT, SWEEP = 3, 1, 1
SLOTS = 2
#: A lost leg is found by its lease and a sweep, which spreads; then somebody has to begin.
RECOVERY = LEASE + SWEEP * 1.25
#: How long a handler may go on after a cancel, and a web process waits for its legs at its end: 10 and 8 by default.
GRACE, DRAIN = 3, 2
EMBEDDED, WORKER, DJANGO_TASKS = "embedded", "worker", "django-tasks"
CELERY_REDIS, CELERY_RABBITMQ = "celery-redis", "celery-rabbitmq"
KINDS = (EMBEDDED, WORKER, DJANGO_TASKS, CELERY_REDIS, CELERY_RABBITMQ)

_RUNNERS: dict[str, dict[str, Any]] = {
    EMBEDDED: {"BACKEND": "mcp_tasks.runners.external.ExternalRunner"},  # of the server in front
    WORKER: {"BACKEND": "mcp_tasks.runners.external.ExternalRunner"},
    DJANGO_TASKS: {"BACKEND": "mcp_tasks.runners.django_tasks.DjangoTasksRunner"},
    CELERY_REDIS: {
        "BACKEND": "mcp_tasks.runners.celery.CeleryRunner",
        "OPTIONS": {"APP": "tests.faults.celery_app.app"},
    },
}
_RUNNERS[CELERY_RABBITMQ] = _RUNNERS[CELERY_REDIS]
_START_SECONDS = 40.0


def until(true: Callable[[], bool], timeout_seconds: float = 20.0, seen: Callable[[], Any] = lambda: "") -> float:
    """Wait until it is so; returns how long that took. A failure shows what is ``seen`` instead."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < timeout_seconds, f"it did not become true in time {seen()}"
        time.sleep(0.05)
    return time.monotonic() - began


@dataclass(slots=True, eq=False)
class Worker:
    """One process, with those that it starts, that runs tasks."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def signal_all(self, number: int) -> None:
        """To it and all that it has started."""
        if self.is_alive:
            os.killpg(self.process.pid, number)

    def tell(self, number: int) -> None:
        """To it alone."""
        if self.is_alive:
            self.process.send_signal(number)

    def kill(self) -> None:
        self.signal_all(signal.SIGKILL)
        self.process.wait()

    def ended(self, timeout_seconds: float) -> int:
        """Its exit status, once it has ended by itself."""
        try:
            return self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end: {self.log.read_text()[-2000:]}") from None

    def has(self, pid: int) -> bool:
        """Whether this process is one of its own, and lives."""
        try:
            is_own = os.getpgid(pid) == self.process.pid
        except ProcessLookupError:
            return False
        return is_own and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


@dataclass(slots=True, eq=False)
class Site:
    """A database, a server in front, the broker if there is one, and the workers of one kind."""

    kind: str
    made: Database
    folder: Path
    environment: dict[str, str]
    broker: "Redis | Door | None" = None
    token: str = ""
    workers: list[Worker] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)

    @property
    def client(self) -> McpClient:
        return McpClient.http(self.servers[0].url, token=self.token)

    @property
    def ringers(self) -> list[McpClient]:
        """Clients of the processes whose bell workers hear: in front, but the embedded ones hear their own only."""
        if self.kind != EMBEDDED:
            return [self.client]
        found = [re.search(r"running on (http://\S+)", worker.log.read_text()) for worker in self.workers]
        return [McpClient.http(f"{address[1]}/mcp", token=self.token) for address in found if address is not None]

    def serve(self) -> None:
        """The server in front, or a new one in its place."""
        self.end_servers()
        self.servers = [start(self.environment, self.folder)]

    def end_servers(self) -> None:
        """Killed, so that what it has not sent by now is lost."""
        for server in self.servers:
            server.end(signal.SIGKILL)

    # -- workers --------------------------------------------------------------------------------------------------

    def start(self, *options: str, slots: int = SLOTS) -> Worker:
        """One more worker, ready to work."""
        number = len(list(self.folder.glob("worker-*")))
        command, mark, environment = self._command(number, options, slots)
        log = self.folder / f"worker-{number}.log"
        with log.open("wb") as output:
            process = spawn(command, {**self.environment, **environment}, stdout=output, new_session=True)
        worker = Worker(process, log)
        self.workers.append(worker)
        deadline = time.monotonic() + _START_SECONDS
        while mark not in log.read_text():
            assert worker.is_alive, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)
        return worker

    def _command(self, number: int, options: tuple[str, ...], slots: int) -> tuple[list[str], str, dict[str, str]]:
        """How a worker is started, what it writes once it works, and its own environment."""
        match self.kind:
            case "embedded":
                runner = {"BACKEND": "mcp_tasks.runners.embedded.EmbeddedRunner", "OPTIONS": {"SLOTS": slots}}
                told = {**json.loads(self.environment["FAULTS_MCP_TASKS"]), "RUNNER": runner}
                serve = ["-m", "uvicorn", "project.asgi:application", "--port", str(free_port())]
                return [*serve, *options], "Uvicorn running", {"FAULTS_MCP_TASKS": json.dumps(told)}
            case "worker":
                return ["manage.py", "run_task_worker", "--slots", str(slots), *options], "runs up to", {}
            case "django-tasks":
                quick = ["--no-startup-delay", "--interval", "0.2"]
                return ["manage.py", "db_worker", *quick, *options], "Starting worker", {}
            case _:
                quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"]
                name = ["-n", f"w{number}@%h", "--concurrency", str(slots)]
                return (
                    ["-m", "celery", "-A", "tests.faults.celery_app", "worker", *quiet, *name, *options],
                    "ready.",
                    {},
                )

    def alive(self, number: int = 2) -> list[Worker]:
        """So many workers, started where they are missing."""
        self.workers = [worker for worker in self.workers if worker.is_alive]
        for worker in self.workers[number:]:
            worker.kill()
        del self.workers[number:]
        while len(self.workers) < number:
            self.start()
        return self.workers

    @contextmanager
    def supervised(self, number: int = 2) -> Iterator[None]:
        """What systemd or a container's host does: a worker that has ended is started again, whenever that is."""
        over = threading.Event()

        def supervise() -> None:
            while not over.wait(0.5):
                with suppress(AssertionError):  # it ended at once, and is started once more
                    self.alive(number)

        supervisor = threading.Thread(target=supervise, daemon=True)
        supervisor.start()
        try:
            yield
        finally:
            over.set()
            supervisor.join(_START_SECONDS)

    @contextmanager
    def broker_away(self) -> Iterator[None]:
        """Nobody reaches the broker for the length of a block."""
        assert self.broker is not None
        self.broker.stop()
        try:
            yield
        finally:
            self.broker.start()

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers.clear()

    def holder(self, task_id: str) -> tuple[Worker, int]:
        """Who runs a task: the worker, and the very process."""
        until(lambda: self.row(task_id)["lease_holder"] is not None)
        pid = int(self.row(task_id)["lease_holder"].rsplit(":", 1)[1])
        return next(worker for worker in self.workers if worker.has(pid)), pid

    # -- the database ---------------------------------------------------------------------------------------------

    def row(self, task_id: str) -> dict[str, Any]:
        """The state of a task, straight from its table."""
        columns = ("phase", "status", "leg", "attempts", "lease_holder")
        found = self.made.query(f"SELECT {', '.join(columns)} FROM mcp_tasks_task WHERE {_is('ref', task_id)}")
        return dict(zip(columns, found[0], strict=True))

    def make_due(self, task_id: str) -> None:
        """The timer of a task has run out long ago."""
        self.made.execute(f"UPDATE mcp_tasks_task SET due_at = '2020-01-01 00:00:00' WHERE {_is('ref', task_id)}")

    def events(self, task_id: str) -> list[str]:
        """The timeline of a task."""
        return [kind for kind, _ in self._timeline(task_id)]

    def history(self, task_id: str) -> str:
        """Row and timeline of a task, and what its workers wrote last: what a failed test shows."""
        logs = "".join(f"\n{worker.log.name}: {worker.log.read_text()[-1500:]}" for worker in self.workers)
        return f"{self.row(task_id)} {self._timeline(task_id)}{logs}"

    def happened_at(self, task_id: str, kind: str) -> float:
        """When that happened to a task last, by the clock of the database, which is this machine's."""
        at = [at for found, at in self._timeline(task_id) if found == kind][-1]
        when: datetime = at if isinstance(at, datetime) else datetime.fromisoformat(at).replace(tzinfo=UTC)
        return when.timestamp()

    def _timeline(self, task_id: str) -> list[tuple[Any, ...]]:
        where = _is("task_id", task_id)
        return self.made.query(f"SELECT kind, at FROM mcp_tasks_taskevent WHERE {where} ORDER BY id")

    def outcomes(self, task_id: str) -> list[str]:
        return [kind for kind in self.events(task_id) if kind in ("completed", "failed", "cancelled", "expired")]

    # -- the client -----------------------------------------------------------------------------------------------

    def call(self, tool: str, **arguments: Any) -> str:
        """A new task's id."""
        task_id: str = self.client.call_tool(tool, arguments)["taskId"]
        return task_id

    def running(self, tool: str, **arguments: Any) -> str:
        """The same, once it runs."""
        task_id = self.call(tool, **arguments)
        until(lambda: self.row(task_id)["phase"] == "running")
        return task_id

    def at_work(self, tool: str, **arguments: Any) -> str:
        """The same, once its handler has said so: one that never began could not ignore anything."""
        task_id = self.running(tool, **arguments)
        until(lambda: self.client.get_task(task_id).get("statusMessage") == "at work")
        return task_id

    def end_of(self, task_id: str, timeout_seconds: float = 30.0) -> dict[str, Any]:
        return self.client.wait_for(task_id, timeout_seconds=timeout_seconds)


def text_of(task: dict[str, Any]) -> str:
    """What a completed task says."""
    assert task["status"] == "completed", task
    text: str = task["result"]["content"][0]["text"]
    return text


def _is(column: str, task_id: str) -> str:
    """SQLite keeps a UUID as text without hyphens, PostgreSQL as a UUID."""
    return f"REPLACE(CAST({column} AS TEXT), '-', '') = '{ref_of(task_id).hex}'"


def ref_in(task_id: str) -> UUID:
    return ref_of(task_id)


@contextmanager
def site(
    kind: str, folder: Path, made: Database | None = None, *, has_layer: bool = True, **settings: Any
) -> Iterator[Site]:
    """A site of this kind, on a database of its own or on this one; without workers so far."""
    with ExitStack() as stack:
        if made is None:
            # Of its folder, since there may be two sites of one kind, and a new database replaces that of its name.
            name = re.sub(r"\W", "_", f"runner_{folder.name}_{os.getpid()}")
            made = stack.enter_context(database(recommended(), name, folder))
        told = {
            "LEASE_SECONDS": LEASE,
            "HEARTBEAT_SECONDS": BEAT,
            "SWEEP_SECONDS": SWEEP,
            "RUNNER": _RUNNERS[kind],
            **settings,
        }
        environment = {
            **made.environment,
            "FAULTS_MCP_TASKS": json.dumps(told),
            "PYTHONPATH": str(ROOT),
            "FAULTS_GRACE_SECONDS": str(GRACE),
            "FAULTS_DRAIN_SECONDS": str(DRAIN),
        }
        here = Site(kind, made, folder, environment)
        if has_layer:
            server = here.broker = stack.enter_context(redis(folder / "redis"))
            environment["FAULTS_LAYERS"] = json.dumps({"default": layer(PUBSUB, server)})
            environment["FAULTS_BROKER"] = f"redis://127.0.0.1:{server.port}/0"
        if kind == DJANGO_TASKS:
            environment["FAULTS_DJANGO_TASKS"] = "yes"
        if kind == CELERY_RABBITMQ:
            door = here.broker = Door(stack.enter_context(rabbitmq(folder / "rabbitmq")))
            stack.callback(door.stop)
            environment["FAULTS_BROKER"] = f"amqp://guest:guest@127.0.0.1:{door.port}//"
            environment["FAULTS_QUEUE"] = f"mcp_tasks_tests_{os.getpid()}_{door.port}"
            stack.callback(_delete_queue, environment)
        here.token = manage(environment, "demo", "--show-tokens").split()[1]
        stack.callback(here.end_servers)
        here.serve()
        stack.callback(here.stop_workers)
        yield here


def _delete_queue(environment: dict[str, str]) -> None:
    from kombu import Connection

    with Connection(environment["FAULTS_BROKER"], connect_timeout=5) as connection:
        connection.channel().queue_delete(environment["FAULTS_QUEUE"])
