"""Cancel many tasks for an operator: one by one, oldest first, so that no lock outlives one of them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from ..querysets import TaskQuerySet, unfinished
from ..store import get_store
from . import audit
from .acting import CODES
from .instants import TICK

#: Of one request of a browser or a client; a command has no such bounds.
MOST_AT_ONCE, MOST_SECONDS = 500, 20.0


@dataclass(slots=True)
class BulkReport:
    """What became of the tasks that were to be cancelled; ``refused``: those that the policy or the state kept."""

    cancelled: list[UUID] = field(default_factory=list)
    finished_meanwhile: int = 0
    refused: int = 0
    more: bool = False


def cancellable(found: TaskQuerySet, as_of: datetime) -> TaskQuerySet:
    """Those of the found tasks that can be cancelled, oldest first; none that was created after ``as_of``."""
    # Less than the next instant: Django writes a whole second without its zeros, and SQLite compares texts.
    then = found.filter(unfinished(), created_at__lt=as_of + TICK)
    return then.fresh().order_by("created_at", "ref")


def cancel_all(
    refs: Iterable[UUID],
    *,
    actor: str,
    reason: str,
    user: Any = None,
    share_reason: bool = True,
    most_seconds: float = MOST_SECONDS,
) -> BulkReport:
    """
    Cancel these tasks, each in a transaction of its own; ``more`` when time was up before the last.

    What others did meanwhile is counted, never an error.
    """
    report, until = BulkReport(), time.monotonic() + most_seconds
    for ref in refs:
        if time.monotonic() >= until:
            report.more = True
            break
        outcome = get_store().cancel(ref, actor=actor, reason=reason, share_reason=share_reason)
        code = CODES.get(outcome.why, outcome.why)
        audit.note(ref, action="bulk_cancel", actor=actor, code=code, user=user, reason=reason)
        if outcome:
            report.cancelled.append(ref)
        elif outcome.why == "not_applicable":
            report.refused += 1
        else:
            report.finished_meanwhile += 1
    return report
