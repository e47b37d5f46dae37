"""
Legs that run too long, and handlers that do not stop: told first, and after a grace no longer waited for.

No thread can be ended from outside. A handler that ignores its token keeps its thread and loses its slot. Where the
task has failed or was settled by somebody else, whatever the handler still writes is fenced out; where only the lease
is in doubt, its result counts as long as nobody else has the task.
"""

import logging

from ..protocol.errors import McpError, internal_error
from ..store.base import TaskStore
from ..tools.cancellation import LEASE_LOST, SHUTDOWN, TIMED_OUT
from .running import RunningLeg

logger = logging.getLogger("mcp_tasks.runner")

#: How long a handler may go on after it was told to stop.
GRACE_SECONDS = 10.0
_RETRY_SECONDS = 1.0
_NEVER = float("inf")


def timed_out(seconds: float) -> McpError:
    """What a task fails with whose leg took longer than its tool allows."""
    return internal_error(f"The task ran longer than the {seconds:g} seconds that its tool is given")


def next_look(leg: RunningLeg) -> float:
    """The monotonic instant at which something is to be done about this leg; infinity for never."""
    return _NEVER if leg.has_returned else min(leg.timeout_at, leg.told_at + GRACE_SECONDS)


def look(store: TaskStore, leg: RunningLeg, now: float) -> bool:
    """
    Tell a leg whose time is up to stop, and give up one that was told long ago; True when nobody need watch it now.

    One that only lost its lease may get it back, as long as nobody else has the task. Raises what the store raises.
    """
    if leg.has_returned:
        return False
    if now >= leg.timeout_at:
        leg.timeout_at, leg.told_at, leg.is_overdue = _NEVER, min(leg.told_at, now), True
        leg.token.raise_(TIMED_OUT)
    if leg.told_at == _NEVER and leg.token.is_raised and leg.token.reason != SHUTDOWN and leg.abandon is not None:
        leg.told_at = now
    if now < leg.told_at + GRACE_SECONDS:
        return False
    _give_up(store, leg, now)
    return leg.is_overdue or leg.token.reason != LEASE_LOST


def _give_up(store: TaskStore, leg: RunningLeg, now: float) -> None:
    leg.told_at = now + _RETRY_SECONDS - GRACE_SECONDS  # in case the store is away
    if leg.is_overdue and leg.timeout_seconds is not None and not leg.has_returned:
        store.fail_task(leg.ref, timed_out(leg.timeout_seconds), leg=leg.leg)
    leg.told_at = _NEVER
    abandon, leg.abandon = leg.abandon, None
    if abandon is not None:
        logger.error(
            "a handler ignores its token and keeps its thread; its slot is free again",
            extra={"event": "leg_abandoned", "ref": str(leg.ref), "leg": leg.leg, "why": leg.token.reason},
        )
        abandon()
