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
from functools import partial

from django.db import close_old_connections, connections

from ..connections import look_after_connections

logger = logging.getLogger("mcp_tasks.runner")

Job = Callable[[], None]


class Busy(Exception):
    """Every thread works and the backlog is full: the caller answers "try again later"."""


class _Crew:
    """The threads of a pool in one process, and what waits for them; None among the jobs ends a thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.jobs: deque[Job | None] = deque()
        self.ready = threading.Condition()
        self.threads: list[threading.Thread] = []
        self.idle = 0  # of the threads, also those that were just started
        self.ended = False


class DaemonPool:
    """
    Up to ``size`` daemon threads, started on demand, again after a fork; at most ``backlog`` jobs wait.

    ``persistent`` keeps database connections open between jobs, looked after when a thread was idle; otherwise
    Django's own rules (``CONN_MAX_AGE``) hold around each job. With ``rest_seconds`` these hold as well for a thread
    that has had no job for so long.
    """

    def __init__(
        self, name: str, size: int, *, backlog: int, persistent: bool, rest_seconds: float | None = None
    ) -> None:
        self._name, self._size, self._backlog, self._persistent = name, size, backlog, persistent
        self._rest_seconds = rest_seconds
        self._crew = _Crew()

    def submit(self, job: Job) -> None:
        """Run a job on one of the threads; raises Busy."""
        if self._crew.pid != os.getpid():
            self._crew = _Crew()
        while not self._accepts(self._crew, job):
            pass  # it was ended meanwhile, and has a successor

    def _accepts(self, crew: _Crew, job: Job) -> bool:
        with crew.ready:
            if crew.ended:
                return False
            if crew.idle <= len(crew.jobs):
                if len(crew.threads) < self._size:
                    name = f"{self._name}-{len(crew.threads) + 1}"
                    thread = threading.Thread(target=self._work, args=(crew,), name=name, daemon=True)
                    thread.start()
                    crew.threads.append(thread)
                    crew.idle += 1
                elif len(crew.jobs) >= self._backlog + crew.idle:
                    raise Busy(f"{self._name}: {self._size} threads work and {len(crew.jobs)} jobs wait")
            crew.jobs.append(job)
            crew.ready.notify()
            return True

    def replace(self, lost: int) -> None:
        """Let so many more threads start, in the place of those whose job does not end; negative: take that back."""
        with self._crew.ready:
            self._size += lost

    def end(self, wait_seconds: float = 0.0) -> None:
        """
        Let the threads finish what waits, close their connections and end; wait for them so long.

        The next job starts new ones.
        """
        crew, self._crew = self._crew, _Crew()
        if crew.pid != os.getpid():
            return  # its threads are those of the process that forked this one
        with crew.ready:
            crew.ended = True
            crew.jobs.extend([None] * len(crew.threads))
            crew.ready.notify_all()
        deadline = time.monotonic() + wait_seconds
        for thread in crew.threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self, crew: "_Crew") -> None:
        rested_at = time.monotonic()
        while True:
            job = self._next(crew)
            if job is None:
                connections.close_all()
                return
            self._guarded(partial(self._look_after, time.monotonic() - rested_at))
            try:
                job()
            except BaseException:
                logger.exception("a job of %s failed", self._name, extra={"event": "job_failed"})
            del job
            self._guarded(partial(self._look_after, 0.0))
            rested_at = time.monotonic()
            with crew.ready:
                crew.idle += 1

    def _next(self, crew: "_Crew") -> Job | None:
        patience = self._rest_seconds
        while True:
            with crew.ready:
                if crew.ready.wait_for(lambda: crew.jobs, patience):
                    crew.idle -= 1
                    return crew.jobs.popleft()
            patience = None
            self._guarded(close_old_connections)

    def _look_after(self, idle_seconds: float) -> None:
        if self._persistent:
            look_after_connections(idle_seconds)
        else:
            close_old_connections()

    def _guarded(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Exception:
            # A thread that ended here would be missing for ever.
            logger.exception("a connection of %s could not be closed", self._name, extra={"event": "job_failed"})


def process_is_ending() -> bool:
    """
    Whether the interpreter has begun to exit: from then on an exception says nothing about the work.

    The main thread counts as alive while the exit still waits for executors, which by then refuse all new work; the
    flag that is set before that has no public name.
    """
    return bool(getattr(threading, "_SHUTTING_DOWN", False)) or not threading.main_thread().is_alive()
