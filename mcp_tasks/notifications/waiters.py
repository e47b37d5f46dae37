"""Who waits for a task in this process, beside its streams: callers of ``wait``, and the tokens of running handlers."""

from collections.abc import Callable
from uuid import UUID

from ..store.base import TaskStore
from ..store.types import TaskSnapshot
from ..store.waiting import Told
from ..tools.cancellation import CANCELLED, EXPIRED, CancellationToken, raise_token
from .hub import hub
from .listeners import State


class _Told:
    """A listener that hands each state to a function."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def changed(self, ref: UUID, state: State | None) -> bool:
        self._told(None if state is None else state.snapshot)
        return False  # whoever waits says so himself


def tell(store: TaskStore, ref: UUID, told: Told) -> Callable[[], None]:
    """Hand each state of the task to ``told``, until the function that is returned is called."""
    listener = _Told(told)
    hub.watch(store, ref, listener)
    return lambda: hub.unwatch(ref, listener)


def follow(store: TaskStore, ref: UUID, token: CancellationToken) -> Callable[[], None]:
    """Raise this token, and the task's, as soon as another process cancels the task; returns what ends it."""

    def told(snapshot: TaskSnapshot | None) -> None:
        if snapshot is None:
            reason = EXPIRED
        elif snapshot.task.cancel_requested_at is not None:
            reason = CANCELLED
        else:
            return  # an outcome alone is no reason: it may be the leg's own
        raise_token(ref, reason)
        token.raise_(reason)

    return tell(store, ref, told)
