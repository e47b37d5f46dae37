"""The cancellation token: cooperative, shared by all holders of a task in this process, never lowered."""

import asyncio
import threading
import time
from collections.abc import Callable
from uuid import UUID
from weakref import WeakSet, WeakValueDictionary

from asgiref.sync import sync_to_async

#: Why a token was raised.
CANCELLED, EXPIRED, LEASE_LOST, SHUTDOWN, DISCONNECTED, TIMED_OUT = (
    "cancelled",
    "expired",
    "lease_lost",
    "shutdown",
    "disconnected",
    "timed_out",
)

_PROBE_SECONDS = 1.0


class TaskCancelled(BaseException):
    """
    Raised by ``raise_if_cancelled``.

    A BaseException, so that a handler's ``except Exception`` cannot turn a stop into an outcome.
    """


class CancellationToken:
    """
    Says that a handler should stop.

    ``probe`` is asked at most once a second by a token that no running leg watches; it returns a reason, or
    None. While a leg runs, the process's heartbeat watches its row instead.
    """

    def __init__(self, probe: Callable[[], str | None] | None = None) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waiters: list[Callable[[], None]] = []
        self._children: WeakSet[CancellationToken] = WeakSet()
        self._probe = probe
        self._probed_at = float("-inf")
        self.reason: str | None = None
        #: Whether somebody was told: then what a handler does next is an answer to it.
        self.observed = False
        #: Set while a leg runs, whose heartbeat watches the row.
        self.watched = False
        self._fence_at = float("inf")

    @property
    def cancelled(self) -> bool:
        """A cheap check, fit for an inner loop."""
        if not self._event.is_set():
            self._ask()
        if self._event.is_set():
            self.observed = True
            return True
        return False

    @property
    def is_raised(self) -> bool:
        """The bare state, for the machinery: looks without counting as observed."""
        return self._event.is_set()

    def fence(self, at: float) -> None:
        """
        Raise itself at this monotonic instant unless it is moved before: a lease that nobody could renew.

        Needs no thread, so it also holds where the heartbeat hangs, or the whole process was frozen.
        """
        self._fence_at = at

    def raise_if_cancelled(self) -> None:
        """Raise TaskCancelled when the handler should stop."""
        if self.cancelled:
            raise TaskCancelled(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the token is raised or so many seconds are over; True when it is raised."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.cancelled:
            step = None if deadline is None else max(0.0, deadline - time.monotonic())
            if step == 0.0:
                return False
            self._event.wait(self._step(step))
        return True

    async def wait_async(self, timeout: float | None = None) -> bool:
        """The same in a coroutine; cancelling the coroutine leaves nothing behind."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        await self._ask_async()
        while not self._event.is_set():
            step = None if deadline is None else max(0.0, deadline - loop.time())
            if step == 0.0:
                return False
            woken = asyncio.Event()
            waiter = _wake(loop, woken)
            with self._lock:
                self._waiters.append(waiter)
            try:
                if not self._event.is_set():
                    await asyncio.wait_for(woken.wait(), self._step(step))
            except TimeoutError:
                await self._ask_async()
            finally:
                with self._lock:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
        self.observed = True
        return True

    def child(self) -> "CancellationToken":
        """A token of one leg: raised with this one, and by what concerns that leg alone (its lease, its process)."""
        child = CancellationToken(self._probe)
        with self._lock:
            if not self._event.is_set():
                self._children.add(child)
                return child
        child.raise_(self.reason or CANCELLED)
        return child

    def raise_(self, reason: str) -> None:
        """Raise the token; the first reason stays."""
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            waiters, self._waiters = self._waiters, []
            children = list(self._children)
        for wake in waiters:
            wake()
        for child in children:
            child.raise_(reason)

    def _step(self, remaining: float | None) -> float | None:
        limits = [] if remaining is None else [remaining]
        if self._fence_at != float("inf"):
            limits.append(max(0.0, self._fence_at - time.monotonic()))
        if self._probe is not None and not self.watched:
            limits.append(_PROBE_SECONDS)
        return min(limits, default=None)

    def _ask(self) -> None:
        if time.monotonic() >= self._fence_at:
            self.raise_(LEASE_LOST)
        if self._probe is None or self.watched or self._event.is_set():
            return
        with self._lock:
            now = time.monotonic()
            if now - self._probed_at < _PROBE_SECONDS:
                return
            self._probed_at = now
        reason = self._probe()
        if reason is not None:
            self.raise_(reason)

    async def _ask_async(self) -> None:
        if self._probe is not None and not self.watched:
            await sync_to_async(self._ask)()  # a probe may query, which an event loop may not
        else:
            self._ask()


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> Callable[[], None]:
    def wake() -> None:
        try:
            loop.call_soon_threadsafe(woken.set)
        except RuntimeError:
            pass  # the loop has ended, and with it whoever waited

    return wake


_tokens: WeakValueDictionary[UUID, CancellationToken] = WeakValueDictionary()
_tokens_lock = threading.Lock()


def token_for(ref: UUID, probe: Callable[[], str | None] | None = None) -> CancellationToken:
    """The one token of a task in this process; kept as long as somebody holds it."""
    with _tokens_lock:
        token = _tokens.get(ref)
        if token is None:
            token = _tokens[ref] = CancellationToken(probe)
        return token


def raise_token(ref: UUID, reason: str) -> None:
    """Raise the token of a task, if somebody here holds it."""
    with _tokens_lock:
        token = _tokens.get(ref)
    if token is not None:
        token.raise_(reason)
