"""Claim: which leg is handed out next, in which order, and how many of a tool run at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Count, Exists, F, Q, Value
from django.db.models.functions import Coalesce
from django.db.models.lookups import In

from .. import compat, conf
from ..dbtime import DbNow, after
from ..lifecycle import QUEUED, RUNNING
from . import gates
from .locking import database, leaving, record, rows, transact
from .reading import Reading
from .types import NO_LIMITS, Claim, RunningLimit

#: How many are looked at together: others look at the same table, and who comes second takes the next one.
_CANDIDATES = 8
#: Looks until a claim gives up against others that are always faster; its caller comes again in a moment.
_LOOKS = 50


class _NoRoom(Exception):
    """As many legs of the tool run as may."""


class _Candidate(NamedTuple):
    """A task of which a leg could be started, as it was read: the write decides."""

    ref: UUID
    leg: int
    tool: str
    owner_key: str | None


@dataclass(slots=True)
class _Full:
    """What has no room for another leg, by a count that may be old by now: only the gate decides."""

    tools: set[str] = field(default_factory=set)
    owners: dict[str, set[str | None]] = field(default_factory=dict)

    def has(self, task: _Candidate) -> bool:
        """Whether this task need not be tried."""
        return task.tool in self.tools or task.owner_key in self.owners.get(task.tool, ())

    def tasks(self) -> Q:
        """The tasks that need not be looked at."""
        full = Q(tool__in=self.tools)
        for tool, keys in self.owners.items():
            full |= Q(tool=tool, owner_key__isnull=False, owner_key__in=keys - {None})
            if None in keys:
                full |= Q(tool=tool, owner_key__isnull=True)
        return full


class Claims(Reading):
    """The operations of the database store that hand out legs."""

    def claim(
        self,
        ref: UUID | None = None,
        *,
        tools: tuple[str, ...] | None = None,
        limits: Mapping[str, RunningLimit] = NO_LIMITS,
        oldest_first: bool = False,
        holder: str = "",
    ) -> Claim | None:
        limits = {tool: limit for tool, limit in limits.items() if limit}
        ready = _ready(database(), tools, oldest_first=oldest_first)
        if ref is not None:
            ready = ready.filter(pk=ref)
        passes = ref is None and compat.skips_locked(database())
        # Counted when the first task of a limited tool is met. For one task alone its gate counts anyway.
        full = None if ref is None else _Full()
        for _ in range(_LOOKS):
            look = ready if full is None else ready.exclude(full.tasks())
            if passes:
                found = transact(partial(_take, ready=look, limits=limits, holder=holder))
                if not isinstance(found, _Candidate):
                    return found
                candidates, is_last = [found], False
            else:
                candidates = [_Candidate(*values) for values in look.values_list(*_Candidate._fields)[:_CANDIDATES]]
                is_last = ref is not None or len(candidates) < _CANDIDATES
            for candidate in candidates:
                limit = limits.get(candidate.tool)
                if limit is not None:
                    full = full or _count(limits, tools)
                    if full.has(candidate):
                        continue
                try:
                    claim = _start(candidate, limit, holder)
                except _NoRoom:
                    full = None  # what was counted is too old by now
                    continue
                except DatabaseError as error:
                    if limit is not None and compat.is_conflict(error):
                        return None  # others were faster at the gate each time: the caller comes again
                    raise
                if claim is not None:
                    return claim
            if is_last:
                return None
        return None


def _ready(using: str, tools: tuple[str, ...] | None, *, oldest_first: bool) -> Any:
    """What a leg could be started of, in the order in which it should be."""
    ready = rows(using).filter(phase=QUEUED).fresh().filter(Q(not_before=None) | Q(not_before__lte=DbNow()))
    if tools is not None:
        ready = ready.filter(tool__in=tools)
    return ready.order_by("created_at") if oldest_first else ready.order_by("-priority", "created_at")


def _take(using: str, *, ready: Any, limits: Mapping[str, RunningLimit], holder: str) -> Claim | _Candidate | None:
    """Claim the first task that nobody else is at; of a tool with a limit only its name, for its gate comes first."""
    found = ready.select_for_update(skip_locked=True).values_list(*_Candidate._fields).first()
    if found is None:
        return None
    task = _Candidate(*found)
    return task if task.tool in limits else _claim(using, task, holder)


def _count(limits: Mapping[str, RunningLimit], tools: tuple[str, ...] | None) -> _Full:
    """What has no room just now."""
    asked = [tool for tool in limits if tools is None or tool in tools]
    running = _running(database(), *asked).values_list("tool", "owner_key").annotate(legs=Count("pk")).order_by()
    full, totals = _Full(), dict.fromkeys(asked, 0)
    for tool, owner_key, legs in running:
        if tool not in totals:
            continue  # a collation that folds case finds others too
        totals[tool] += legs
        if limits[tool].is_reached(of_owner=legs):
            full.owners.setdefault(tool, set()).add(owner_key)
    full.tools = {tool for tool, legs in totals.items() if limits[tool].is_reached(total=legs)}
    return full


def _running(using: str, *tools: str) -> Any:
    # Few of a tool's tasks run, and few of those that run are of other tools: not by the index of the tool.
    return rows(using).filter(In(compat.Unindexed(F("tool")), list(tools)), phase=RUNNING)


def _start(task: _Candidate, limit: RunningLimit | None, holder: str) -> Claim | None:
    """Claim the task; None when somebody was faster. Raises _NoRoom."""
    if limit is None:
        return transact(lambda using: _claim(using, task, holder))

    def operation(using: str) -> Claim | None:
        running = _running(using, task.tool)
        gate = gates.enter(using, gates.of_tool(task.tool)).annotate(
            is_full=_at_least(limit.total, running),
            is_full_of_owner=_at_least(limit.per_owner, running.owned_by(task.owner_key)),
        )
        # The gate is held, so nobody else counts or starts meanwhile.
        if any(gate.values_list("is_full", "is_full_of_owner").get()):
            raise _NoRoom
        return _claim(using, task, holder)

    return gates.through(gates.of_tool(task.tool), operation)


def running_now(tool: str, owner_key: str | None) -> tuple[int, int]:
    """How many legs of a tool run, and how many of them are this owner's; one statement. For operators."""
    running = _running(database(), tool)
    of_owner = Count("pk", filter=Q(owner_key__isnull=True) if owner_key is None else Q(owner_key=owner_key))
    counted = running.aggregate(all=Count("pk"), of_owner=of_owner)
    return counted["all"], counted["of_owner"]


def _at_least(number: int | None, running: Any) -> Exists | Value:
    if number is None or number < 1:
        return Value(number is not None)
    return Exists(running.values("pk")[number - 1 : number])


def _claim(using: str, task: _Candidate, holder: str) -> Claim | None:
    queued = rows(using).filter(pk=task.ref, phase=QUEUED, leg=task.leg).fresh()
    values = {
        **leaving(QUEUED),
        "started_at": Coalesce(F("started_at"), DbNow()),
        "phase": RUNNING,
        "leg": task.leg + 1,
        "attempts": F("attempts") + 1,
        "deliveries": 0,
        "not_before": None,
        "due_at": after(conf.get_settings().LEASE_SECONDS),
        "lease_holder": holder[:100] or None,
    }
    changed = compat.update_returning(queued, ("revision", "tool", "attempts", "max_attempts"), **values)
    if not changed:
        return None
    revision, tool, attempts, max_attempts = changed[0]
    record(using, task.ref, "claimed", revision=revision, actor="worker", leg=task.leg + 1, bounded=True)
    return Claim(task.ref, task.leg + 1, tool, attempts, max_attempts)
