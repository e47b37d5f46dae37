"""
The bell between processes: who queued a task rings, and workers elsewhere look at the table at once.

It goes over the channel layer where one reaches other processes, else over PostgreSQL's own LISTEN and NOTIFY. A ring
may be lost: workers look by themselves every few seconds, and without either that is all they do. Rings that follow
each other closely are one.
"""

import logging
import os
import threading
from collections.abc import Callable

from django.db import connections, transaction

from .. import compat, conf
from ..notifications.groups import QUEUE, QueueRang
from ..notifications.layers import crossing_layer
from ..notifications.link import Link, make_link
from ..store.locking import database

logger = logging.getLogger("mcp_tasks.runner")

#: How long a process that ends waits until its last ring is out.
FLUSH_SECONDS = 1.0
#: Rings within so short a time are one; so long a connection is kept for the next; so long after a fault is it left.
_TOGETHER_SECONDS, _KEPT_SECONDS, _REST_SECONDS = 0.02, 10.0, 5.0
#: How often a connection that hears nothing is tested.
_ALIVE_SECONDS = 60.0
_CHANNEL = "mcp_tasks_queue"


class Bell:
    """One that reaches nobody, for sites where workers can only look. Its methods return at once, on any thread."""

    def ring(self) -> None:
        """Tell the other processes that a task is queued."""

    def answer(self, rang: Callable[[], None]) -> None:
        """Call this, on another thread, whenever somebody rings."""

    def flush(self, seconds: float) -> None:
        """Wait so long until the last ring is out."""

    def close(self) -> None:
        """End the threads."""


class LayerBell(Bell):
    """Over the channel layer, by a link of its own, so that no ring waits behind changes of tasks."""

    def __init__(self) -> None:
        self._rang: Callable[[], None] = lambda: None
        link = make_link(heard=lambda change: self._rang(), joined=lambda group: None, interrupted=lambda: self._rang())
        assert link is not None
        self._link: Link = link

    def ring(self) -> None:
        self._link.send(QueueRang())

    def answer(self, rang: Callable[[], None]) -> None:
        self._rang = rang
        self._link.join(QUEUE)

    def flush(self, seconds: float) -> None:
        self._link.flush(seconds)

    def close(self) -> None:
        self._link.close()


class PostgresBell(Bell):
    """
    Over LISTEN and NOTIFY, each on a connection of its own.

    Never in the transaction that queues a task: there a NOTIFY holds a lock of the whole database until the disk has
    written. Behind a pooler that hands out connections by transaction nothing is heard, and workers look.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._closed = threading.Event()
        self._due, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._lock = threading.Lock()
        self._ringing: threading.Thread | None = None

    def ring(self) -> None:
        with self._lock:
            self._idle.clear()
            self._due.set()
            if self._ringing is None:
                thread = threading.Thread(target=self._ring, name="mcp-tasks-bell", daemon=True)
                thread.start()
                self._ringing = thread  # only now: where it could not be started the next ring tries again

    def answer(self, rang: Callable[[], None]) -> None:
        threading.Thread(target=self._listen, args=(rang,), name="mcp-tasks-bell-listen", daemon=True).start()

    def flush(self, seconds: float) -> None:
        self._idle.wait(seconds)

    def close(self) -> None:
        self._closed.set()
        self._due.set()

    def _ring(self) -> None:
        while True:
            if not self._due.wait(_KEPT_SECONDS):
                connections.close_all()
                self._due.wait()
            self._due.clear()
            if self._closed.is_set():
                connections.close_all()
                return
            try:
                with transaction.atomic(using=self._alias), connections[self._alias].cursor() as cursor:
                    cursor.execute("SET LOCAL synchronous_commit TO off")  # there is nothing to be kept
                    cursor.execute(f"NOTIFY {_CHANNEL}")
            except Exception:
                logger.exception("the bell cannot be rung: workers look by themselves", extra={"event": "bell_failed"})
                connections.close_all()
            with self._lock:
                if not self._due.is_set():
                    self._idle.set()
            self._closed.wait(_TOGETHER_SECONDS)

    def _listen(self, rang: Callable[[], None]) -> None:
        is_failing = False
        while not self._closed.is_set():
            try:
                with compat.own_connection(self._alias) as connection:
                    connection.execute(f"LISTEN {_CHANNEL}")
                    rang()  # for whoever rang before
                    is_failing = False
                    while not self._closed.is_set():
                        for _ in connection.notifies(timeout=_ALIVE_SECONDS):
                            rang()
                        connection.execute("SELECT 1")
            except Exception:
                if not is_failing:
                    text = "the bell cannot be heard: this worker looks by itself"
                    logger.exception(text, extra={"event": "bell_failed"})
                is_failing = True
                self._closed.wait(_REST_SECONDS)


def make_bell() -> Bell:
    """The best bell that the settings allow."""
    if crossing_layer() is not None:
        return LayerBell()
    return PostgresBell(database()) if compat.hears_notices(database()) else Bell()


class _Here:
    """The bell of this process, made on first use and again after a fork."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._bell: Bell | None = None

    def bell(self) -> Bell:
        with self._lock:
            if self._bell is None:
                self._bell = make_bell()
            return self._bell

    def flush(self) -> None:
        if self._bell is not None:
            self._bell.flush(FLUSH_SECONDS)

    def close(self) -> None:
        if self._bell is not None:
            self._bell.close()
        self._bell = None


_here = _Here()
conf.on_reset(_here.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_here.start_afresh)  # a lock that a thread of the parent holds stays held


def ring() -> None:
    """Tell workers of other processes that a task is queued; returns at once."""
    _here.bell().ring()


def answer(rang: Callable[[], None]) -> None:
    """Call this whenever somebody in another process rings."""
    _here.bell().answer(rang)


def flush() -> None:
    """Wait a moment until the last ring is out."""
    _here.flush()
