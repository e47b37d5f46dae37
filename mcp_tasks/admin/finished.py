"""What has ended lately, for the overview: the same numbers as a picture, as a table, and by tool."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..lifecycle import EXPIRED, TOOL_ERROR
from ..operators.numbers import HOUR, Ended, History, history
from ..operators.why import span
from ..protocol.tasks import CANCELLED, COMPLETED, FAILED
from .cells import grouped
from .charts import Chart, Column, chart

MOST_TOOLS = 20
#: The longer range is told in parts of a day, of so many hours.
SLICES, SLICE_HOURS = 28, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """How far back the overview looks; ``name`` stands in its address."""

    name: str
    words: str | Promise
    title: str | Promise
    tools: str | Promise
    card: str | Promise

    @property
    def is_day(self) -> bool:
        return self.name == "24h"

    def hours(self, now: datetime) -> int:
        """So many that the first column is a whole one; the last is as far as it has come."""
        if self.is_day:
            return 24
        running = now.replace(minute=0, second=0, microsecond=0)
        here = timezone.localtime(running)
        # By the clock on the wall, which may have been changed meanwhile.
        back = timedelta(hours=(SLICES - 1) * SLICE_HOURS + here.hour % SLICE_HOURS)
        first = (here.replace(tzinfo=None) - back).replace(tzinfo=here.tzinfo)
        return (running - first) // HOUR + 1

    def column_of(self, hour: datetime) -> Any:
        """What the hours of one column have in common."""
        here = timezone.localtime(hour)
        return hour if self.is_day else (here.date(), here.hour // SLICE_HOURS)


RANGES = {
    found.name: found
    for found in (
        Range(
            name="24h",
            words=gettext_lazy("Last 24 hours"),
            title=gettext_lazy("Finished per hour, last 24 hours"),
            tools=gettext_lazy("Tools, last 24 hours"),
            card=gettext_lazy("Finished in 24 h"),
        ),
        Range(
            name="7d",
            words=gettext_lazy("Last 7 days"),
            title=gettext_lazy("Finished in six hours each, last 7 days"),
            tools=gettext_lazy("Tools, last 7 days"),
            card=gettext_lazy("Finished in 7 d"),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Part:
    """One column in numbers, the same in the picture and in the table. ``mark`` stands under it in the picture."""

    label: str
    mark: str
    completed: int
    tool_errors: int
    failed: int
    cancelled: int
    expired: int
    is_running: bool

    @property
    def count(self) -> int:
        return self.completed + self.tool_errors + self.failed + self.cancelled + self.expired

    @property
    def words(self) -> str:
        """What a screen reader says of the bar."""
        return _("{hour}: {completed} completed, {failed} failed, {cancelled} cancelled or expired").format(
            hour=self.label,
            completed=grouped(self.completed),
            failed=grouped(self.tool_errors + self.failed),
            cancelled=grouped(self.cancelled + self.expired),
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """What ended in a range, in all its forms."""

    range: Range
    found: History
    parts: Sequence[Part]

    @property
    def chart(self) -> Chart:
        """The picture."""
        columns = []
        for part in self.parts:
            pile = (
                ("completed", part.completed),
                ("failed", part.tool_errors + part.failed),
                ("cancelled", part.cancelled + part.expired),
            )
            columns.append(Column(part.mark, pile, part.words, is_open=part.is_running))
        return chart(columns, label_every=3 if self.range.is_day else 1)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Those that ended most; percentiles come from buckets, so they are about right and no more."""
        most = sorted(self.found.tools.items(), key=lambda item: (-item[1].count, item[0]))[:MOST_TOOLS]
        return [
            {
                "name": name,
                "count": grouped(ended.count),
                "failed": "—" if ended.failed_share is None else f"{100 * ended.failed_share:.1f} %",
                "is_bad": (ended.failed_share or 0) > 0.2,
                "p50": _about(ended, 0.5),
                "p95": _about(ended, 0.95),
            }
            for name, ended in most
        ]


def finished(now: datetime, wanted: Range) -> Finished:
    """In two statements, as far back as they reach."""
    found = history(now, wanted.hours(now))
    columns = groupby(sorted(found.hours.items()), key=lambda item: wanted.column_of(item[0]))
    hours = [list(column) for _key, column in columns]
    return Finished(wanted, found, [_part(wanted, column, is_running=column is hours[-1]) for column in hours])


def _part(wanted: Range, column: list[tuple[datetime, Ended]], *, is_running: bool) -> Part:
    begins = timezone.localtime(column[0][0])
    clock = f"{begins:%H:%M}"
    day = date_format(begins, "j M")
    sums = {outcome: sum(ended.by_outcome[outcome] for _hour, ended in column) for outcome in column[0][1].by_outcome}
    return Part(
        label=clock if wanted.is_day else f"{day} {clock}",
        mark=clock if wanted.is_day else (day if begins.hour < SLICE_HOURS else ""),
        completed=sums[COMPLETED],
        tool_errors=sums[TOOL_ERROR],
        failed=sums[FAILED],
        cancelled=sums[CANCELLED],
        expired=sums[EXPIRED],
        is_running=is_running,
    )


def _about(ended: Ended, share: float) -> str:
    seconds = ended.percentile_seconds(share)
    if seconds is None:
        return "—"
    return span(seconds) if seconds >= 60 else f"{seconds:.2g} {_('s')}"
