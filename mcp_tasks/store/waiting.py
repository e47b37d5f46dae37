"""
Callers that wait for a task: who tells them of its changes, and how long they sleep until they look themselves.

The teller is registered from above, as the effects are. It may be late or lose a change, so a sleep is never longer
than ``LOOK_SECONDS``; and it may look from outside of a transaction that the caller is in, so that a task is gone is
believed only where the caller finds it so.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from .types import TaskSnapshot

LOOK_SECONDS = 15.0
_SHORTEST_SECONDS, _NEAR_EXPIRY_SECONDS = 0.05, 1.0

#: Called on any thread with each state of the task, None once it is gone.
Told = Callable[[TaskSnapshot | None], None]
#: Begins to tell; returns what ends it.
Teller = Callable[[Any, UUID, Told], Callable[[], None]]

tellers: list[Teller] = []


class Wait:
    """One caller's wait for one task: what it was told last, and when its time is over."""

    def __init__(self, store: Any, ref: UUID, timeout: float | None, wake: Callable[[], None]) -> None:
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._wake = wake
        self._news: deque[TaskSnapshot | None] = deque(maxlen=1)
        self._near = _SHORTEST_SECONDS
        self._stops = [tell(store, ref, self._told) for tell in tellers]

    def __enter__(self) -> "Wait":
        return self

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop()

    def _told(self, snapshot: TaskSnapshot | None) -> None:
        self._news.append(snapshot)
        self._wake()

    def news(self) -> list[TaskSnapshot | None]:
        """What was told since the last look: nothing, or the newest state."""
        try:
            return [self._news.popleft()]
        except IndexError:
            return []

    def pause(self, snapshot: TaskSnapshot) -> float:
        """How long to sleep before looking again; raises TimeoutError when the time is over."""
        limits = [LOOK_SECONDS]
        if self._deadline is not None:
            limits.append(self._deadline - time.monotonic())
            if limits[-1] <= 0:
                raise TimeoutError("the task did not end in time")
        expires_at = snapshot.task.expires_at
        if expires_at is not None:
            left = (expires_at - datetime.now(UTC)).total_seconds()
            if left <= 0:
                # Our clock says that it is over, the store's does not yet.
                left = self._near
                self._near = min(2 * self._near, _NEAR_EXPIRY_SECONDS)
            limits.append(max(left, _SHORTEST_SECONDS))
        return min(limits)


def wait(store: Any, ref: UUID, timeout: float | None) -> TaskSnapshot | None:
    """``wait_for_completion`` of a store."""
    snapshot: TaskSnapshot | None = store.get_task_result(ref)
    if snapshot is None or snapshot.task.is_terminal:
        return snapshot
    woken = threading.Event()
    with Wait(store, ref, timeout, woken.set) as waiting:
        while snapshot is not None and not snapshot.task.is_terminal:
            pause = waiting.pause(snapshot)
            store.before_sleep()
            woken.wait(pause)
            woken.clear()
            told = waiting.news()
            snapshot = (told and told[0]) or store.get_task_result(ref)
    return snapshot


async def await_(store: Any, ref: UUID, timeout: float | None = None) -> TaskSnapshot | None:
    """The same in a coroutine: no thread sleeps meanwhile."""
    snapshot: TaskSnapshot | None = await store.aget_task_result(ref)
    if snapshot is None or snapshot.task.is_terminal:
        return snapshot
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(woken.set)
        except RuntimeError:
            pass  # the loop has ended, and with it whoever waited

    with Wait(store, ref, timeout, wake) as waiting:
        while snapshot is not None and not snapshot.task.is_terminal:
            pause = waiting.pause(snapshot)
            try:
                await asyncio.wait_for(woken.wait(), pause)
            except TimeoutError:
                pass  # time to look
            woken.clear()
            told = waiting.news()
            snapshot = (told and told[0]) or await store.aget_task_result(ref)
    return snapshot
