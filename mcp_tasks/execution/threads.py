"""
Daemon threads that live as long as the process, each with its own database connections.

No executor of the standard library: its threads keep an old process alive on every deploy, and refuse work
while a handler still runs at interpreter exit.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from django.db import close_old_connections, connections

logger = logging.getLogger("mcp_tasks.runner")

Job = Callable[[], None]

_IDLE_CHECK_SECONDS = 5.0


class Busy(Exception):
    """Every thread works and the backlog is full: the caller answers "try again later"."""


class DaemonPool:
    """
    Up to ``size`` daemon threads, started on demand, again after a fork; at most ``backlog`` jobs wait.

    ``persistent`` keeps database connections open between jobs, looked after when a thread was idle; otherwise
    Django's own rules (``CONN_MAX_AGE``) hold around each job.
    """

    def __init__(self, name: str, size: int, *, backlog: int, persistent: bool) -> None:
        self._name, self._size, self._backlog, self._persistent = name, size, backlog, persistent
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._jobs: deque[Job | None] = deque()  # None ends a thread
        self._ready = threading.Condition()
        self._threads = 0
        self._idle = 0

    def submit(self, job: Job) -> None:
        """Run a job on one of the threads; raises Busy."""
        if self._pid != os.getpid():
            self._reset()
        with self._ready:
            if self._idle <= len(self._jobs):
                if self._threads < self._size:
                    self._threads += 1
                    thread = threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True)
                    thread.start()
                elif len(self._jobs) >= self._backlog + self._idle:
                    raise Busy(f"{self._name}: {self._size} threads work and {len(self._jobs)} jobs wait")
            self._jobs.append(job)
            self._ready.notify()

    def end(self) -> None:
        """Let the threads finish what waits, close their connections and end. The next job starts new ones."""
        with self._ready:
            threads, self._threads = self._threads, 0
            self._jobs.extend([None] * threads)
            self._ready.notify_all()

    def _work(self) -> None:
        rested_at = time.monotonic()
        while True:
            with self._ready:
                self._idle += 1
                while not self._jobs:
                    self._ready.wait()
                self._idle -= 1
                job = self._jobs.popleft()
            self._look_after(time.monotonic() - rested_at)
            if job is None:
                connections.close_all()
                return
            try:
                job()
            except BaseException:
                logger.exception("a job of %s failed", self._name, extra={"event": "job_failed"})
            del job
            self._look_after(0.0)
            rested_at = time.monotonic()

    def _look_after(self, idle_seconds: float) -> None:
        if not self._persistent:
            close_old_connections()
            return
        for connection in connections.all(initialized_only=True):
            if connection.errors_occurred:
                connection.close_if_unusable_or_obsolete()
            elif (
                idle_seconds > _IDLE_CHECK_SECONDS and connection.connection is not None and not connection.is_usable()
            ):
                connection.close()


def process_is_ending() -> bool:
    """Whether the main thread is gone: from then on an exception says nothing about the work."""
    return not threading.main_thread().is_alive()
