"""The legs that run in this process: their tokens, and what the heartbeat knows of each."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ..store.base import TaskStore
from ..tools.cancellation import CancellationToken


@dataclass(slots=True)
class Progress:
    """The newest report of a handler that was not written yet."""

    message: str | None
    done: float | None
    total: float | None


@dataclass(slots=True, eq=False)
class RunningLeg:
    """One leg in this process, with a token of its own. Instants are monotonic."""

    ref: UUID
    leg: int
    token: CancellationToken
    #: When its lease began, if not when it is first watched.
    claimed_at: float | None = None
    #: Where it is renewed; a process may have several, in tests.
    store: TaskStore | None = None
    beat_at: float = 0.0
    progress: Progress | None = None
    progress_at: float = float("-inf")
    #: When it is worth hearing of other processes, and what ends that.
    follow_at: float = float("inf")
    unfollow: Callable[[], None] | None = None
    #: How long the handler may run, and when it was told to stop.
    timeout_seconds: float | None = None
    timeout_at: float = float("inf")
    told_at: float = float("inf")
    #: Its time was up before its handler returned, whatever else its token was raised for.
    is_overdue: bool = False
    #: Its handler has returned in time: what it says is being written, and no end of it is due.
    has_returned: bool = False
    #: Called when the handler ignores its token: whoever waits for the end of the leg waits no longer.
    abandon: Callable[[], None] | None = None


# Of one task there may be several: a handler that ignores the loss of its lease, and its successor.
_legs: dict[RunningLeg, None] = {}
_lock = threading.Lock()


def _start_afresh() -> None:
    """In a child: the legs are its parent's, whose threads may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _legs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def add(leg: RunningLeg) -> None:
    """A handler is about to run. From now on the heartbeat watches the row for its token."""
    leg.token.watched = True
    with _lock:
        _legs[leg] = None


def remove(leg: RunningLeg) -> None:
    """The handler has ended."""
    with _lock:
        _legs.pop(leg, None)
        leg.token.watched = False


def all_legs() -> list[RunningLeg]:
    """A copy of the legs that run now."""
    with _lock:
        return list(_legs)


def stop_all(reason: str) -> None:
    """Raise the token of every leg that runs here."""
    for leg in all_legs():
        leg.token.raise_(reason)
