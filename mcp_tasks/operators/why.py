"""One plain sentence on why an unfinished task is where it is, and what will happen next. A pure function of facts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from ..lifecycle import PARKED, QUEUED
from ..models import Process, Task
from ..store.processes import JANITOR, only_tools
from .states import EXPIRED_STATE, STALLED, is_handed_over, is_still_stopping, state_of

#: A process that was not heard of for so long may be gone; a janitor, which only sweeps now and then, later.
PROCESS_SILENT, JANITOR_SILENT = timedelta(seconds=60), timedelta(minutes=5)
AHEAD_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """
    What the sentence is made of.

    ``ahead``: queued tasks before this one, counted up to ``AHEAD_LIMIT``. ``engine``: what runs tasks, where it is
    not processes of ours.
    """

    now: datetime
    processes: Sequence[Process] = field(default=())
    tools_hash: str = ""
    engine: str = ""
    ahead: int = 0
    slow_after_seconds: float | None = None
    question_keys: Sequence[str] = field(default=())
    #: Limits of the tool that are reached: of all its running tasks, and of those of the task's owner.
    reached_limit: int | None = None
    reached_owner_limit: int | None = None

    @property
    def workers(self) -> list[Process]:
        """The processes that run legs, the one that was heard of last first."""
        found = [process for process in self.processes if process.kind != JANITOR]
        return sorted(found, key=lambda process: process.seen_at, reverse=True)

    @property
    def live_workers(self) -> list[Process]:
        return [process for process in self.workers if process.seen_at > self.now - PROCESS_SILENT]

    @property
    def janitor_seen_at(self) -> datetime | None:
        return max((process.seen_at for process in self.processes if process.kind == JANITOR), default=None)

    @property
    def is_janitor_silent(self) -> bool:
        seen_at = self.janitor_seen_at
        return seen_at is None or seen_at <= self.now - JANITOR_SILENT


#: Units of a duration, largest first: seconds in it, its short name.
_UNITS = ((86_400, gettext_noop("d")), (3_600, gettext_noop("h")), (60, gettext_noop("min")), (1, gettext_noop("s")))


def span(seconds: float) -> str:
    """A duration as people say it: the two largest units."""
    rest = max(0, int(seconds))
    for index, (size, name) in enumerate(_UNITS):
        if rest >= size or size == 1:
            whole, rest = divmod(rest, size)
            smaller, smaller_name = _UNITS[min(index + 1, len(_UNITS) - 1)]
            more = f" {rest // smaller} {_(smaller_name)}" if rest >= smaller else ""
            return f"{whole} {_(name)}{more}"
    raise AssertionError("unreachable")


def why(task: Task, facts: Facts) -> str | None:
    """The sentence; None for a task that is finished and let go, or expired."""
    state, now = state_of(task, facts.now), facts.now
    if state is EXPIRED_STATE:
        return None
    if is_still_stopping(task, now):
        since = span((now - _time(task.finished_at)).total_seconds())
        return _("The client sees it as cancelled. {worker} was told to stop {since} ago and still holds it.").format(
            worker=task.lease_holder, since=since
        )
    if state is STALLED:
        return _stalled(task, facts)
    if task.phase == QUEUED:
        return _queued(task, facts)
    if task.phase == PARKED:
        return _parked(task, facts)
    if is_handed_over(task):
        return _("A job of the project has had it for {since}. It ends when that job reports{limit}.").format(
            since=span((now - task.phase_at).total_seconds()), limit=_limit(task, now)
        )
    if task.phase == "running":
        return _running(task, facts)
    return None


def _queued(task: Task, facts: Facts) -> str:
    if task.not_before is not None and task.not_before > facts.now:
        rest = span((task.not_before - facts.now).total_seconds())
        return _("A try failed for the moment. The next one begins in {rest}.").format(rest=rest)
    if not facts.live_workers:
        if facts.engine:
            return _(
                "It waits for a worker of {engine}. None was seen lately; one is seen from its first task on."
            ).format(engine=facts.engine)
        if not facts.workers:
            return _("No process that runs tasks has ever been seen. Start the site, or a worker process.")
        since = span((facts.now - facts.workers[0].seen_at).total_seconds())
        return _("No process that runs tasks has been seen for {since}. Start the site, or a worker process.").format(
            since=since
        )
    if facts.tools_hash and all(process.tools_hash != facts.tools_hash for process in facts.live_workers):
        return _("The running processes know other tools than this one: a deployment may have stopped half way.")
    takers = [process for process in facts.live_workers if takes(process, task.tool)]
    if not takers:
        return _("Every process that runs tasks was told to take those of other tools.")
    free = sum(max(0, process.slots - process.busy) for process in takers)
    if free == 0:
        busy = len(takers)
        text = ngettext(
            "{busy} process is busy in every slot.", "{busy} processes are busy in every slot.", busy
        ).format(busy=busy)
        number = f"{facts.ahead}+" if facts.ahead >= AHEAD_LIMIT else str(facts.ahead)
        ahead = ngettext("About {ahead} task is to run first.", "About {ahead} tasks are to run first.", facts.ahead)
        return f"{text} {ahead.format(ahead=number)}"
    if facts.reached_limit is not None:
        return _("As many tasks of this tool run as may at once: {limit}. It starts when one of them ends.").format(
            limit=facts.reached_limit
        )
    if facts.reached_owner_limit is not None:
        return _(
            "As many of its owner's tasks of this tool run as may at once: {limit}. It starts when one ends."
        ).format(limit=facts.reached_owner_limit)
    return _("There are free slots, and nobody has taken it yet: the message may be lost. {janitor}").format(
        janitor=_janitor(facts, _("sends it again"))
    )


def takes(process: Process, tool: str) -> bool:
    """Whether a process takes tasks of this tool."""
    only = only_tools(process)
    return only is None or tool in only


def _running(task: Task, facts: Facts) -> str:
    ran = (facts.now - task.phase_at).total_seconds()
    text = _("{worker} has run it for {ran} and renews its lease.").format(
        worker=task.lease_holder or _("A process"), ran=span(ran)
    )
    if facts.slow_after_seconds is not None and ran > facts.slow_after_seconds:
        text += " " + _("95 % of this tool's runs ended within {usual}.").format(usual=span(facts.slow_after_seconds))
    return text


def _stalled(task: Task, facts: Facts) -> str:
    since = span((facts.now - _time(task.due_at)).total_seconds())
    is_asking = task.status != "working"
    if is_asking:
        what = _("lets it wait for its answers")
    elif task.attempts < task.max_attempts:
        what = _("queues it again")
    else:
        what = _("fails it")
    return _("{worker} let its lease lapse {since} ago, at try {tried} of {tries}. {janitor}").format(
        worker=task.lease_holder or _("Its process"),
        since=since,
        tried=task.attempts,
        tries=task.max_attempts,
        janitor=_janitor(facts, what),
    )


def _parked(task: Task, facts: Facts) -> str:
    keys = ", ".join(facts.question_keys)
    text = _("It has waited for its client for {since}{keys}. Nothing runs meanwhile.").format(
        since=span((facts.now - task.phase_at).total_seconds()), keys=f": {keys}" if keys else ""
    )
    if task.expires_at is not None:
        rest = span((task.expires_at - facts.now).total_seconds())
        text += " " + _("It expires in {rest}.").format(rest=rest)
    return text


def _janitor(facts: Facts, what: str) -> str:
    seen_at = facts.janitor_seen_at
    if seen_at is None:
        return _("The janitor has never run: nothing is recovered or expired until it does.")
    since = span((facts.now - seen_at).total_seconds())
    if facts.is_janitor_silent:
        return _("The janitor has not run for {since}: nothing is recovered or expired until it does.").format(
            since=since
        )
    return _("The janitor, which ran {since} ago, {what}.").format(since=since, what=what)


def _limit(task: Task, now: datetime) -> str:
    if task.expires_at is None:
        return ""
    return _(", or when it expires in {rest}").format(rest=span((task.expires_at - now).total_seconds()))


def _time(value: Any) -> datetime:
    assert isinstance(value, datetime)
    return value
