"""
The numbers of overview, list, REST, commands and metrics, each from an index and never from all rows.

What is unfinished is counted live; what has ended is read from the hourly counts, and for the hours that are not
counted yet from the rows that finished in them.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, IntegerField, Max, Min, Q, Sum, Value

from ..compat import Unindexed
from ..dbtime import DbNow, after
from ..lifecycle import DURATION_BOUNDS_SECONDS, OUTCOMES, PARKED, QUEUED, RUNNING, TOOL_ERROR
from ..models import TaskStat
from ..protocol.tasks import FAILED, INPUT_REQUIRED
from ..querysets import TaskQuerySet, unfinished
from ..store.locking import database, rows
from ..store.rollups import BUCKETS, counting

HOUR = timedelta(hours=1)
SOON_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """
    Unfinished tasks by state, and since when the oldest waits (None when nothing does).

    What is past its ttl is none of them, swept or not: nobody can run, answer or see it any more.
    """

    queued: int = 0
    running: int = 0
    needs_input: int = 0
    stalled: int = 0
    expire_soon: int = 0
    oldest_queued_at: datetime | None = None
    oldest_input_at: datetime | None = None


def live(found: TaskQuerySet | None = None) -> Live:
    """One aggregate over the unfinished rows."""
    waits = Q(phase__in=(RUNNING, PARKED), status=INPUT_REQUIRED)
    stalled = Q(phase=RUNNING, due_at__lte=DbNow())
    source = rows(database()) if found is None else found
    counted: dict[str, Any] = (
        source.filter(unfinished())
        .fresh()
        .aggregate(
            queued=Count("pk", filter=Q(phase=QUEUED)),
            running=Count("pk", filter=Q(phase=RUNNING) & ~Q(status=INPUT_REQUIRED) & ~stalled),
            needs_input=Count("pk", filter=waits & ~stalled),
            stalled=Count("pk", filter=stalled),
            expire_soon=Count("pk", filter=Q(expires_at__lte=after(SOON_SECONDS))),
            oldest_queued_at=Min("phase_at", filter=Q(phase=QUEUED)),
            oldest_input_at=Min("phase_at", filter=Q(phase=PARKED)),
        )
    )
    return Live(**counted)


def busiest_owners(found: TaskQuerySet, most: int) -> list[Any]:
    """
    The owners with most unfinished tasks: ``owner`` (its key), ``label``, ``live``.

    Grouped over the unfinished rows alone: by the index of owners SQLite would read all that have ever been.
    """
    grouping = found.filter(unfinished()).fresh().annotate(owner=Unindexed(F("owner_key"))).order_by()
    counted = grouping.values("owner").annotate(live=Count("*"), label=Max("owner_label"))
    return list(counted.order_by("-live", "label")[:most])


def longest_queued(found: TaskQuerySet) -> TaskQuerySet:
    """By the time in the queue and not by age: one that was queued again has just come."""
    return found.filter(phase=QUEUED).fresh().order_by("phase_at", "ref")


def longest_stalled(found: TaskQuerySet) -> TaskQuerySet:
    """Those whose lease lapsed, the longest first."""
    return found.filter(phase=RUNNING, due_at__lte=DbNow()).fresh().order_by("due_at")


@dataclass(slots=True)
class Ended:
    """What ended in some span: how many by outcome, and how long they ran, in buckets."""

    by_outcome: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    buckets: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))
    run_ms: int = 0

    def add(self, row: dict[str, Any]) -> None:
        """One row of counts."""
        self.by_outcome[row["outcome"]] = self.by_outcome.get(row["outcome"], 0) + row["count"]
        self.run_ms += row["run_ms_sum"] or 0
        for index, name in enumerate(BUCKETS):
            self.buckets[index] += row[name]

    @property
    def count(self) -> int:
        return sum(self.by_outcome.values())

    @property
    def failed_share(self) -> float | None:
        """The share that failed or ended with a tool's error; None where nothing ended."""
        return (self.by_outcome[FAILED] + self.by_outcome[TOOL_ERROR]) / self.count if self.count else None

    def percentile_seconds(self, share: float) -> float | None:
        """About how long that share of them ran at most, from inside its bucket; None where nothing ended."""
        return percentile_seconds(self.buckets, share)


def percentile_seconds(buckets: Sequence[int], share: float) -> float | None:
    """By interpolation; the open last bucket counts as its lower bound."""
    wanted, below = share * sum(buckets), 0.0
    if not wanted:
        return None
    bounds = (0.0, *DURATION_BOUNDS_SECONDS)
    for index, number in enumerate(buckets):
        if number and below + number >= wanted:
            lower = bounds[index]
            upper = bounds[index + 1] if index + 1 < len(bounds) else lower
            return lower + (upper - lower) * (wanted - below) / number
        below += number
    return bounds[-1]


@dataclass(frozen=True, slots=True)
class History:
    """What ended in the last hours: by hour from the oldest to the running one, by tool, and together."""

    hours: dict[datetime, Ended]
    tools: dict[str, Ended]
    total: Ended


def history(now: datetime, hours: int = 24) -> History:
    """Two statements: the hours that were counted, and the rows of those that were not yet."""
    running = now.replace(minute=0, second=0, microsecond=0)
    first = running - (hours - 1) * HOUR
    found = History({first + index * HOUR: Ended() for index in range(hours)}, defaultdict(Ended), Ended())
    stats = TaskStat.objects.using(database()).filter(hour__gte=first, hour__lte=running)
    marked = first
    for row in stats.values("hour", "tool", "outcome", "count", "run_ms_sum", *BUCKETS):
        if row["tool"]:
            _add(found, row["hour"], row)
        else:
            marked = max(marked, row["hour"] + HOUR)
    for row in _uncounted(marked, running + HOUR):
        _add(found, row["hour"], row)
    return found


def _uncounted(first: datetime, end: datetime) -> Iterable[dict[str, Any]]:
    """
    The hours from the last that was counted on, in one statement: two as a rule, all after a pause of the janitor.

    Each is a range with both ends: an open one misleads SQLite, and rounding each row to its hour costs a call of
    Python there.
    """
    parts = []
    for index in range((end - first) // HOUR):
        hour = first + index * HOUR
        within = rows(database()).filter(finished_at__gte=hour, finished_at__lt=hour + HOUR)
        parts.append(counting(within).annotate(index=Value(index, output_field=IntegerField())))
    if parts:
        for row in parts[0].union(*parts[1:], all=True) if len(parts) > 1 else parts[0]:
            yield {**row, "hour": first + row["index"] * HOUR}


def _add(found: History, hour: datetime, row: dict[str, Any]) -> None:
    found.hours.setdefault(hour, Ended()).add(row)
    found.tools[row["tool"]].add(row)
    found.total.add(row)


def slow_after_seconds(tool: str, now: datetime) -> float | None:
    """The time within which 95 % of a tool's runs of the last day ended; None where there were none."""
    day = TaskStat.objects.using(database()).filter(hour__gte=now - 24 * HOUR, hour__lte=now, tool=tool)
    sums = day.aggregate(**{name: Sum(name) for name in BUCKETS})
    return percentile_seconds([sums[name] or 0 for name in BUCKETS], 0.95)
