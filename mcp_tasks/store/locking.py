"""
Whole transactions: begun by a write, retried as a whole, one row locked the way its database can.

A transition is one guarded UPDATE, or it locks its row, reads, decides and writes by compare-and-set. There is
no third way. Nothing here knows a transition; it is what they are all built of.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, connections, router, transaction
from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)

from .. import compat
from ..dbtime import DbNow, ElapsedMs, after
from ..lifecycle import EVENTS_PER_TASK, OUTSTANDING, PARKED, QUEUED, RUNNING
from ..models import Task, TaskEvent, TaskInput
from ..protocol.codec import dumps
from ..querysets import gone
from .types import Detail, Outcome, Why

T = TypeVar("T")

_TRIES = 8
_STALE_TRIES = 5
#: A leg writes at most four events, so up to this leg the timeline cannot have reached its bound.
_SURELY_SHORT_LEGS = EVENTS_PER_TASK // 5

_SUMS = {QUEUED: "queue_ms", RUNNING: "run_ms", PARKED: "wait_ms"}


class Stale(Exception):
    """A compare-and-set found that the row had changed since it was read: start over."""


_alias: ContextVar[str | None] = ContextVar("alias", default=None)
_process_alias: str | None = None


def database() -> str:
    """The alias that tasks are written to, and read from."""
    return _alias.get() or _process_alias or router.db_for_write(Task)


def serve_database(alias: str | None) -> None:
    """Another alias than the router's for every thread of this process, which does nothing else."""
    global _process_alias
    _process_alias = alias


@contextmanager
def on_database(alias: str | None) -> Iterator[None]:
    """Another alias than the router's, for a command that was told which."""
    token = _alias.set(alias)
    try:
        yield
    finally:
        _alias.reset(token)


def transact(operation: Callable[[str], T], *, durable: bool = True) -> T:
    """
    Run a whole transition in one transaction, again from the start where a conflict ended it.

    Durable: inside a transaction of the caller it raises RuntimeError instead of acknowledging what a rollback
    could take back. With ``durable=False`` it joins the caller's transaction and is not retried there.
    """
    using = database()
    connection = connections[using]
    conflicts = stale = 0
    while True:
        nested, decided = connection.in_atomic_block, False
        try:
            with transaction.atomic(using=using, durable=durable):
                result = operation(using)
                decided = True
            return result
        except Stale:
            stale += 1
            if stale >= _STALE_TRIES:
                raise
        except (DatabaseError, InterfaceError) as error:
            conflicts += 1
            # A connection that was lost before the commit took nothing with it; during it, nobody knows.
            again = compat.is_conflict(error) or (not decided and _was_lost(using, error))
            if nested or conflicts >= _TRIES or not again:
                raise
            _rest(conflicts)


def _rest(conflicts: int) -> None:
    time.sleep(random.uniform(0.5, 1.0) * 0.01 * 2 ** min(conflicts, 6))  # noqa: S311 - jitter, no secret


def single(operation: Callable[[str], T]) -> T:
    """
    Run one statement without a transaction around it, again where a conflict ended it or its connection was lost.

    Only for what may be done twice: a read, or a write that says where to go and not how far.
    """
    using = database()
    for tries in range(1, _TRIES + 1):
        try:
            return operation(using)
        except (DatabaseError, InterfaceError) as error:
            again = compat.is_conflict(error) or _was_lost(using, error)
            if connections[using].in_atomic_block or tries == _TRIES or not again:
                raise
            _rest(tries)
    raise AssertionError("unreachable")


def _was_lost(using: str, error: Exception) -> bool:
    """Whether the server is gone at the other end; then the connection is closed, and the next use opens another."""
    connection = connections[using]
    if not isinstance(error, (OperationalError, InterfaceError)) or connection.vendor == "sqlite":
        return False
    if connection.connection is not None and connection.is_usable():
        return False
    connection.close()
    return True


def rows(using: str) -> Any:
    """The tasks of that database, as a query of the state machine's words."""
    return Task.objects.using(using)


