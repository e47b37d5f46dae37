"""Run queued legs on the test's own thread."""

from ..execution.leg import run_leg
from ..store import get_store
from ..store.base import TaskStore


def run_until_idle(store: TaskStore | None = None, *, limit: int = 100) -> int:
    """
    Claim and run legs until none is queued; returns how many ran.

    Works inside of a test's transaction too. AssertionError after ``limit`` legs: something queues itself for ever.
    """
    used = store or get_store()
    for count in range(limit):
        claim = used.claim(holder="test")
        if claim is None:
            return count
        run_leg(used, claim)
    raise AssertionError(f"still not idle after {limit} legs")
