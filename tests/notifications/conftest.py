"""What the tests of the notifications share: hubs of their own, listeners that remember, stores that count."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from mcp_tasks.notifications.hub import Hub
from mcp_tasks.notifications.hub import hub as process_hub
from mcp_tasks.notifications.listeners import State
from mcp_tasks.store import ForwardingTaskStore, MemoryTaskStore, TaskSnapshot
from tests.support.push import LoopThread, soon


class Remembers:
    """A listener that keeps what it was told, and on which thread."""

    def __init__(self) -> None:
        self.told: list[tuple[UUID, State | None]] = []
        self.lists: list[str] = []
        self.threads: set[int] = set()

    def changed(self, ref: UUID, state: State | None) -> None:
        self.threads.add(threading.get_ident())
        self.told.append((ref, state))

    def list_changed(self, kind: str) -> None:
        self.threads.add(threading.get_ident())
        self.lists.append(kind)

    @property
    def revisions(self) -> list[int | None]:
        return [None if state is None else state.revision for _, state in self.told]

    @property
    def statuses(self) -> list[str | None]:
        return [None if state is None else state.snapshot.task.status for _, state in self.told]


class Counting(ForwardingTaskStore):
    """Remembers what was read through it, may be slow, and fails as long as a test wants."""

    def __init__(self) -> None:
        super().__init__(MemoryTaskStore())
        self.reads: list[set[UUID]] = []
        self.looks: list[set[UUID]] = []
        self.failures = 0
        self.gate = threading.Event()
        self.gate.set()

    def snapshots(self, refs: Collection[UUID]) -> dict[UUID, TaskSnapshot]:
        self.reads.append(set(refs))
        self._stumble()
        found = super().snapshots(refs)
        assert self.gate.wait(10)
        return found

    def revisions(self, refs: Collection[UUID]) -> dict[UUID, int]:
        self.looks.append(set(refs))
        self._stumble()
        return super().revisions(refs)

    def _stumble(self) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise ConnectionError("the database is away")

    def new(self) -> UUID:
        """A queued task."""
        return self.create_task("report", {}).ref


def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found by itself: a test sees what messages alone bring."""
    monkeypatch.setattr("mcp_tasks.notifications.reconcile.POLL_SECONDS", 3600.0)
    monkeypatch.setattr("mcp_tasks.notifications.reconcile.RECONCILE_SECONDS", 3600.0)


@pytest.fixture
def unlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    never_looks(monkeypatch)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub of this test alone."""
    made = Hub()
    yield made
    made.close()


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.end()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub of the process, without anything that an earlier test left, and with nothing afterwards."""
    process_hub.close()
    yield process_hub
    process_hub.close()


def threads_named(prefix: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


@pytest.fixture
def on_a_thread() -> Iterator[Callable[[Callable[[], Any]], threading.Thread]]:
    """Run something on a thread that leaves no connection behind; joined at the end."""
    started: list[threading.Thread] = []

    def start(work: Callable[[], Any]) -> threading.Thread:
        def job() -> None:
            try:
                work()
            finally:
                connections.close_all()

        started.append(threading.Thread(target=job, daemon=True))
        started[-1].start()
        return started[-1]

    yield start
    for thread in started:
        thread.join(10)


__all__ = ["Counting", "Remembers", "never_looks", "soon", "threads_named", "time"]
