"""
The listeners of this process, and what they are told.

A change, whoever made it, marks its task. One thread reads all marked tasks at once, and each state is handed to all
who listen: read once, encoded once.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable
from uuid import UUID, uuid4

from .. import conf
from ..protocol.subscriptions import LIST_KINDS, ListKind
from ..protocol.tasks import WORKING
from ..store.base import TaskStore
from ..store.types import TaskSnapshot
from .groups import LISTS, Change, ListChanged, QueueRang, group_of
from .link import Link, make_link
from .listeners import Listener, ListListener, Loop, State, Watched, tell
from .post import Post
from .reading import Reader
from .reconcile import period_seconds

logger = logging.getLogger("mcp_tasks.notifications")

#: Progress of one task is shown at most so often; every other change at once.
PROGRESS_SECONDS = 0.2


class Hub:
    """The one of this process is ``hub``. Its methods may be called on any thread and never block on a database."""

    def __init__(self) -> None:
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._name = uuid4().hex
        self._lock = threading.Condition()
        self._tasks: dict[UUID, Watched] = {}
        self._lists: dict[Loop, set[ListListener]] = {}
        self._post = Post(deliver=self._deliver, ended=self._forget)
        self._reader = Reader(self._lock, self._tasks, show=self._show, found=self._found, period=self._period_seconds)
        self._link: Link | None = None
        self._has_link = False

    # -- listening ------------------------------------------------------------------------------------------------

    def watch(self, store: TaskStore, ref: UUID, listener: Listener, loop: Loop | None = None) -> None:
        """Tell the listener of this task from now on, beginning with its present state."""
        with self._lock:
            link = self._linked()
            watched = self._tasks.get(ref)
            is_new = watched is None
            if watched is None:
                watched = self._tasks[ref] = Watched(store)
            watched.listeners.setdefault(loop, set()).add(listener)
            watched.newcomers.add(listener)
            self._reader.ensure_running()
            if not is_new or link is None:
                self._reader.mark(ref)
            if is_new and link is not None:
                link.join(group_of(ref))  # read only after that, or a change in between would be lost

    def unwatch(self, ref: UUID, listener: Listener, loop: Loop | None = None) -> None:
        """Tell it nothing more."""
        self.unwatch_all([(ref, listener)], loop)

    def unwatch_all(self, pairs: Iterable[tuple[UUID, Listener]], loop: Loop | None = None) -> None:
        """The same for many at once."""
        with self._lock:
            for ref, listener in pairs:
                watched = self._tasks.get(ref)
                if watched is None or listener not in watched.listeners.get(loop, ()):
                    continue
                watched.listeners[loop].discard(listener)
                watched.newcomers.discard(listener)
                if not watched.listeners[loop]:
                    del watched.listeners[loop]
                if not watched.listeners:
                    self._drop(ref)

    def _drop(self, ref: UUID) -> None:
        """Nobody listens to this task any more."""
        del self._tasks[ref]
        self._reader.forget(ref)
        if self._link is not None:
            self._link.leave(group_of(ref))

    def ask(self, ref: UUID, listener: Listener) -> None:
        """Read this task again and show it to this listener, though nothing may have changed."""
        with self._lock:
            watched = self._tasks.get(ref)
            if watched is not None:
                watched.newcomers.add(listener)
                self._reader.mark(ref)

    def watch_lists(self, listener: ListListener, loop: Loop) -> None:
        """Tell the listener of changed lists from now on."""
        with self._lock:
            link = self._linked()
            is_first = not self._lists
            self._lists.setdefault(loop, set()).add(listener)
            if is_first and link is not None:
                link.join(LISTS)  # under the lock: overtaken by who leaves, it would be undone

    def unwatch_lists(self, listener: ListListener, loop: Loop) -> None:
        """Tell it nothing more."""
        with self._lock:
            listeners = self._lists.get(loop, set())
            listeners.discard(listener)
            if not listeners:
                self._lists.pop(loop, None)
            if not self._lists and self._link is not None:
                self._link.leave(LISTS)

    @property
    def crosses_processes(self) -> bool:
        """Whether changes of other processes are told to this one, rather than found by it."""
        with self._lock:
            return self._linked() is not None

    def count(self) -> int:
        """How many tasks are watched here."""
        return len(self._tasks)

    # -- changes --------------------------------------------------------------------------------------------------

    def publish(self, change: Change) -> None:
        """A change was committed here: tell the listeners of this process and the other processes."""
        self.heard(change)
        with self._lock:
            link = self._linked()
        if link is not None:
            link.send(ListChanged(change.kind, self._name) if isinstance(change, ListChanged) else change)

    def heard(self, change: Change) -> None:
        """Somebody committed a change."""
        if isinstance(change, ListChanged):
            if change.sender != self._name:  # else our own message is back
                self._announce([change.kind])
            return
        if isinstance(change, QueueRang):
            return
        with self._lock:
            watched = self._tasks.get(change.ref)
            if watched is not None and change.revision > watched.heard:
                watched.heard = change.revision
                self._reader.mark(change.ref)

    def flush(self, seconds: float) -> None:
        """Wait so long until the other processes were told."""
        if self._link is not None:
            self._link.flush(seconds)

    def close(self) -> None:
        """Forget every listener and end the threads, for a process that is about to change what it listens to."""
        with self._lock:
            thread = self._reader.end()
            link = self._link
        if link is not None:
            link.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)
        self._start_afresh()

    # -- the other processes --------------------------------------------------------------------------------------

    def _linked(self) -> Link | None:
        if not self._has_link:
            self._link = make_link(heard=self.heard, joined=self._joined, interrupted=self._interrupted)
            self._has_link = True
        return self._link

    def _period_seconds(self) -> float:
        return period_seconds(crosses=self._link is not None)

    def _joined(self, group: str) -> None:
        if group == LISTS:
            return
        with self._lock:
            ref = UUID(hex=group.rpartition(".")[2])
            if ref in self._tasks:
                self._reader.mark(ref)

    def _interrupted(self) -> None:
        """Messages may be lost: look at everything now, and let list listeners look for themselves."""
        with self._lock:
            self._reader.look()
        self._announce(LIST_KINDS)

    def _found(self, lost: list[UUID]) -> None:
        """A look found what no message told: perhaps the layer has forgotten that we are members there."""
        with self._lock:
            link = self._link
        if link is not None:
            link.rejoin([group_of(ref) for ref in lost])

    # -- telling --------------------------------------------------------------------------------------------------

    def _show(self, ref: UUID, snapshot: TaskSnapshot | None) -> None:
        watched = self._tasks.get(ref)
        if watched is None:
            return
        if snapshot is None:
            self._hand_out(ref, watched, None, None)
            return
        task, now = snapshot.task, time.monotonic()
        watched.heard = task.revision  # a message that was early counts when it comes again
        newcomers, watched.newcomers = watched.newcomers, set()
        if task.revision > watched.revision:
            is_progress = task.status == watched.shown_status == WORKING
            if not is_progress or now >= watched.shown_at + PROGRESS_SECONDS:
                watched.revision, watched.shown_status, watched.shown_at = task.revision, task.status, now
                self._hand_out(ref, watched, State(snapshot), None)
                return
            self._reader.mark_later(ref, watched.shown_at + PROGRESS_SECONDS)
        if newcomers:
            self._hand_out(ref, watched, State(snapshot), newcomers)

    def _hand_out(self, ref: UUID, watched: Watched, state: State | None, only: set[Listener] | None) -> None:
        for loop, listeners in list(watched.listeners.items()):
            named = listeners if only is None else listeners & only
            if loop is None:
                for listener in list(named):
                    tell(listener, ref, state)
            elif named:
                self._post.hand_in(loop, ref, state, None if only is None else named)

    def _announce(self, kinds: Iterable[ListKind]) -> None:
        with self._lock:
            for loop in list(self._lists):
                self._post.announce(loop, kinds)

    def _forget(self, loop: Loop) -> None:
        """This loop is over, and with it all who listened on it."""
        self._lists.pop(loop, None)
        for ref, watched in list(self._tasks.items()):
            if watched.listeners.pop(loop, None) and not watched.listeners:
                self._drop(ref)

    def _deliver(self, loop: Loop) -> None:
        """On the loop: hand on what has come for it."""
        with self._lock:
            box = self._post.take(loop)
            if box is None:
                return
            told = [
                (listener, ref, state)
                for ref, (state, only) in box.states.items()
                if ref in self._tasks
                for listener in self._tasks[ref].listeners.get(loop, ())
                if only is None or listener in only
            ]
            lists = [(listener, kind) for listener in self._lists.get(loop, ()) for kind in box.lists]
        over = [(ref, listener) for listener, ref, state in told if tell(listener, ref, state)]
        if over:
            self.unwatch_all(over, loop)
        for list_listener, kind in lists:
            try:
                list_listener.list_changed(kind)
            except Exception:
                logger.exception("a listener failed", extra={"event": "listener_failed"})


hub = Hub()
conf.on_reset(hub.close)
if hasattr(os, "register_at_fork"):
    # The threads stay behind, and who listens there is none of the child's business.
    os.register_at_fork(after_in_child=hub._start_afresh)
