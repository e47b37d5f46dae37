"""
Server-sent events for one response (streamable-http, "SSE"), and the feed from a handler's thread to whoever writes.

One JSON message per ``data:`` line, no event ids: these streams cannot be resumed.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, cast
from uuid import UUID

from django.db import connections

from ... import compat
from ...access.credentials import Credential
from ...execution.threads import DaemonPool
from ...notifications.subscription import Subscription
from ...protocol.subscriptions import Frame
from ...rpc.requests import Reply, Work
from ...store import get_store
from ...tools.cancellation import DISCONNECTED
from ..listening import KEEP_ALIVE_SECONDS, Revoked, last_message, listen
from ..stopping import hear_signals
from .negotiation import Accepted

logger = logging.getLogger("mcp_tasks.rpc")

KEEP_ALIVE = b": keep-alive\n\n"
#: Said to be encoded already: Django's GZipMiddleware would make each event a compressed stream of its own, and no
#: client reads on after the first.
STREAM_HEADERS = {
    "Cache-Control": "no-cache, no-store, no-transform",
    "Content-Encoding": "identity",
    "X-Accel-Buffering": "no",
}

#: Handlers inside of requests. Never one of the threads that serve tasks: a slow call must not stop a poll.
INLINE_THREADS = 32
inline_pool = DaemonPool("mcp-tasks-inline", INLINE_THREADS, backlog=0, persistent=False)


#: No line ends in an event stream, but many a reader splits there: escaped, which JSON allows in its strings.
_TAKEN_FOR_LINE_ENDS = {char: f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}


def event(text: str) -> bytes:
    """One message as an event."""
    return f"event: message\ndata: {_line(text)}\n\n".encode()


def _line(text: str) -> str:
    if not text.isascii():
        for char, escaped in _TAKEN_FOR_LINE_ENDS.items():
            text = text.replace(char, escaped)  # a hundred times faster than translate, and this is on the loop
    return text


def events(frames: list[Frame], subscription_id: str) -> bytes:
    """Notifications of a subscription as events; each was encoded once, for all who listen."""
    place = _line(subscription_id).encode()
    parts = []
    for frame in frames:
        if frame.encoded is None:
            before, after = _line(frame.before), _line(frame.after)
            frame.encoded = f"event: message\ndata: {before}".encode(), f"{after}\n\n".encode()
        parts += [frame.encoded[0], place, frame.encoded[1]]
    return b"".join(parts)


def sent_as_event(reply: Reply, accepted: Accepted) -> bool:
    """Whether a finished reply is sent as one event: the client prefers that, or reads nothing else."""
    return not accepted.json or (accepted.prefers_stream and reply.status == 200)


def unheard(text: str) -> None:
    """A notification for a client that reads no stream, or asked for none."""


class Feed:
    """
    What a handler emits, and its reply at last, from its thread to one reader.

    A reader that goes away raises the handler's token, and a task that was made meanwhile is cancelled: nobody
    knows its id.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._items: deque[str | Reply] = deque()
        self._ready = threading.Condition()
        self._wake: Callable[[], object] | None = None
        self._left = False

    def start(self) -> None:
        """Run the handler; raises Busy when every thread for it works."""
        inline_pool.submit(self._run)

    def leave(self) -> None:
        """The client is gone."""
        with self._ready:
            self._left = True
            unseen = [item for item in self._items if isinstance(item, Reply)]
            self._items.clear()
        if not self._work.outlives_client:
            self._work.token.raise_(DISCONNECTED)
        for reply in unseen:
            abandon(reply)

    def get(self, timeout: float) -> str | Reply | None:
        """The next item; None after so many seconds without one."""
        with self._ready:
            self._ready.wait_for(lambda: bool(self._items), timeout)
            return self._items.popleft() if self._items else None

    def emitted(self) -> list[str]:
        """What else is there before the reply; returns at once."""
        texts: list[str] = []
        with self._ready:
            while self._items and isinstance(self._items[0], str):
                texts.append(cast(str, self._items.popleft()))
        return texts

    async def get_async(self, timeout: float) -> str | Reply | None:
        """The same on an event loop, without a thread."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        with self._ready:
            if self._items:
                return self._items.popleft()
            self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        try:
            await asyncio.wait_for(woken.wait(), timeout)
        except TimeoutError:
            pass
        with self._ready:
            self._wake = None
            return self._items.popleft() if self._items else None

    async def get_unless(self, stopped: "asyncio.Future[None]", timeout: float) -> str | Reply | None:
        """The next item; None after so many seconds, or once ``stopped`` is done."""
        waiting = asyncio.ensure_future(self.get_async(timeout))
        both: set[asyncio.Future[Any]] = {waiting, stopped}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await asyncio.wait({waiting})
        return None if waiting.cancelled() else waiting.result()

    def _run(self) -> None:
        reply = self._work.run(self._put)
        if not self._put(reply):
            abandon(reply)

    def _put(self, item: str | Reply) -> bool:
        """Hand an item to the reader; False when the reader is gone."""
        with self._ready:
            if self._left:
                return False
            self._items.append(item)
            self._ready.notify()
            wake = self._wake
        if wake is not None:
            try:
                wake()
            except RuntimeError:
                pass  # the loop has ended
        return True


def abandon(reply: Reply) -> None:
    """Cancel the task of a reply that reaches nobody. Returns at once, so it may be called on an event loop."""
    if reply.created is not None:
        threading.Thread(target=_cancel, args=(reply.created,), daemon=True).start()


def _cancel(ref: UUID) -> None:
    try:
        get_store().cancel_task(ref, "The caller left before it was told of the task")
    except Exception:
        logger.exception("an orphaned task could not be cancelled", extra={"event": "orphan", "ref": str(ref)})
    finally:
        connections.close_all()


class Events:
    """A feed as the body of a streaming response of WSGI."""

    def __init__(self, feed: Feed, first: str | Reply | None) -> None:
        self._feed = feed
        self._first = first

    def __iter__(self) -> Iterator[bytes]:
        item, done = self._first, False
        try:
            while True:
                yield _encode(item)
                if isinstance(item, Reply):
                    done = True
                    return
                item = self._feed.get(KEEP_ALIVE_SECONDS)
        finally:
            if not done:
                self._feed.leave()


class AsyncEvents:
    """The same for Django's ASGI handler."""

    def __init__(self, feed: Feed, first: str | Reply | None) -> None:
        self._feed = feed
        self._first = first
        self._is_over = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        item = self._first
        try:
            while True:
                yield _encode(item)
                if isinstance(item, Reply):
                    self._is_over = True
                    return
                item = await self._feed.get_async(KEEP_ALIVE_SECONDS)
        finally:
            self.close()

    def close(self) -> None:
        """
        Called by Django at the end of each response, on a thread.

        When a client leaves while a part is being sent, the iterator is only forgotten, and in a cycle with what told
        of it: until the garbage is collected the handler would work for nobody.
        """
        if not self._is_over:
            self._is_over = True
            self._feed.leave()


def _encode(item: str | Reply | None) -> bytes:
    if item is None:
        return KEEP_ALIVE
    return event((item.body or "") if isinstance(item, Reply) else item)


def _let_go() -> None:
    """Django keeps the thread of a request, and what it holds, until the last byte: a stream may last for days."""
    executor = compat.take_thread()
    if executor is not None:
        executor.submit(_close_connections)
        executor.shutdown(wait=False)


def _close_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


class Listening:
    """A subscription as the body of a streaming response of Django's ASGI handler."""

    def __init__(self, subscription: Subscription, credential: Credential) -> None:
        self._subscription = subscription
        self._credential = credential

    def close(self) -> None:
        """At the end of each response, like that of AsyncEvents."""
        self._subscription.abandon()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        hear_signals()
        _let_go()
        async with aclosing(listen(self._subscription, self._credential)) as messages:
            try:
                async for frames in messages:
                    yield events(frames, self._subscription.id_text) if frames else KEEP_ALIVE
            except Revoked:
                pass
        yield event(last_message(self._subscription))