def lock(using: str, ref: UUID, *fields: str) -> Task | None:
    """
    Lock one row and read it: state, the named further columns, and whether it reads as absent (``absent``).

    Must be the first statement of its transaction. SQLite has no row locks: there a write that changes nothing
    takes the writer's place first, so that what is read next is current.
    """
    found: QuerySet[Task] = rows(using).filter(pk=ref)
    if connections[using].vendor == "sqlite":
        if not found.update(leg=F("leg")):
            return None
    else:
        found = found.select_for_update()
    columns = ("ref", "status", "phase", "leg", "revision", "created_at", "expires_at", *fields)
    return found.only(*columns).annotate(is_gone=is_gone()).first()


def absent(row: Task) -> bool:
    """Whether a row that ``lock`` read is gone, by the database's clock in that statement."""
    return bool(row.is_gone)  # type: ignore[attr-defined]


def swap(using: str, row: Task, guard: Q, **values: Any) -> int:
    """Compare-and-set on a locked row; returns its new revision, raises Stale when it is not what was read."""
    seen = rows(using).filter(pk=row.pk, revision=row.revision, phase=row.phase, leg=row.leg).filter(guard)
    changed = compat.update_returning(seen, ("revision",), **values)
    if not changed:
        raise Stale
    return int(changed[0][0])


def leaving(phase: str) -> dict[str, Any]:
    """Book the time spent in a phase that is left. First among the values: MySQL reads what was just set."""
    column = _SUMS[phase]
    return {column: F(column) + ElapsedMs(F("phase_at")), "phase_at": DbNow()}


def leaving_any() -> dict[str, Any]:
    """The same where the guard admits every live phase."""
    booked = {
        column: Case(
            When(phase=phase, then=F(column) + ElapsedMs(F("phase_at"))),
            default=F(column),
            output_field=BigIntegerField(),
        )
        for phase, column in _SUMS.items()
    }
    return {**booked, "phase_at": DbNow()}


def earliest_deadline() -> Subquery:
    """When the first open question of a task must be answered, for its timer; NULL when none has a deadline."""
    dated = TaskInput.objects.filter(task_id=OuterRef("pk"), state=OUTSTANDING, deadline_at__isnull=False)
    return Subquery(dated.order_by("deadline_at").values("deadline_at")[:1])


def settled(retention_seconds: int) -> dict[str, Any]:
    """What every terminal transition sets; a task without ttl gets the time of its removal here."""
    return {
        "asks_json": None,
        "due_at": None,
        "not_before": None,
        "finished_at": DbNow(),
        "sweep_at": Case(When(expires_at=None, then=after(retention_seconds)), default=F("sweep_at")),
    }


def record(
    using: str,
    ref: UUID,
    kind: str,
    *,
    revision: int | Subquery,
    actor: str,
    leg: int | None = None,
    detail: Detail | None = None,
    bounded: bool = False,
) -> None:
    """Append to the timeline, in the transition's own transaction. ``bounded``: left out once the timeline is full."""
    events = TaskEvent.objects.using(using)
    if bounded and (leg is None or leg > _SURELY_SHORT_LEGS):
        full = events.filter(task_id=ref).order_by("id")[EVENTS_PER_TASK - 1 : EVENTS_PER_TASK]
        if full.values_list("pk", flat=True):
            return
    events.create(
        task_id=ref,
        revision=revision,
        kind=kind,
        leg=leg,
        actor=actor,
        at=DbNow(),
        detail=None if detail is None else dumps(detail),
    )


def refused(using: str, ref: UUID, leg: int | None) -> Outcome:
    """Why a guard matched nothing, from a second read: advice, the verdict has been given."""
    row = rows(using).filter(pk=ref).annotate(is_gone=is_gone()).values("status", "phase", "leg", "is_gone").first()
    why: Why
    if row is None:
        why = "gone"
    elif row["is_gone"]:
        why = "expired"
    elif row["phase"] not in _SUMS:
        why = "terminal"
    elif leg is not None and (row["phase"] != RUNNING or row["leg"] != leg):
        why = "fenced"
    else:
        why = "not_applicable"
    return Outcome(False, why)


def is_gone() -> Case:
    """Whether a row reads as absent, decided by the database in the statement that reads it."""
    return Case(When(gone(), then=Value(True)), default=Value(False), output_field=BooleanField())
