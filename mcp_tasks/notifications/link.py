"""
The link to other processes: the channel layer of the settings, on a thread and an event loop of its own.

A layer may lose what it carries and may be away. So nothing here waits for it: what cannot be sent is dropped, what
cannot be joined is tried again, and whoever listens looks for itself from time to time.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from channels.exceptions import ChannelFull
from channels.layers import channel_layers
from django.core.exceptions import ImproperlyConfigured

from .. import observing
from .groups import LISTS, QUEUE, Change, ListChanged, TaskChanged, read
from .layers import crossing_layer, layer_problem

logger = logging.getLogger("mcp_tasks.notifications")

#: How long one operation of the layer may take, and how long it is left alone after one that failed; longer after many.
ATTEMPT_SECONDS, REST_SECONDS, LONGEST_REST_SECONDS = 2.0, 1.0, 10.0
#: How often the membership is renewed for which no look finds out that it was lost.
RENEW_SECONDS = 60.0
#: How long a layer may wait for a message in one call, where it has such a bound.
WAIT_SECONDS = 2
#: How many changes may wait to be sent, one for each task; of more the oldest are left to the others' own looks.
OUTGOING_LIMIT = 10_000


class Link:
    """
    Memberships and messages of this process in a channel layer.

    Its methods may be called on any thread and return at once. ``heard`` and ``joined`` are called on the link's
    thread: with each change from another process, or our own coming back, and with a group once it was joined, or
    could not be for now. ``interrupted``: messages may have been lost.
    """

    def __init__(
        self,
        alias: str,
        *,
        heard: Callable[[Change], None],
        joined: Callable[[str], None],
        interrupted: Callable[[], None],
    ) -> None:
        self._alias = alias
        self._on_heard, self._on_joined, self._on_interrupted = heard, joined, interrupted
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        #: Of the wanted ones those whose ``joined`` is due.
        self._awaited: set[str] = set()
        #: What we are members of, and what the layer may hold for us, perhaps half: after an attempt that failed.
        self._joined: set[str] = set()
        self._held: set[str] = set()
        self._touched: dict[str, None] = {}
        self._outgoing: dict[str, Change] = {}
        self._idle = threading.Event()
        self._idle.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        # The rest belongs to the loop.
        self._layer: Any = None
        self._channel: str | None = None
        self._down_until = 0.0
        self._failing = False
        self._retrying: asyncio.TimerHandle | None = None

    # -- from any thread ------------------------------------------------------------------------------------------

    def join(self, group: str) -> None:
        """Hear of this group from now on; ``joined`` says since when."""
        with self._lock:
            self._wanted.add(group)
            self._awaited.add(group)
            self._touched[group] = None
        self._kick()

    def leave(self, group: str) -> None:
        """Hear of it no longer."""
        with self._lock:
            self._wanted.discard(group)
            self._awaited.discard(group)
            self._touched[group] = None
        self._kick()

    def rejoin(self, groups: Iterable[str]) -> None:
        """Join these again, though we should be members: the layer may have forgotten."""
        with self._lock:
            again = self._wanted.intersection(groups)
            self._joined -= again
            self._touched.update(dict.fromkeys(again))
        if again:
            self._kick()

    def send(self, change: Change) -> None:
        """Tell the other processes, soon; of one task only the newest revision."""
        key = f"{change.group}.{change.kind}" if isinstance(change, ListChanged) else change.group
        with self._lock:
            waiting = self._outgoing.pop(key, None)
            if isinstance(waiting, TaskChanged) and isinstance(change, TaskChanged):
                change = TaskChanged(change.ref, max(change.revision, waiting.revision))
            self._outgoing[key] = change
            if len(self._outgoing) > OUTGOING_LIMIT:
                del self._outgoing[next(iter(self._outgoing))]
            self._idle.clear()
        self._kick()

    def flush(self, seconds: float) -> bool:
        """Wait until everything was sent, or dropped; False when that took longer."""
        return self._idle.wait(seconds)

    def close(self) -> None:
        """End the thread and leave everything."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _kick(self) -> None:
        with self._lock:
            if self._closed:
                return
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._work_to_do = asyncio.Event()
                threading.Thread(target=self._run, args=(self._loop,), name="mcp-tasks-link", daemon=True).start()
            self._loop.call_soon_threadsafe(self._work_to_do.set)

    # -- on the loop ----------------------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        working = loop.create_task(self._work())
        loop.call_later(RENEW_SECONDS, self._renew, loop)
        loop.run_forever()
        everything = asyncio.all_tasks(loop)
        for task in everything:
            task.cancel()
        loop.run_until_complete(asyncio.gather(working, *everything, return_exceptions=True))
        loop.run_until_complete(self._disconnect())
        loop.close()

    async def _disconnect(self) -> None:
        close = getattr(self._layer, "close_pools", None)
        try:
            if close is not None:
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    await close()
        except Exception:
            logger.debug("the channel layer could not be closed", exc_info=True)

    async def _work(self) -> None:
        receiving: asyncio.Task[None] | None = None
        while True:
            await self._work_to_do.wait()
            self._work_to_do.clear()
            await self._send_all()
            await self._update_memberships()
            if self._channel is not None and (receiving is None or receiving.done()):
                receiving = asyncio.get_running_loop().create_task(self._receive())

    async def _send_all(self) -> None:
        while True:
            with self._lock:
                if not self._outgoing:
                    self._idle.set()
                    return
                change = self._outgoing.pop(next(iter(self._outgoing)))
            if not await self._attempt(partial(self._send, change)):
                observing.happened("notification", result="failed", number=1)

    async def _update_memberships(self) -> None:
        while True:
            with self._lock:
                if not self._touched:
                    return
                group, _ = self._touched.popitem()
                wanted, is_member, is_held = group in self._wanted, group in self._joined, group in self._held
            if wanted and not is_member:
                has_news = await self._attempt(partial(self._join, group))
            else:
                has_news = False
                if is_held and not wanted:
                    await self._attempt(partial(self._leave, group))
            with self._lock:
                has_news = has_news or group in self._awaited
                self._awaited.discard(group)
            if has_news:
                self._on_joined(group)
            if self._outgoing:
                await self._send_all()  # a thousand memberships must not hold up one message

    def _retry_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._retrying is None:
            self._retrying = loop.call_at(self._down_until, self._retry)

    def _retry(self) -> None:
        """What failed is tried again: to join, and to leave."""
        self._retrying = None
        with self._lock:
            self._touched.update(dict.fromkeys((self._wanted - self._joined) | (self._held - self._wanted)))
        self._work_to_do.set()

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        """
        Memberships may end by age, or with a broker's memory.

        That a task is no longer heard of is found by a look; of lists there is none, and at the queue a late one.
        """
        self.rejoin([LISTS, QUEUE])
        loop.call_later(RENEW_SECONDS, self._renew, loop)

    def _made(self) -> Any:
        """Our own instance: a layer serves one loop, and the project's is for the loop of its server."""
        if self._layer is None:
            layer = channel_layers.make_backend(self._alias)
            if hasattr(layer, "brpop_timeout"):
                # channels_redis' core layer lets Redis wait as long as the client of Redis waits for Redis, by default:
                # then each quiet while ends as a lost connection.
                layer.brpop_timeout = min(layer.brpop_timeout, WAIT_SECONDS)
            self._layer = layer
        return self._layer

    async def _send(self, change: Change) -> None:
        try:
            await self._made().group_send(change.group, change.message())
        except ChannelFull:  # of somebody; the layer itself works
            observing.happened("notification", result="failed", number=1)

    async def _join(self, group: str) -> None:
        layer = self._made()
        if self._channel is None:
            self._channel = await layer.new_channel()
        with self._lock:
            self._held.add(group)
        await layer.group_add(group, self._channel)
        with self._lock:
            self._joined.add(group)

    async def _leave(self, group: str) -> None:
        with self._lock:
            is_whole = group in self._joined
            self._joined.discard(group)
        if not is_whole:
            # Of a group that is half joined, or half left, layers keep the other half.
            await self._layer.group_add(group, self._channel)
        await self._layer.group_discard(group, self._channel)
        with self._lock:
            self._held.discard(group)

    async def _attempt(self, operation: Callable[[], Awaitable[None]]) -> bool:
        loop = asyncio.get_running_loop()
        if loop.time() < self._down_until:
            self._retry_later(loop)
            return False
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                await operation()
        except Exception:
            self._down_until = loop.time() + REST_SECONDS
            self._retry_later(loop)
            self._fails("the channel layer cannot be used: listeners look for changes themselves")
            return False
        if self._failing:
            self._failing = False
            logger.warning("the channel layer can be used again", extra={"event": "layer_back"})
            self._on_interrupted()
        return True

    def _fails(self, message: str) -> None:
        if not self._failing:
            self._failing = True
            logger.exception(message, extra={"event": "layer_failed"})

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        rest_seconds, begun_at = REST_SECONDS, loop.time()
        while True:
            try:
                message = await self._layer.receive(self._channel)
                change = read(message)
                if change is not None:
                    self._on_heard(change)
                rest_seconds = REST_SECONDS
            except Exception:
                self._fails("the channel layer cannot be read: listeners look for changes themselves")
                if loop.time() > begun_at + LONGEST_REST_SECONDS:
                    rest_seconds = REST_SECONDS  # it was quiet for a while, not broken
                await asyncio.sleep(rest_seconds)
                # A layer that can be joined and not read is joined, and looked after, ever more seldom.
                rest_seconds, begun_at = min(2 * rest_seconds, LONGEST_REST_SECONDS), loop.time()
                with self._lock:
                    lost, self._joined = self._joined, set()
                    self._touched.update(dict.fromkeys(lost & self._wanted))
                self._work_to_do.set()


def make_link(
    *, heard: Callable[[Change], None], joined: Callable[[str], None], interrupted: Callable[[], None]
) -> Link | None:
    """A link over the configured layer; None without one that reaches other processes."""
    problem = layer_problem()
    if problem is not None:
        raise ImproperlyConfigured(problem)
    alias = crossing_layer()
    return None if alias is None else Link(alias, heard=heard, joined=joined, interrupted=interrupted)
