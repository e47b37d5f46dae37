"""Slots, claim loop and sweep of one process: of the embedded runner in a web process, or of a worker process."""

import logging
import random
import threading
import time
from collections.abc import Callable

from django.db import connections

from .. import conf
from ..connections import look_after_connections
from ..store import get_store
from ..store.processes import WEB
from ..store.sweep import sweep
from ..store.types import Claim
from ..tools.cancellation import SHUTDOWN
from . import running
from .leg import GIVEN_BACK_SECONDS, run_leg
from .presence import Presence
from .queue import Queue
from .threads import DaemonPool, process_is_ending

logger = logging.getLogger("mcp_tasks.runner")

#: How often the table is looked at when nothing rings.
POLL_SECONDS, POLL_LIMIT_SECONDS = 1.0, 5.0
_FAULT_SECONDS = 2.0
#: How long a slot without a leg keeps its connection: a new one for each leg costs more than the leg.
REST_SECONDS = 1.0
_DRAIN_STEP_SECONDS = 0.05
#: How long an end waits until the row of this process is gone.
_LEAVE_SECONDS = 2.0


class Worker:
    """
    Claims queued tasks into ``slots`` threads and sweeps every ``SWEEP_SECONDS``.

    The table is the queue: the bell only shortens the wait, and a lost one costs at most five seconds.

    ``tools``: claim only tasks of these. A worker with an ``end`` may stop by itself: with ``once`` when nothing is
    left to claim, or when ``retires``, asked before each claim with the number of those before, says so. It claims
    nothing more then, lets its legs finish, and calls ``end``; with False where the claim loop was lost.
    """

    def __init__(
        self,
        slots: int,
        kind: str = WEB,
        *,
        tools: tuple[str, ...] | None = None,
        once: bool = False,
        retires: Callable[[int], bool] = lambda claims: False,
        end: Callable[[bool], None] = lambda good: None,
    ) -> None:
        self._slots = slots
        self._queue = Queue(tools)
        self._once, self._retires, self._end = once, retires, end
        self._claims = self._over = self._deaf = 0
        self._free = threading.Semaphore(slots)
        self._pool = DaemonPool("mcp-tasks-slot", slots, backlog=slots, persistent=True, rest_seconds=REST_SECONDS)
        self._bell = threading.Event()
        self._stopping = threading.Event()
        self._presence = Presence(kind, lambda: slots, only=tools)
        self._claiming, self._counting = threading.Lock(), threading.Lock()

    def start(self) -> None:
        """Begin to claim, to sweep, and to say that this process is alive, on daemon threads."""
        threading.Thread(target=self._claim_loop, name="mcp-tasks-claim", daemon=True).start()
        self._presence.begin()
        start_sweeping(self._stopping)

    def ring(self) -> None:
        """A task is queued: look now."""
        self._bell.set()

    @property
    def claims(self) -> int:
        """How many legs were claimed so far."""
        return self._claims

    @property
    def deaf(self) -> int:
        """How many handlers were given up and still occupy a thread."""
        return self._deaf

    def drain(self, seconds: float) -> int:
        """
        Claim nothing more, raise every token, wait for the legs, and leave the rest to their leases.

        A leg whose handler stops and that may be run again gives itself back; another process takes it at once.
        Returns how many legs still run, those that were given up not counted.
        """
        self._stopping.set()
        self._bell.set()
        deadline = time.monotonic() + seconds
        if self._claiming.acquire(timeout=seconds):
            self._claiming.release()  # a claim that was under way is a leg by now
        while self._over < self._claims and time.monotonic() < deadline:
            running.stop_all(SHUTDOWN)  # again each time: a leg that was just claimed registers itself late
            time.sleep(_DRAIN_STEP_SECONDS)
        self._pool.end()
        self._presence.leave(_LEAVE_SECONDS)
        return self._claims - self._over

    def _claim_loop(self) -> None:
        try:
            try:
                self._claim_until_stopped()
            finally:
                connections.close_all()
            while self._over < self._claims and not self._stopping.is_set():
                self._bell.wait(_FAULT_SECONDS)
                self._bell.clear()
        except BaseException:
            logger.exception("the claim loop is lost", extra={"event": "worker_lost"})
            self._end(False)
        else:
            self._end(True)

    def _claim_until_stopped(self) -> None:
        pause = POLL_SECONDS
        while not self._stopping.is_set():
            if not self._free.acquire(timeout=POLL_LIMIT_SECONDS):
                continue
            if self._retires(self._claims):
                self._free.release()
                return
            self._bell.clear()  # before the look, so that a ring during it is not lost
            is_idle = self._over == self._claims  # before it too: what a leg queues at its end is seen
            try:
                claimed = self._claim_one()
            except Exception:
                self._free.release()
                if process_is_ending():
                    return
                logger.exception("the queue cannot be read", extra={"event": "claim_failed"})
                _close_broken()
                self._stopping.wait(_FAULT_SECONDS)
                continue
            if claimed:
                pause = POLL_SECONDS
                continue
            self._free.release()
            if self._once and is_idle:
                return
            look_after_connections()  # one of a pool is for those who work
            rang = self._bell.wait(pause)
            pause = POLL_SECONDS if rang else min(pause * 1.5, POLL_LIMIT_SECONDS)

    def _claim_one(self) -> bool:
        with self._claiming:
            if self._stopping.is_set():
                return False
            claim = self._queue.take()
            if claim is None:
                return False
            try:
                self._pool.submit(lambda: self._run(claim))
            except Exception:  # no thread could be started
                get_store().release(claim.ref, claim.leg, unstarted_seconds=GIVEN_BACK_SECONDS)
                raise
            self._claims += 1
            return True

    def _run(self, claim: Claim) -> None:
        slot = _Slot(self)
        try:
            run_leg(get_store(), claim, abandon=slot.abandon)
        except Exception:
            if not process_is_ending():
                logger.exception("a leg could not be settled", extra={"event": "leg_failed", "ref": str(claim.ref)})
        finally:
            slot.end()

    def _give_back(self, deaf: int = 0) -> None:
        """A slot is free again; ``deaf``: its handler goes on nevertheless, so that others need another thread."""
        self._pool.replace(deaf)
        with self._counting:
            self._over += 1
            self._deaf += deaf
        self._free.release()
        self._bell.set()

    def _note_end_of_deaf(self) -> None:
        self._pool.replace(-1)
        with self._counting:
            self._deaf -= 1


def start_sweeping(stopping: threading.Event) -> None:
    """Sweep every ``SWEEP_SECONDS`` on a daemon thread, until told otherwise; not at all where that is 0."""
    if conf.get_settings().SWEEP_SECONDS:
        threading.Thread(target=_sweep_until, args=(stopping,), name="mcp-tasks-sweep", daemon=True).start()


def _sweep_until(stopping: threading.Event) -> None:
    while not stopping.is_set():
        sweep(get_store())
        connections.close_all()
        # Spread, so that the processes of a site do not all sweep in the same moment.
        stopping.wait(conf.get_settings().SWEEP_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311


class _Slot:
    """What a leg occupies: a place among the legs that run at once, and the thread that has it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._is_abandoned = self._has_ended = False

    def abandon(self) -> None:
        """The handler does not stop: its place is free for others, who get another thread."""
        with self._lock:
            if self._has_ended or self._is_abandoned:
                return
            self._is_abandoned = True
        self._worker._give_back(deaf=1)

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
        if self._is_abandoned:
            self._worker._note_end_of_deaf()
        else:
            self._worker._give_back()


def _close_broken() -> None:
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
