"""The states that operators see: a word for each, when a row is in it, and how such rows are found by an index."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from .. import conf
from ..dbtime import DbNow, after
from ..lifecycle import DONE, EXPIRED, PARKED, QUEUED, RUNNING
from ..models import Task
from ..protocol.tasks import CANCELLED, COMPLETED, FAILED, INPUT_REQUIRED, WORKING
from ..querysets import few_in_phase, fresh, unfinished


@dataclass(frozen=True, slots=True)
class State:
    """``name`` stands in addresses and class names; ``glyph`` and ``word`` are shown: colour says nothing alone."""

    name: str
    glyph: str
    word: str | Promise


QUEUED_STATE = State("queued", "…", _("Queued"))
RUNNING_STATE = State("running", "▶", _("Running"))
NEEDS_INPUT = State("needs-input", "?", _("Needs input"))
STALLED = State("stalled", "!", _("Stalled"))
COMPLETED_STATE = State("completed", "✓", _("Completed"))
TOOL_ERROR_STATE = State("tool-error", "✓", _("Tool error"))
FAILED_STATE = State("failed", "✕", _("Failed"))
CANCELLED_STATE = State("cancelled", "⊘", _("Cancelled"))
EXPIRED_STATE = State("expired", "⌛", _("Expired"))


def state_of(task: Any, now: datetime) -> State:
    """The state of a row, by the database's clock ``now``. Past its ttl it is expired, swept or not."""
    if task.phase == EXPIRED or (task.expires_at is not None and task.expires_at <= now):
        return EXPIRED_STATE
    if task.phase == QUEUED:
        return QUEUED_STATE
    if task.phase == RUNNING and task.due_at is not None and task.due_at <= now:
        return STALLED
    if task.status == INPUT_REQUIRED:
        return NEEDS_INPUT
    if task.phase == RUNNING:
        return RUNNING_STATE
    if task.status == COMPLETED:
        return TOOL_ERROR_STATE if task.tool_error else COMPLETED_STATE
    return FAILED_STATE if task.status == FAILED else CANCELLED_STATE


def is_still_stopping(task: Any, now: datetime) -> bool:
    """Cancelled, and the worker has not let go yet; after one lease it can hold nothing any more."""
    lease = timedelta(seconds=conf.get_settings().LEASE_SECONDS)
    return bool(
        task.phase == DONE
        and task.status == CANCELLED
        and task.lease_holder
        and task.finished_at is not None
        and task.finished_at > now - lease
    )


def is_handed_over(task: Any) -> bool:
    """The project's own job does the work: there is no lease."""
    return bool(task.phase == RUNNING and task.due_at is None)


def _stopping() -> Q:
    lease = conf.get_settings().LEASE_SECONDS
    # Found by when they ended, whatever the list is sorted by: few ended within a lease, and many were cancelled.
    lately = Task._base_manager.filter(finished_at__gt=after(-lease))
    return Q(pk__in=lately.values("pk"), status=CANCELLED, phase=DONE, lease_holder__isnull=False)


def _running() -> Q:
    has_lease = Q(due_at=None) | Q(due_at__gt=DbNow())
    return Q(phase=RUNNING, status=WORKING) & has_lease & fresh()


def _finished(status: str) -> Callable[[], Q]:
    # A tool's error completes a task, so it is false here: said so that the index on both is used.
    return lambda: Q(status=status, tool_error__in=[False], phase=DONE) & fresh()


#: Filters of lists by name, in the order they are offered: word, and the rows. Only equalities and IN, which is what
#: databases can use an index for; a truth value among them, since the bare column is no comparison to SQLite. What is
#: past its ttl is in none of them until the janitor, some seconds later, has made it expired.
FILTERS: dict[str, tuple[str | Promise, Callable[[], Q]]] = {
    "live": (_("Live"), lambda: unfinished() & fresh()),
    "queued": (_("Queued"), lambda: Q(phase=QUEUED) & fresh()),
    "running": (_("Running"), _running),
    "needs-input": (_("Needs input"), lambda: few_in_phase(RUNNING, PARKED) & Q(status=INPUT_REQUIRED) & fresh()),
    "stalled": (_("Stalled"), lambda: Q(phase=RUNNING, due_at__lte=DbNow()) & fresh()),
    "stopping": (_("Cancelled, worker still stopping"), _stopping),
    "completed": (_("Completed"), _finished(COMPLETED)),
    "tool-error": (_("Tool error"), lambda: Q(status=COMPLETED, phase=DONE, tool_error__in=[True]) & fresh()),
    "failed": (_("Failed"), _finished(FAILED)),
    "cancelled": (_("Cancelled"), _finished(CANCELLED)),
    "expired": (_("Expired"), lambda: Q(phase=EXPIRED)),
}
