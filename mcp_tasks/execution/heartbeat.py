"""
One thread per process that renews the lease of every leg and writes their progress.

It has a connection of its own: written from inside a handler's transaction, either would hold the row locked
until that transaction ends. A leg that cannot be renewed is told to stop before another worker may take it.
"""

import logging
import os
import threading
import time

from django.db import InterfaceError, OperationalError, connections

from .. import conf
from ..store.base import TaskStore
from ..store.legs import STOP_REASONS
from ..store.types import Outcome
from ..tools.cancellation import LEASE_LOST, raise_token
from . import running
from .running import Progress, RunningLeg
from .threads import process_is_ending

logger = logging.getLogger("mcp_tasks.runner")

PROGRESS_SECONDS = 0.5
#: The share of a lease after which a leg that could not be renewed fences itself.
SELF_FENCE = 0.9
_RETRY_SECONDS = 1.0
_IDLE_SECONDS = 60.0


class Heartbeat:
    """Started with the first leg of the process, again after a fork."""

    def __init__(self) -> None:
        self._pid = 0
        self._wake = threading.Condition()

    def watch(self, store: TaskStore, leg: RunningLeg) -> None:
        """Renew this leg from now on, until ``forget``."""
        now = time.monotonic()
        leg.store = store
        leg.beat_at = now + conf.get_settings().HEARTBEAT_SECONDS
        _fence(leg, now)
        running.add(leg)
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._wake = threading.Condition()
            threading.Thread(target=self._beat, name="mcp-tasks-heartbeat", daemon=True).start()
        with self._wake:
            self._wake.notify()

    def forget(self, leg: RunningLeg) -> None:
        """The handler has ended."""
        running.remove(leg)
        with self._wake:
            self._wake.notify()

    def report(self, leg: RunningLeg, message: str | None, done: float | None, total: float | None) -> None:
        """Write this progress soon; only the newest counts. Returns at once."""
        with self._wake:
            leg.progress = Progress(message, done, total)
            self._wake.notify()

    def flush(self, store: TaskStore, leg: RunningLeg) -> None:
        """Write what was reported last, on this thread: the handler asked, and its client will look now."""
        try:
            if leg.progress is not None:
                self._write(store, leg, time.monotonic())
        except Exception:  # the question matters more, and is asked in any case
            logger.exception("progress could not be written", extra={"event": "heartbeat_failed", "ref": str(leg.ref)})

    def _beat(self) -> None:
        wake = self._wake
        while True:
            legs = running.all_legs()
            for leg in legs:
                self._serve(leg)
            if not legs:
                connections.close_all()  # nothing to renew: hold no connection while nothing runs
            with wake:
                wake.wait(self._pause())

    def _pause(self) -> float:
        now = time.monotonic()
        due = [now + _IDLE_SECONDS]
        for leg in running.all_legs():
            due.append(leg.beat_at)
            if leg.progress is not None:
                due.append(leg.progress_at + PROGRESS_SECONDS)
        return max(0.0, min(due) - now)

    def _serve(self, leg: RunningLeg) -> None:
        now = time.monotonic()
        try:
            assert leg.store is not None
            if now >= leg.beat_at:
                self._renew(leg.store, leg, now)
            if leg.progress is not None and now >= leg.progress_at + PROGRESS_SECONDS:
                self._write(leg.store, leg, now)
        except Exception:
            if not process_is_ending():
                logger.exception(
                    "a lease could not be renewed", extra={"event": "heartbeat_failed", "ref": str(leg.ref)}
                )
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
            leg.beat_at = min(leg.beat_at, now) + _RETRY_SECONDS
            leg.progress_at = now

    def _renew(self, store: TaskStore, leg: RunningLeg, now: float) -> None:
        outcome = store.heartbeat(leg.ref, leg.leg)
        leg.beat_at = now + conf.get_settings().HEARTBEAT_SECONDS
        if outcome:
            _fence(leg, now)
        else:
            _stop(leg, outcome)

    def _write(self, store: TaskStore, leg: RunningLeg, now: float) -> None:
        with self._wake:
            progress, leg.progress = leg.progress, None
        if progress is None:
            return  # written by the other thread
        leg.progress_at = now
        try:
            outcome = store.set_status(leg.ref, progress.message, done=progress.done, total=progress.total, leg=leg.leg)
        except (OperationalError, InterfaceError):
            with self._wake:
                leg.progress = leg.progress or progress  # the database is away for a moment; a newer report counts
            raise
        if not outcome and outcome.why != "unchanged":
            _stop(leg, outcome)


def _fence(leg: RunningLeg, renewed_at: float) -> None:
    """Let the leg stop by itself before its lease can lapse; counted from before the renewal was sent."""
    leg.token.fence(renewed_at + SELF_FENCE * conf.get_settings().LEASE_SECONDS)


def _stop(leg: RunningLeg, outcome: Outcome) -> None:
    """Tell the leg why it lost its task; what ended the task concerns every holder of its token."""
    reason = STOP_REASONS.get(outcome.why, LEASE_LOST)
    if reason != LEASE_LOST:
        raise_token(leg.ref, reason)
    leg.token.raise_(reason)


heartbeat = Heartbeat()
