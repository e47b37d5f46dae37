"""What runners have in common whose tasks run in other processes: what serves only serves, and sweeps."""

import logging
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from uuid import UUID

from django.db import connections

from ..connections import look_after_connections
from ..execution.threads import process_is_ending
from ..execution.worker import start_sweeping
from ..signals import task_expired, task_settled
from ..tools.registry import registry
from .base import Runner, get_runner

logger = logging.getLogger("mcp_tasks.runner")

#: How many messages may wait for an engine that is away; of more the oldest are left to the janitor.
WAITING_LIMIT = 10_000
#: How long an engine is left alone after a message that it did not take: doubled up to the limit.
REST_SECONDS, REST_LIMIT_SECONDS = 0.5, 10.0
#: How long a process that ends waits until its last messages are out.
FLUSH_SECONDS = 2.0
_IDLE_SECONDS = 10.0


class ElsewhereRunner(Runner):
    """Runs nothing in the process that serves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._stopping = threading.Event()

    def ensure_started(self) -> None:
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid != os.getpid():
                self._stopping = threading.Event()
                start_sweeping(self._stopping)
                self._pid = os.getpid()

    def drain(self, seconds: float) -> None:
        self._stopping.set()


class EngineRunner(ElsewhereRunner):
    """
    Hands a message to an engine that the project has already, for each task that is queued.

    The message is the task's ``ref`` and nothing else. It is sent on a thread of its own: an engine that is away
    neither delays nor disturbs who queued the task. It is tried again until the engine takes it; should this process
    end before, the janitor of another one sends it a minute later.
    """

    def __init__(self) -> None:
        super().__init__()
        self._outbox = Outbox(self.send)
        for signal in (task_settled, task_expired):
            signal.connect(self._note_end)

    @abstractmethod
    def send(self, ref: UUID) -> None:
        """Hand one message to the engine; raises whatever the engine raises."""

    def enqueue(self, ref: UUID) -> None:
        self._outbox.put(ref)

    def _note_end(self, *, ref: UUID, **_: object) -> None:
        """Under a limit another task may begin now: its own message found no room, and is used up."""
        if get_runner() is self and any(tool.legs.is_limited for tool in registry):
            self.enqueue(ref)

    def flush(self) -> None:
        self._outbox.flush(FLUSH_SECONDS)


class Outbox:
    """Messages on their way to an engine, one for each task, sent on a daemon thread that begins with the first."""

    def __init__(self, send: Callable[[UUID], None]) -> None:
        self._send = send
        self._start_afresh()
        if hasattr(os, "register_at_fork"):
            # The thread stays behind, and what the parent was about to send is the parent's.
            os.register_at_fork(after_in_child=self._start_afresh)

    def _start_afresh(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[UUID, None] = {}
        self._sending = False
        self._has_thread = False

    def put(self, ref: UUID) -> None:
        """Send this soon. Returns at once."""
        with self._changed:
            self._waiting[ref] = None
            if len(self._waiting) > WAITING_LIMIT:
                del self._waiting[next(iter(self._waiting))]
            if not self._has_thread:
                threading.Thread(target=self._work, name="mcp-tasks-outbox", daemon=True).start()
                self._has_thread = True
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until nothing waits; False when that took longer."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._waiting or self._sending:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _work(self) -> None:
        rest = REST_SECONDS
        while True:
            ref = self._next()
            try:
                self._send(ref)
            except Exception:
                if process_is_ending():
                    return
                if rest == REST_SECONDS:
                    logger.exception(
                        "the engine takes no messages: they are sent when it does", extra={"event": "engine_failed"}
                    )
                self._ended(ref, again=True)
                look_after_connections()
                time.sleep(rest)
                rest = min(rest * 2, REST_LIMIT_SECONDS)
            else:
                if rest != REST_SECONDS:
                    logger.warning("the engine takes messages again", extra={"event": "engine_back"})
                rest = REST_SECONDS
                self._ended(ref, again=False)

    def _next(self) -> UUID:
        with self._changed:
            if not self._waiting and not self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS):
                connections.close_all()  # an engine may live in the database
            self._changed.wait_for(lambda: self._waiting)
            ref = next(iter(self._waiting))
            del self._waiting[ref]
            self._sending = True
            return ref

    def _ended(self, ref: UUID, *, again: bool) -> None:
        with self._changed:
            if again:
                self._waiting = {ref: None, **self._waiting}
            self._sending = False
            self._changed.notify_all()
