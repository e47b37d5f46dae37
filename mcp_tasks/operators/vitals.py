"""Whether tasks move: what probes, alerts, metrics and ``task_stats`` look at, and what is wrong, in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.utils.translation import gettext as _

from ..dbtime import current
from ..lifecycle import LIVE, OUTSTANDING, PARKED, QUEUED, RUNNING
from ..models import Process, Task, TaskInput
from ..runners.base import get_runner
from ..store.claims import running_now
from ..store.locking import database, rows
from ..store.processes import tools_hash
from ..store.retention import expiring
from ..tools.registry import registry
from .numbers import Live, live, slow_after_seconds
from .states import EXPIRED_STATE, is_handed_over, state_of
from .why import AHEAD_LIMIT, JANITOR_SILENT, Facts, span, takes

#: The oldest queued task may wait so long before somebody should look.
QUEUE_SLOW_SECONDS = 300
#: Overdue tasks are counted up to here: beyond it, more of them are no news.
OVERDUE_LIMIT = 10_000
#: One sentence needs no more: the processes that were heard of last, and the first questions.
MOST_PROCESSES, MOST_KEYS = 500, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """
    The state of the queue and of who serves it, at one moment of the database's clock.

    ``overdue``: past their time to live, with payloads that the janitor has still to remove.
    """

    now: datetime
    live: Live = field(default_factory=Live)
    overdue: int = 0
    facts: Facts

    @property
    def oldest_queued_seconds(self) -> float | None:
        """How long the oldest queued task has waited; None when none is queued."""
        return self._age(self.live.oldest_queued_at)

    @property
    def oldest_input_seconds(self) -> float | None:
        """How long the oldest parked task has waited for its client; None when none does."""
        return self._age(self.live.oldest_input_at)

    @property
    def janitor_seconds(self) -> float | None:
        """How long ago the janitor ran; None when it never did."""
        return self._age(self.facts.janitor_seen_at)

    @property
    def workers(self) -> int:
        """The processes that run legs and were heard of within a minute."""
        return len(self.facts.live_workers)

    @property
    def slots(self) -> int:
        return sum(process.slots for process in self.facts.live_workers)

    @property
    def busy(self) -> int:
        return sum(process.busy for process in self.facts.live_workers)

    def _age(self, at: datetime | None) -> float | None:
        return None if at is None else max(0.0, (self.now - at).total_seconds())


def vitals() -> Vitals:
    """Four statements, none of which looks at finished tasks."""
    using = database()
    now = current(using)
    overdue = expiring(using).values("pk")[: OVERDUE_LIMIT + 1].count()
    processes = tuple(Process.objects.using(using).order_by("name"))
    return Vitals(now=now, live=live(), overdue=overdue, facts=Facts(now=now, processes=processes))


def concerns(found: Vitals) -> list[str]:
    """What an operator should look into, a sentence each; empty when all is well."""
    return list(_concerns(found))


def _concerns(found: Vitals) -> Iterable[str]:
    if found.facts.is_janitor_silent:
        seconds = found.janitor_seconds
        if seconds is None:
            yield _("The janitor has never run.")
        else:
            yield _("The janitor has not run for {since}.").format(since=span(seconds))
    if found.live.stalled:
        yield _("Tasks whose process let its lease lapse: {number}.").format(number=found.live.stalled)
    waited = found.oldest_queued_seconds
    if waited is not None and waited > QUEUE_SLOW_SECONDS:
        yield _("The oldest queued task has waited for {since}.").format(since=span(waited))
    if found.live.queued and not found.workers:
        yield _("Tasks are queued and no process that runs them was seen within a minute.")
    if found.overdue and found.janitor_seconds is not None and found.janitor_seconds > JANITOR_SILENT.total_seconds():
        yield _("Tasks past their time to live that still hold payloads: {number}.").format(number=found.overdue)


def _reached_limits(task: Task, facts: Facts) -> Facts:
    tool = registry.get(task.tool)
    if tool is None or not tool.legs.is_limited:
        return facts
    running, of_owner = running_now(task.tool, task.owner_key)
    total, per_owner = tool.legs.max_running, tool.legs.max_running_per_owner
    return replace(
        facts,
        reached_limit=total if total is not None and running >= total else None,
        reached_owner_limit=per_owner if per_owner is not None and of_owner >= per_owner else None,
    )


def facts_about(task: Task, now: datetime, question_keys: Sequence[str] | None = None) -> Facts:
    """
    What the sentence on a task is made of.

    Only an unfinished task costs statements: the processes, and one more where it waits for a slot (the tasks before
    it) or for others of a tool with a limit (how many run), runs (how long its tool usually takes) or is parked (its
    open questions, unless ``question_keys`` names them).
    """
    facts = Facts(now=now, question_keys=question_keys or ())
    if task.phase not in LIVE or state_of(task, now) is EXPIRED_STATE:
        return facts
    using = database()
    processes = list(Process.objects.using(using).order_by("-seen_at")[:MOST_PROCESSES])
    known = tools_hash([tool.name for tool in registry])
    facts = replace(facts, processes=processes, tools_hash=known, engine=get_runner().engine)
    takers = [it for it in facts.live_workers if takes(it, task.tool)]
    if task.phase == QUEUED and takers:
        if any(it.slots > it.busy for it in takers):
            facts = _reached_limits(task, facts)
        else:
            before = rows(using).filter(phase=QUEUED, created_at__lt=task.created_at)
            facts = replace(facts, ahead=before.values("pk")[:AHEAD_LIMIT].count())
    if task.phase == RUNNING and not is_handed_over(task):
        facts = replace(facts, slow_after_seconds=slow_after_seconds(task.tool, now))
    if task.phase == PARKED and question_keys is None:
        asked = TaskInput.objects.using(using).filter(task_id=task.pk, state=OUTSTANDING).order_by("id")
        facts = replace(facts, question_keys=list(asked.values_list("key", flat=True)[:MOST_KEYS]))
    return facts
