"""Run queued legs on the test's own thread."""

from uuid import UUID

from ..execution import running
from ..execution.leg import run_leg
from ..execution.queue import running_limits
from ..execution.running import Progress, RunningLeg
from ..runners.base import Runner
from ..store import get_store
from ..store.base import TaskStore


class IdleRunner(Runner):
    """A runner that starts nothing: a test runs legs itself, when it wants to. ``rung`` remembers the doorbell."""

    def __init__(self) -> None:
        self.rung: list[UUID] = []

    def enqueue(self, ref: UUID) -> None:
        self.rung.append(ref)


class _SameThread:
    """Stands for the heartbeat: progress is written on this thread, and so within a test's transaction."""

    def watch(self, store: TaskStore, leg: RunningLeg) -> None:
        running.add(leg)

    def forget(self, leg: RunningLeg) -> None:
        running.remove(leg)

    def report(self, leg: RunningLeg, message: str | None, done: float | None, total: float | None) -> None:
        leg.progress = Progress(message, done, total)  # an async handler is on an event loop, which may not query

    def flush(self, store: TaskStore, leg: RunningLeg) -> None:
        if leg.progress is not None:
            store.set_status(
                leg.ref, leg.progress.message, done=leg.progress.done, total=leg.progress.total, leg=leg.leg
            )


def run_until_idle(store: TaskStore | None = None, *, limit: int = 100) -> int:
    """
    Claim and run legs until none is queued; returns how many ran.

    Works inside of a test's transaction too. AssertionError after ``limit`` legs: something queues itself for ever.
    """
    used = store or get_store()
    for count in range(limit):
        claim = used.claim(limits=running_limits(), holder="test")
        if claim is None:
            return count
        run_leg(used, claim, _SameThread())
    raise AssertionError(f"still not idle after {limit} legs")
