"""
What an engine runs: a job that takes tasks from the table, a message being no more than a bell.

So a message that comes twice, late, or for a task that is over does no harm, and the table decides what goes first.
"""

import atexit
import logging
import os
import signal
import threading
from types import FrameType
from typing import Any
from uuid import UUID

from ..execution import running
from ..execution.leg import run_leg
from ..execution.presence import Presence
from ..execution.queue import Queue
from ..execution.threads import DaemonPool
from ..execution.worker import REST_SECONDS
from ..store import get_store
from ..store.processes import WORKER
from ..store.types import Claim
from ..tools.cancellation import SHUTDOWN
from .base import get_runner

logger = logging.getLogger("mcp_tasks.runner")

#: After so many legs a job asks for another one in its place, so that the engine's other jobs get their turn.
LEGS_PER_JOB = 10
#: How long a leg may take to stop when the engine ends its job.
STOP_SECONDS = 5.0
#: How long a process that is told to end waits for legs that do not stop; what then still runs is found by its lease.
DRAIN_SECONDS = 8.0
_LEAVE_SECONDS = 1.0


class _Process:
    """What is kept of this process, begun with its first job and again after a fork."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        self.lock, self.taking = threading.Lock(), threading.Lock()
        self.queue = Queue()
        self.presence: Presence | None = None
        self.jobs = self.most = 0
        self.is_stopping = False
        self.turns: set[_Turn] = set()

    def enter(self) -> None:
        with self.lock:
            self.jobs += 1
            self.most = max(self.most, self.jobs)
            if self.presence is None:
                self.presence = Presence(WORKER, lambda: self.most)
                self.presence.begin()
        _hear_signals()

    def leave(self) -> None:
        with self.lock:
            self.jobs -= 1

    def give_up(self) -> None:
        """Let no job wait any longer."""
        for turn in list(self.turns):
            turn.give_up()

    def end(self) -> None:
        if self.presence is not None:
            self.presence.leave(_LEAVE_SECONDS)


_process = _Process()
# Legs have threads of their own: the engine's may be in a transaction, and a handler that does not stop keeps none.
_pool = DaemonPool("mcp-tasks-job", 1000, backlog=0, persistent=True, rest_seconds=REST_SECONDS)
atexit.register(_process.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.start_afresh)


def run_job(ref: UUID) -> None:
    """
    Run the tasks that are to run first, one after the other, until none is left or it is another job's turn.

    ``ref`` is the task whose message it was, which need not be the one that runs. What ends the job from outside, as
    an engine's time limit, stops its leg, and is raised again.
    """
    _process.enter()
    try:
        for _ in range(LEGS_PER_JOB):
            if _process.is_stopping:
                break
            if not _Turn().take():
                return
        get_runner().enqueue(ref)
    finally:
        _process.leave()


class _Turn:
    """At most one leg."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._claim: Claim | None = None
        self._problem: BaseException | None = None

    def take(self) -> bool:
        """Claim and run; whether there was anything to claim. Raises what kept it from claiming."""
        _process.turns.add(self)
        try:
            _pool.submit(self._work)
            self._over.wait()
        except BaseException:
            self._stop()
            get_runner().flush()  # the message of what was given back: this process may not live much longer
            raise
        finally:
            _process.turns.discard(self)
        if self._problem is not None:
            raise self._problem
        return self._claim is not None

    def _work(self) -> None:
        try:
            store = get_store()
            with _process.taking:
                self._claim = _process.queue.take()
            if self._claim is not None:
                run_leg(store, self._claim, abandon=self._over.set)
        except BaseException as problem:
            self._problem = problem
        finally:
            self._over.set()

    def give_up(self) -> None:
        """Wait no longer: the leg may still write its outcome, as long as this process lives."""
        self._over.set()

    def _stop(self) -> None:
        """The engine ends this job: what its leg may give back, it gives back."""
        claim = self._claim
        for leg in running.all_legs():
            if claim is not None and (leg.ref, leg.leg) == (claim.ref, claim.leg):
                leg.token.raise_(SHUTDOWN)
        self._over.wait(STOP_SECONDS)


def stop() -> None:
    """The process is told to end: its legs are told too, no further one begins, and none is waited for without end."""
    running.stop_all(SHUTDOWN)
    if not _process.is_stopping:
        _process.is_stopping = True
        patience = threading.Timer(DRAIN_SECONDS, _process.give_up)
        patience.daemon = True
        patience.start()


def _hear_signals() -> None:
    """Where an engine runs its jobs on the main thread and hears SIGTERM there, its legs hear of it before it does."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        engines: Any = signal.getsignal(number)
        if callable(engines) and engines is not signal.default_int_handler and not isinstance(engines, _Heard):
            signal.signal(number, _Heard(engines))


class _Heard:
    def __init__(self, engines: Any) -> None:
        self._engines = engines

    def __call__(self, number: int, frame: FrameType | None) -> None:
        stop()
        self._engines(number, frame)
