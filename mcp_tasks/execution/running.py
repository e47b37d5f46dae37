"""The legs that run in this process: their tokens, and what the heartbeat knows of each."""

import threading
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
    #: Where it is renewed; a process may have several, in tests.
    store: TaskStore | None = None
    beat_at: float = 0.0
    progress: Progress | None = None
    progress_at: float = float("-inf")


_legs: dict[UUID, RunningLeg] = {}
_lock = threading.Lock()


def add(leg: RunningLeg) -> None:
    """A handler is about to run. From now on the heartbeat watches the row for its token."""
    leg.token.watched = True
    with _lock:
        _legs[leg.ref] = leg


def remove(leg: RunningLeg) -> None:
    """The handler has ended."""
    with _lock:
        if _legs.get(leg.ref) is leg:
            del _legs[leg.ref]
            leg.token.watched = False


def all_legs() -> list[RunningLeg]:
    """A copy of the legs that run now."""
    with _lock:
        return list(_legs.values())


def stop_all(reason: str) -> None:
    """Raise the token of every leg that runs here."""
    for leg in all_legs():
        leg.token.raise_(reason)
