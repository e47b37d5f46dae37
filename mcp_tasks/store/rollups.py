"""
Hourly counts: how many tasks of a tool ended how, and how long they ran; kept when the tasks are long gone.

An hour is counted once, a few minutes after it is over, from the rows that finished in it. What is removed before that
is counted as it goes (``early``), and the hour takes it in. No transition writes here.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, CharField, Count, F, Max, Q, Sum, Value, When

from ..dbtime import current
from ..lifecycle import DURATION_BOUNDS_SECONDS, EXPIRED, TOOL_ERROR
from ..models import OwnerGate, TaskStat
from ..protocol.codec import digest
from ..protocol.tasks import CANCELLED, COMPLETED, FAILED
from .locking import database, rows, transact

#: An hour is counted so long after its end: by then every transaction that finished in it is committed.
SETTLE_SECONDS = 300
#: Counts are kept for so long.
KEPT_DAYS = 400
#: At most so many hours in one pass; the next goes on.
HOURS_PER_PASS = 200

_HOUR = timedelta(hours=1)
#: The row that says that an hour was counted, also where nothing finished in it.
_MARK: dict[str, Any] = {"tool": "", "outcome": "", "early": False}
_GATE = digest(["rollup"])
BUCKETS = tuple(f"b{index}" for index in range(len(DURATION_BOUNDS_SECONDS) + 1))
_SUMS = ("count", "run_ms_sum", "queue_ms_sum", *BUCKETS)


def roll_up() -> int:
    """Count the hours that are over and not counted yet, oldest first; returns how many."""
    counted = 0
    while counted < HOURS_PER_PASS and hours_due(database()) and transact(_count_next_hour):
        counted += 1
    return counted


def hours_due(using: str) -> int:
    """How many hours are over and not counted yet."""
    hour = _counted_until(using) or _first_hour(using)
    over = current(using) - timedelta(seconds=SETTLE_SECONDS)
    return 0 if hour is None else max(0, (_hour_of(over) - hour) // _HOUR)


def count_early(using: str, refs: list[UUID]) -> None:
    """Count tasks that are about to be removed, where their hour was not counted yet; in the removing transaction."""
    counted_until = _counted_until(using)
    doomed = rows(using).filter(pk__in=refs, finished_at__isnull=False)
    if counted_until is not None:
        doomed = doomed.filter(finished_at__gte=counted_until)
    hours = {_hour_of(at) for at in doomed.values_list("finished_at", flat=True)}
    for hour in sorted(hours):
        _insert(
            using, hour, list(counting(doomed.filter(finished_at__gte=hour, finished_at__lt=hour + _HOUR))), early=True
        )


def forget() -> int:
    """Remove counts that are older than anybody looks at; returns how many rows."""

    def operation(using: str) -> int:
        limit = current(using) - timedelta(days=KEPT_DAYS)
        return int(TaskStat.objects.using(using).filter(hour__lt=limit)._raw_delete(using))

    return transact(operation)


def _count_next_hour(using: str) -> bool:
    if not OwnerGate.objects.using(using).filter(pk=_GATE).update(n=F("n") + 1):
        OwnerGate.objects.using(using).bulk_create([OwnerGate(key=_GATE)], ignore_conflicts=True)
    hour = _counted_until(using) or _first_hour(using)
    if hour is None or hour + _HOUR + timedelta(seconds=SETTLE_SECONDS) > current(using):
        return False
    finished = rows(using).filter(finished_at__gte=hour, finished_at__lt=hour + _HOUR)
    early = TaskStat.objects.using(using).filter(hour=hour, early=True)
    counts = _merged(list(counting(finished)), list(early.values("tool", "outcome", *_SUMS)))
    early._raw_delete(using)
    _insert(using, hour, counts, early=False)
    TaskStat.objects.using(using).create(hour=hour, **_MARK)
    return True


def _counted_until(using: str) -> datetime | None:
    last: datetime | None = TaskStat.objects.using(using).filter(**_MARK).aggregate(last=Max("hour"))["last"]
    return None if last is None else last + _HOUR


def _first_hour(using: str) -> datetime | None:
    finished = (
        rows(using).filter(finished_at__isnull=False).order_by("finished_at").values_list("finished_at", flat=True)
    )
    early = TaskStat.objects.using(using).filter(early=True).order_by("hour").values_list("hour", flat=True)
    instants = [*finished[:1], *early[:1]]
    return _hour_of(min(instants)) if instants else None


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def counting(finished: Any) -> Any:
    """A query with one row of counts for each tool and outcome of these rows."""
    outcome = Case(
        When(status=COMPLETED, tool_error=True, then=Value(TOOL_ERROR)),
        When(status__in=(COMPLETED, FAILED, CANCELLED), then=F("status")),
        default=Value(EXPIRED),  # its ttl was over before it had an outcome
        output_field=CharField(),
    )
    bounds = [0, *(int(seconds * 1000) for seconds in DURATION_BOUNDS_SECONDS)]
    buckets = {}
    for index, lower in enumerate(bounds):
        within = Q(run_ms__gt=lower) if index else Q()
        if index + 1 < len(bounds):
            within &= Q(run_ms__lte=bounds[index + 1])
        buckets[f"b{index}"] = Count("ref", filter=within)
    sums = {"count": Count("ref"), "run_ms_sum": Sum("run_ms"), "queue_ms_sum": Sum("queue_ms")}
    return finished.annotate(outcome=outcome).order_by().values("tool", "outcome").annotate(**sums, **buckets)


def _merged(*groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (row for group in groups for row in group):
        known = merged.setdefault((row["tool"], row["outcome"]), {**row, **dict.fromkeys(_SUMS, 0)})
        for name in _SUMS:
            known[name] += row[name]
    return list(merged.values())


def _insert(using: str, hour: datetime, counts: list[dict[str, Any]], *, early: bool) -> None:
    TaskStat.objects.using(using).bulk_create(TaskStat(hour=hour, early=early, **row) for row in counts)
