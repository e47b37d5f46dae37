"""
Server-sent events for one response (streamable-http, "SSE"), and the feed from a handler's thread to whoever writes.

One JSON message per ``data:`` line, no event ids: these streams cannot be resumed.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from uuid import UUID

from django.db import connections

from ...execution.threads import DaemonPool
from ...rpc.requests import Reply, Work
from ...store import get_store
from ...tools.cancellation import DISCONNECTED
from .negotiation import Accepted

logger = logging.getLogger("mcp_tasks.rpc")

KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = ": keep-alive\n\n"
STREAM_HEADERS = {"Cache-Control": "no-cache, no-store, no-transform", "X-Accel-Buffering": "no"}

#: Handlers inside of requests. Never one of the threads that serve tasks: a slow call must not stop a poll.
INLINE_THREADS = 32
inline_pool = DaemonPool("mcp-tasks-inline", INLINE_THREADS, backlog=0, persistent=False)


#: No line ends in an event stream, but many a reader splits there: escaped, which JSON allows in its strings.
_TAKEN_FOR_LINE_ENDS = str.maketrans({char: f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"})


def event(text: str) -> str:
    """One message as an event."""
    line = text if text.isascii() else text.translate(_TAKEN_FOR_LINE_ENDS)
    return f"event: message\ndata: {line}\n\n"


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
        if not self._work.outlives_client:
            self._work.token.raise_(DISCONNECTED)
        for reply in unseen:
            abandon(reply)

    def get(self, timeout: float) -> str | Reply | None:
        """The next item; None after so many seconds without one."""
        with self._ready:
            self._ready.wait_for(lambda: bool(self._items), timeout)
            return self._items.popleft() if self._items else None

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
    """A feed as the body of a streaming response, for either kind of server."""

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

    async def __aiter__(self) -> AsyncIterator[bytes]:
        item, done = self._first, False
        try:
            while True:
                yield _encode(item)
                if isinstance(item, Reply):
                    done = True
                    return
                item = await self._feed.get_async(KEEP_ALIVE_SECONDS)
        finally:
            if not done:
                self._feed.leave()


def _encode(item: str | Reply | None) -> bytes:
    if item is None:
        return KEEP_ALIVE.encode()
    return event((item.body or "") if isinstance(item, Reply) else item).encode()
