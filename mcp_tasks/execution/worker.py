"""Slots, claim loop and sweep of one process; used by the embedded runner, and by anything else that runs legs."""

import logging
import os
import random
import socket
import threading
import time

from django.db import connections

from .. import conf
from ..store import get_store
from ..store.sweep import sweep
from ..store.types import Claim
from ..tools.cancellation import SHUTDOWN
from . import running
from .leg import run_leg
from .threads import DaemonPool, process_is_ending

logger = logging.getLogger("mcp_tasks.runner")

#: How often the table is looked at when nothing rings.
POLL_SECONDS, POLL_LIMIT_SECONDS = 1.0, 5.0
_FAULT_SECONDS = 2.0
_DRAIN_STEP_SECONDS = 0.05


class Worker:
    """
    Claims queued tasks into ``slots`` threads and sweeps every ``SWEEP_SECONDS``.

    The table is the queue: the bell only shortens the wait, and a lost one costs at most five seconds.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._free = threading.Semaphore(slots)
        self._pool = DaemonPool("mcp-tasks-slot", slots, backlog=slots, persistent=False)
        self._bell = threading.Event()
        self._stopping = threading.Event()
        self._claiming = threading.Lock()
        self._holder = f"{socket.gethostname()}:{os.getpid()}"

    def start(self) -> None:
        """Begin to claim and to sweep, on daemon threads."""
        threading.Thread(target=self._claim_loop, name="mcp-tasks-claim", daemon=True).start()
        if conf.get_settings().SWEEP_SECONDS:
            threading.Thread(target=self._sweep_loop, name="mcp-tasks-sweep", daemon=True).start()

    def ring(self) -> None:
        """A task is queued: look now."""
        self._bell.set()

    def drain(self, seconds: float) -> None:
        """
        Claim nothing more, raise every token, wait for the legs, and leave the rest to their leases.

        A leg whose handler stops and that may be run again gives itself back; another process takes it at once.
        """
        self._stopping.set()
        self._bell.set()
        deadline = time.monotonic() + seconds
        if self._claiming.acquire(timeout=seconds):
            self._claiming.release()  # a claim that was under way is a leg by now
        free = 0
        while free < self._slots and time.monotonic() < deadline:
            running.stop_all(SHUTDOWN)  # again each time: a leg that was just claimed registers itself late
            free += self._free.acquire(timeout=_DRAIN_STEP_SECONDS)
        self._pool.end()

    def _claim_loop(self) -> None:
        try:
            self._claim_until_stopped()
        finally:
            connections.close_all()

    def _claim_until_stopped(self) -> None:
        pause = POLL_SECONDS
        while not self._stopping.is_set():
            if not self._free.acquire(timeout=POLL_LIMIT_SECONDS):
                continue
            self._bell.clear()  # before the look, so that a ring during it is not lost
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
            rang = self._bell.wait(pause)
            pause = POLL_SECONDS if rang else min(pause * 1.5, POLL_LIMIT_SECONDS)

    def _claim_one(self) -> bool:
        with self._claiming:
            if self._stopping.is_set():
                return False
            claim = get_store().claim(holder=self._holder)
            if claim is None:
                return False
            self._pool.submit(lambda: self._run(claim))
            return True

    def _run(self, claim: Claim) -> None:
        try:
            run_leg(get_store(), claim)
        except Exception:
            if not process_is_ending():
                logger.exception("a leg could not be settled", extra={"event": "leg_failed", "ref": str(claim.ref)})
        finally:
            self._free.release()

    def _sweep_loop(self) -> None:
        while not self._stopping.is_set():
            sweep(get_store())
            connections.close_all()
            # Spread, so that the processes of a site do not all sweep in the same moment.
            self._stopping.wait(conf.get_settings().SWEEP_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311


def _close_broken() -> None:
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
