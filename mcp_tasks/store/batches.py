"""The janitor's way through many rows: small transactions, over rows that nobody else holds, until none is left."""

import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import connections

from .. import compat
from ..dbtime import DbNow
from ..models import TaskEvent
from .budget import budget
from .locking import database, transact
from .types import SweepReport

logger = logging.getLogger("mcp_tasks.janitor")

_BATCH_SKIPPING, _BATCH_GUARDED = 1000, 200
_PAUSE_SECONDS = 0.01

Pick = Callable[[str], Any]
Step = Callable[[str, list[UUID]], SweepReport]


def in_batches(name: str, pick: Pick, step: Step) -> SweepReport:
    """
    Run ``step`` over the rows that ``pick`` finds; returns what it did, with its name among the errors if a row failed.

    Where locked rows can be skipped, a batch is picked and locked in its transaction. Elsewhere keys are picked
    before it and the step's own guards decide. Ends at an empty batch: a short one may only have skipped rows.

    A batch that fails is rolled back whole and run again row by row: nothing of it was acknowledged yet.
    """
    report, mine = SweepReport(), budget.get()
    faulty: list[UUID] = []
    fruitless: list[UUID] = []

    def left(using: str) -> Any:
        return pick(using).exclude(pk__in=faulty)

    while not mine.is_spent:
        found: list[UUID] = []
        try:
            refs, done = _batch(left, step)
        except Exception as error:
            if _concerns_every_row(error):
                raise
            logger.warning("a batch of the janitor failed", exc_info=True, extra={"event": "sweep_batch_failed"})
            refs = sorted(left(database()).values_list("pk", flat=True)[: mine.limit(_BATCH_GUARDED)])
            done, found = row_by_row(name, refs, lambda ref: _batch(lambda using: pick(using).filter(pk=ref), step)[1])
        report.add(done)
        faulty += found
        mine.spend(name, refs)
        # Where not one row came through, the fault is hardly that of the rows: the next pass finds them all again.
        # Another janitor may have been faster with a batch; one that comes back unchanged will not change.
        if not refs or (not done.changed and (found or refs == fruitless)):
            break
        fruitless = [] if done.changed else refs
        time.sleep(_PAUSE_SECONDS)
    report.errors += [name] if faulty else []
    return report


def row_by_row(name: str, refs: list[UUID], run: Callable[[UUID], SweepReport]) -> tuple[SweepReport, list[UUID]]:
    """Each row by itself: one that raises is logged and keeps no other back. Returns what was done, and who raised."""
    report, faulty = SweepReport(), []
    for ref in refs:
        try:
            report.add(run(ref))
        except Exception as error:
            if _concerns_every_row(error):
                raise
            logger.exception(
                "a step of the janitor failed for one task",
                extra={"event": "sweep_row_failed", "step": name, "ref": str(ref)},
            )
            faulty.append(ref)
    return report, faulty


def _concerns_every_row(error: Exception) -> bool:
    """Whether others would fare no better: the database is away, or so busy that no try came through."""
    return compat.is_conflict(error) or connections[database()].connection is None


def _batch(pick: Pick, step: Step) -> tuple[list[UUID], SweepReport]:
    using, limit = database(), budget.get().limit
    if compat.skips_locked(using):

        def operation(using: str) -> tuple[list[UUID], SweepReport]:
            found = pick(using).select_for_update(skip_locked=True)
            refs = sorted(found.values_list("pk", flat=True)[: limit(_BATCH_SKIPPING)])
            return refs, step(using, refs) if refs else SweepReport()

        return transact(operation)
    refs = sorted(pick(using).values_list("pk", flat=True)[: limit(_BATCH_GUARDED)])
    return refs, transact(lambda using: step(using, refs)) if refs else SweepReport()


def record_all(using: str, kind: str, changed: list[tuple[UUID, int, int]]) -> None:
    """One event for each changed row, given as ref, revision, leg."""
    TaskEvent.objects.using(using).bulk_create(
        TaskEvent(task_id=ref, revision=revision, kind=kind, leg=leg or None, actor="janitor", at=DbNow())
        for ref, revision, leg in changed
    )
