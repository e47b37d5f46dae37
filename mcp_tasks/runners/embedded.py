"""The default runner: legs run on daemon threads of the web process. Nothing to install or start."""

import os
import threading
from uuid import UUID

from ..execution.worker import Worker
from .base import Runner


class EmbeddedRunner(Runner):
    """
    Runs up to ``SLOTS`` legs at once in each process that serves.

    Started by the first request, or by ``asgi.mount``; never by a management command, whose process would end
    under its legs.
    """

    def __init__(self, *, SLOTS: int = 4) -> None:  # noqa: N803 - spelled as in the settings
        if isinstance(SLOTS, bool) or not isinstance(SLOTS, int) or SLOTS < 1:
            raise ValueError("SLOTS must be a positive integer")
        self._slots = SLOTS
        self._lock = threading.Lock()
        self._pid = 0
        self._worker: Worker | None = None

    def enqueue(self, ref: UUID) -> None:
        if self._worker is not None and self._pid == os.getpid():
            self._worker.ring()

    def ensure_started(self) -> None:
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid != os.getpid():
                worker = Worker(self._slots)
                worker.start()
                self._worker, self._pid = worker, os.getpid()

    def drain(self, seconds: float) -> None:
        if self._worker is not None and self._pid == os.getpid():
            self._worker.drain(seconds)
