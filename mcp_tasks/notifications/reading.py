"""
The one thread that reads tasks for all who listen in this process.

What is marked is read at once, many tasks together. From time to time there is a look at everything watched, for what
no message told. A database connection is held only while something is watched.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from django.db import InterfaceError, OperationalError, connections

from .. import observing
from ..connections import look_after_connections
from ..store.base import TaskStore
from ..store.types import TaskSnapshot
from .listeners import Watched
from .reconcile import moved

logger = logging.getLogger("mcp_tasks.notifications")

READ_BATCH = 64
_FAULT_SECONDS = 1.0

#: Nothing can be read now; any other fault may be that of a single task.
_AWAY = (OperationalError, InterfaceError, OSError)


class Reader:
    """
    Its methods are called with the lock held, and never wait.

    ``show`` is called with the lock held for each task that was read, ``found`` without it for those that had moved
    unheard. ``period``: seconds from one look to the next.
    """

    def __init__(
        self,
        lock: threading.Condition,
        watched: Mapping[UUID, Watched],
        *,
        show: Callable[[UUID, TaskSnapshot | None], None],
        found: Callable[[list[UUID]], None],
        period: Callable[[], float],
    ) -> None:
        self._lock, self._watched = lock, watched
        self._show, self._found, self._period = show, found, period
        self._due: dict[UUID, float] = {}
        self._look_at = float("inf")
        self.thread: threading.Thread | None = None

    def mark(self, ref: UUID) -> None:
        """Read this task now."""
        self._due[ref] = 0.0
        self._lock.notify()

    def mark_later(self, ref: UUID, at: float) -> None:
        """Read it then, on the monotonic clock, if it is not to be read before."""
        self._due.setdefault(ref, at)

    def forget(self, ref: UUID) -> None:
        """It is not watched any more."""
        self._due.pop(ref, None)
        if not self._watched:
            self._lock.notify()  # nothing to look at: let go of the connection

    def look(self) -> None:
        """Look at everything now."""
        self._look_at = 0.0
        self._lock.notify()

    def ensure_running(self) -> None:
        """Start the thread, where there is none."""
        if self.thread is None or not self.thread.is_alive():
            self._look_at = time.monotonic() + self._period()
            self.thread = threading.Thread(target=self._work, name="mcp-tasks-hub", daemon=True)
            self.thread.start()

    def end(self) -> threading.Thread | None:
        """Let the thread end; it is returned, to be joined without the lock."""
        thread, self.thread = self.thread, None
        self._lock.notify()
        return thread

    # -- on the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        holds = False
        while (work := self._next(holds=holds)) is not None:
            batch, looks = work
            try:
                for store, refs in self._by_store(batch).items():
                    self._read(store, refs)
                if looks:
                    self._look()
                holds = bool(batch or looks)
                if holds:
                    look_after_connections()
                else:
                    connections.close_all()
            except Exception:
                logger.exception("watched tasks cannot be read", extra={"event": "hub_failed"})
        connections.close_all()

    def _next(self, *, holds: bool) -> tuple[list[UUID], bool] | None:
        """
        The tasks to be read now, and whether to look at all of them; neither, where a connection is held for nothing.

        None when the thread is over.
        """
        me = threading.current_thread()
        with self._lock:
            while self.thread is me:
                now = time.monotonic()
                batch = [ref for ref, at in self._due.items() if at <= now][:READ_BATCH]
                for ref in batch:
                    del self._due[ref]
                looks = bool(self._watched) and now >= self._look_at
                if batch or looks:
                    return batch, looks
                if self._watched:
                    self._lock.wait(min([self._look_at, *self._due.values()]) - now)
                elif holds:
                    return [], False
                else:
                    self._lock.wait()
                    self._look_at = time.monotonic() + self._jittered()
            return None

    def _jittered(self) -> float:
        return self._period() * random.uniform(0.75, 1.25)  # noqa: S311 - no secret

    def _by_store(self, refs: Iterable[UUID]) -> dict[TaskStore, list[UUID]]:
        stores: dict[TaskStore, list[UUID]] = {}
        with self._lock:
            for ref in refs:
                watched = self._watched.get(ref)
                if watched is not None:
                    stores.setdefault(watched.store, []).append(ref)
        return stores

    def _read(self, store: TaskStore, refs: list[UUID]) -> None:
        try:
            found = store.snapshots(refs)
        except Exception as fault:
            is_away = isinstance(fault, _AWAY)
            if is_away or len(refs) == 1:
                self._failed(refs, _FAULT_SECONDS if is_away else self._period())
            else:  # a task that cannot be read holds up no other
                middle = len(refs) // 2
                self._read(store, refs[:middle])
                self._read(store, refs[middle:])
            return
        with self._lock:
            for ref in refs:
                self._show(ref, found.get(ref))

    def _look(self) -> None:
        with self._lock:
            seen = {ref: watched.revision for ref, watched in self._watched.items()}
        lost: list[UUID] = []
        again_seconds = self._jittered()
        for store, refs in self._by_store(seen).items():
            try:
                lost += moved(store, {ref: seen[ref] for ref in refs})
            except Exception:
                self._failed([], 0.0)
                again_seconds = _FAULT_SECONDS
        observing.happened("notification", result="reconciled", number=len(lost))
        with self._lock:
            for ref in lost:
                if ref in self._watched:
                    self.mark(ref)
            self._look_at = time.monotonic() + again_seconds
        self._found(lost)

    def _failed(self, refs: list[UUID], again_seconds: float) -> None:
        """This thread is the only one: whatever fails, it goes on, and nothing that was to be read is forgotten."""
        logger.exception("watched tasks cannot be read", extra={"event": "hub_failed"})
        for connection in connections.all(initialized_only=True):
            try:
                connection.close_if_unusable_or_obsolete()
            except Exception:
                logger.exception("a connection could not be closed", extra={"event": "hub_failed"})
        with self._lock:
            again_at = time.monotonic() + again_seconds
            for ref in refs:
                if ref in self._watched:
                    self.mark_later(ref, again_at)
