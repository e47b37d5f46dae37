"""
Callers who name tasks of others, in the timelines of those tasks: so that an operator can tell an attack from a typo.

Written after the answer, on a thread of its own: a caller must not learn from the time it takes that the task exists.
"""

import threading
import time
from typing import Any
from uuid import UUID

from ..execution.threads import Busy, DaemonPool
from ..store import get_store

#: One entry for each task in so many seconds; the next says how many there were meanwhile.
EVERY_SECONDS = 60.0
#: Tasks whose refusals are counted at once; of more the oldest are forgotten, and begin anew.
_COUNTED = 1000

_pool = DaemonPool("mcp-tasks-refusals", 1, backlog=100, persistent=False)
_lock = threading.Lock()
_written: dict[UUID, tuple[float, int]] = {}


def note(ref: UUID, **_: Any) -> None:
    """A receiver of ``access_refused``: returns at once."""
    now = time.monotonic()
    with _lock:
        at, unwritten = _written.pop(ref, (float("-inf"), 0))
        is_due = now >= at + EVERY_SECONDS
        _written[ref] = (now, 0) if is_due else (at, unwritten + 1)
        if len(_written) > _COUNTED:
            del _written[next(iter(_written))]
    if is_due:
        try:
            _pool.submit(lambda: get_store().note_refusal(ref, unwritten + 1))
        except Busy:
            pass  # more of them than can be written; the log has every one


def settle(wait_seconds: float) -> None:
    """Write what waits, and begin anew; for tests, and for a process that ends."""
    _pool.end(wait_seconds)
    with _lock:
        _written.clear()
