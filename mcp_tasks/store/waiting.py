"""Threads of this process that wait for a task: woken by the effects of its changes, else they look themselves."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

_waiters: dict[UUID, list[threading.Event]] = {}
_lock = threading.Lock()


@contextmanager
def waiter(ref: UUID) -> Iterator[threading.Event]:
    """An event that is set at each change of the task made in this process."""
    event = threading.Event()
    with _lock:
        _waiters.setdefault(ref, []).append(event)
    try:
        yield event
    finally:
        with _lock:
            _waiters[ref].remove(event)
            if not _waiters[ref]:
                del _waiters[ref]


def wake(ref: UUID) -> None:
    """Wake whoever waits for this task."""
    with _lock:
        events = list(_waiters.get(ref, ()))
    for event in events:
        event.set()
