"""
One ``subscriptions/listen`` on its event loop: what is to be sent to it next, whatever transport sends it.

It holds no thread and no connection. A reader that is slow finds the newest state of each task, not all of them;
one that is too slow for that has them read again when it comes to them.
"""

import asyncio
from uuid import UUID

from .. import observing
from ..protocol.codec import dumps
from ..protocol.jsonrpc import RequestId
from ..protocol.subscriptions import Frame, ListKind, acknowledged, list_changed
from ..store.base import TaskStore
from .hub import hub
from .listeners import Loop, State
from .places import Place

#: How much may wait for one reader; what is beyond is read again once the rest was sent.
PENDING_BYTES = 1024 * 1024
TOGETHER_SECONDS = 0.1


class Subscription:
    """
    What one client listens to. Made on any thread; everything from ``start`` on happens on the loop that starts it.

    ``tasks`` are the accepted ones: ref to the client's id.
    """

    __slots__ = (
        "_asked",
        "_later",
        "_lists",
        "_loop",
        "_pending",
        "_pending_bytes",
        "_place",
        "_seen",
        "_store",
        "_tasks",
        "_woken",
        "id",
        "id_text",
        "is_ended",
        "transport",
    )

    def __init__(
        self,
        request_id: RequestId,
        *,
        store: TaskStore,
        tasks: dict[UUID, str],
        lists: tuple[ListKind, ...],
        transport: str = "sse",
    ) -> None:
        self.id = request_id
        self.id_text = dumps(request_id)
        self.is_ended = False
        self.transport = transport
        self._store = store
        self._tasks = tasks
        self._lists = lists
        self._place: Place | None = None
        self._loop: Loop | None = None
        self._pending: dict[UUID | ListKind, State | None] = {}
        self._pending_bytes = 0
        self._later: dict[UUID, None] = {}
        self._seen: dict[UUID, int] = {}
        self._woken: asyncio.Future[None] | None = None
        self._asked: asyncio.Future[bool] | None = None

    @property
    def task_count(self) -> int:
        """How many tasks were accepted."""
        return len(self._tasks)

    @property
    def acknowledgement(self) -> Frame:
        """The first message."""
        return acknowledged(self._lists, tuple(self._tasks.values()))

    def hold(self, place: Place) -> None:
        """Keep the place of this stream until it is closed."""
        self._place = place

    def start(self) -> None:
        """Begin to listen. The present state of each task follows by itself."""
        self._loop = asyncio.get_running_loop()
        _open.setdefault(self._loop, set()).add(self)
        observing.happened("listening", transport=self.transport, change=1)
        if self._lists:
            hub.watch_lists(self, self._loop)
        for ref in self._tasks:
            hub.watch(self._store, ref, self, self._loop)

    def close(self) -> None:
        """Listen no longer, and give the place back. May be called twice, and without a start."""
        loop, self._loop = self._loop, None
        if loop is not None:
            observing.happened("listening", transport=self.transport, change=-1)
            others = _open.get(loop, set())
            others.discard(self)
            if not others:
                _open.pop(loop, None)
            if self._lists:
                hub.unwatch_lists(self, loop)
            hub.unwatch_all([(ref, self) for ref in self._tasks], loop)
        self._pending.clear()
        if self._place is not None:
            self._place.release()

    def abandon(self) -> None:
        """The same from any thread: whoever was to read it is gone, and may never say so on its loop."""
        loop = self._loop
        if loop is None:
            self.close()
            return
        try:
            loop.call_soon_threadsafe(self.close)
        except RuntimeError:
            self.close()  # the loop has ended

    def end(self) -> None:
        """The server ends it: what waits is still sent, then ``is_ended`` says that nothing follows."""
        self.is_ended = True
        self._wake()
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(False)

    def wait_for(self, asked: "asyncio.Future[bool]") -> None:
        """Something is asked for this subscription; the answer is False once it has ended, and nobody needs it."""
        self._asked = asked
        if self.is_ended and not asked.done():
            asked.set_result(False)

    async def frames(self, timeout: float) -> list[Frame]:
        """What is to be sent now; empty after so many seconds without anything, and when it has ended."""
        if not self._pending and not self.is_ended:
            self._ask_for_later()
            loop = asyncio.get_running_loop()
            woken = self._woken = loop.create_future()
            handle = loop.call_at(_together(loop.time() + timeout), _set, woken)
            try:
                await woken
            finally:
                handle.cancel()
                self._woken = None
        return self._take()

    def _take(self) -> list[Frame]:
        if not self._pending:
            return []
        pending, self._pending, self._pending_bytes = self._pending, {}, 0
        frames = []
        for name, state in pending.items():
            if not isinstance(name, UUID):
                frames.append(list_changed(name))
            elif state is not None:
                frames.append(state.frame(self._tasks[name]))
        observing.happened("notification", result="sent", number=len(frames))
        return frames

    def changed(self, ref: UUID, state: State | None) -> bool:
        """A task has this state now; None once it is gone, of which a client is not told."""
        if self._loop is None or ref not in self._tasks:
            return True
        if state is None:
            self._drop(ref)
            if ref in self._later:
                del self._later[ref]
                self._ask_for_later()  # perhaps it was the one that the reader waits for
            return True
        if state.revision <= self._seen.get(ref, 0):
            observing.happened("notification", result="stale", number=1)
            return False
        self._drop(ref)
        if self._pending and self._pending_bytes + state.size > PENDING_BYTES:
            self._later[ref] = None
            return False
        self._later.pop(ref, None)
        self._seen[ref] = state.revision
        self._pending[ref] = state
        self._pending_bytes += state.size
        self._wake()
        return state.is_terminal

    def list_changed(self, kind: ListKind) -> None:
        """A list is another one now."""
        if kind in self._lists:
            self._pending[kind] = None
            self._wake()

    def _drop(self, ref: UUID) -> None:
        waiting = self._pending.pop(ref, None)
        if waiting is not None:
            self._pending_bytes -= waiting.size

    def _ask_for_later(self) -> None:
        """Have one of what found no room read again; the next when this one was sent, or is gone."""
        if self._later and not self._pending:
            ref = next(iter(self._later))
            self._later[ref] = self._later.pop(ref)  # to the end: what cannot be shown holds up no other
            hub.ask(ref, self)

    def _wake(self) -> None:
        if self._woken is not None:
            _set(self._woken)


def _together(at: float) -> float:
    """A moment soon after that, which all streams share: thousands of them then wake the loop ten times a second."""
    return at + (-at) % TOGETHER_SECONDS


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


#: The subscriptions that are open, by loop; each loop touches its own set only.
_open: dict[Loop, set[Subscription]] = {}


def end_all() -> None:
    """The server stops: end every subscription of this process. Fit for any thread, and for a signal handler."""
    for loop in list(_open):
        try:
            loop.call_soon_threadsafe(_end, loop)
        except RuntimeError:
            _open.pop(loop, None)


def _end(loop: Loop) -> None:
    for subscription in list(_open.get(loop, ())):
        subscription.end()
