"""
One thread per process that renews the lease of every leg, writes their progress and looks after overdue ones.

It has a connection of its own: written from inside a handler's transaction, either would hold the row locked
until that transaction ends. A leg that cannot be renewed is told to stop before another worker may take it.
"""

import logging
import os
import threading
import time

from django.db import InterfaceError, OperationalError, connections

from .. import conf
from ..notifications.hub import hub
from ..notifications.waiters import follow
from ..store.base import TaskStore
from ..store.legs import STOP_REASONS
from ..store.types import Outcome
from ..tools.cancellation import LEASE_LOST, raise_token
from . import overdue, running
from .running import Progress, RunningLeg
from .threads import process_is_ending

logger = logging.getLogger("mcp_tasks.runner")

PROGRESS_SECONDS = 0.5
FOLLOW_SECONDS = 0.25
#: The share of a lease after which a leg that could not be renewed fences itself.
SELF_FENCE = 0.9
_RETRY_SECONDS = 1.0
_IDLE_SECONDS = 60.0


class Heartbeat:
    """Started with the first leg of the process, again after a fork."""

    def __init__(self) -> None:
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._starting, self._wake = threading.Lock(), threading.Condition()
        self._has_thread = False

    def watch(self, store: TaskStore, leg: RunningLeg) -> None:
        """Renew this leg from now on, until ``forget``."""
        now = time.monotonic()
        leg.store = store
        began = now if leg.claimed_at is None else leg.claimed_at
        leg.beat_at = began + conf.get_settings().HEARTBEAT_SECONDS
        if hub.crosses_processes:  # else nothing but a renewal tells of other processes
            leg.follow_at = now + FOLLOW_SECONDS
        if leg.timeout_seconds is not None:
            leg.timeout_at = now + leg.timeout_seconds
        _fence(leg, began)
        running.add(leg)
        self._ensure_started()
        with self._wake:
            self._wake.notify()

    def _ensure_started(self) -> None:
        with self._starting:
            if not self._has_thread:
                threading.Thread(target=self._beat, name="mcp-tasks-heartbeat", daemon=True).start()
                self._has_thread = True  # only now: where none could be started the next leg tries again

    def forget(self, leg: RunningLeg) -> None:
        """The handler has ended."""
        running.remove(leg)
        with self._wake:
            leg.follow_at = float("inf")
            unfollow, leg.unfollow = leg.unfollow, None
            self._wake.notify()
        if unfollow is not None:
            unfollow()

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
            due += [leg.beat_at, leg.follow_at, overdue.next_look(leg)]
            if leg.progress is not None:
                due.append(leg.progress_at + PROGRESS_SECONDS)
        return max(0.0, min(due) - now)

    def _serve(self, leg: RunningLeg) -> None:
        now = time.monotonic()
        try:
            assert leg.store is not None
            if now >= leg.follow_at:
                self._follow(leg.store, leg)
            if now >= leg.beat_at:
                self._renew(leg.store, leg, now)
            if leg.progress is not None and now >= leg.progress_at + PROGRESS_SECONDS:
                self._write(leg.store, leg, now)
            if overdue.look(leg.store, leg, now):
                self.forget(leg)
        except Exception:
            if not process_is_ending():
                logger.exception(
                    "a lease could not be renewed", extra={"event": "heartbeat_failed", "ref": str(leg.ref)}
                )
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
            leg.beat_at = min(leg.beat_at, now) + _RETRY_SECONDS
            leg.progress_at = now

    def _follow(self, store: TaskStore, leg: RunningLeg) -> None:
        """Hear at once when another process cancels; a leg that is over sooner is not worth the membership."""
        with self._wake:
            if leg.follow_at != float("inf"):
                leg.follow_at = float("inf")
                leg.unfollow = follow(store, leg.ref, leg.token)

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
if hasattr(os, "register_at_fork"):
    # The thread stays behind.
    os.register_at_fork(after_in_child=heartbeat._start_afresh)
