"""
One pass of the janitor, and its steps that bring tasks back: recover, redeliver, overdue questions.

Any number of janitors may run at once: every step is guarded by the state it changes.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Case, F, SmallIntegerField, When

from .. import compat, conf
from ..dbtime import DbNow, after
from ..lifecycle import (
    DONE,
    OUTSTANDING,
    PARKED,
    QUEUED,
    REDELIVER_LIMIT_SECONDS,
    REDELIVER_SECONDS,
    RUNNING,
)
from ..models import TaskInput
from ..protocol.codec import dumps
from ..protocol.tasks import FAILED, INPUT_REQUIRED, WORKING
from ..querysets import VISIBLE, fresh, in_phase
from ..tools.cancellation import CANCELLED
from . import rules
from .base import TaskStore
from .batches import in_batches, record_all
from .effects import Effect
from .inputs import answer
from .locking import absent, database, earliest_deadline, leaving, lock, rows, settled, swap, transact
from .reading import Reading, open_questions
from .types import SweepReport

logger = logging.getLogger("mcp_tasks.janitor")

_OVERDUE_BATCH = 1000  # row by row; the next pass takes the rest
_REDELIVERIES = 4  # doublings until the limit is reached


class Sweep(Reading):
    """The recovering steps of the database store."""

    def recover(self) -> SweepReport:
        report = SweepReport()

        def step(using: str, refs: list[UUID]) -> int:
            lapsed = _due(using, RUNNING).filter(pk__in=refs)
            common = {**leaving(RUNNING), "lease_holder": None}
            parked = compat.update_returning(
                lapsed.filter(status=INPUT_REQUIRED),
                ("ref", "revision", "leg"),
                **common,
                phase=PARKED,
                due_at=earliest_deadline(),
            )
            queued = compat.update_returning(
                lapsed.filter(status=WORKING, attempts__lt=F("max_attempts")),
                ("ref", "revision", "leg"),
                **common,
                phase=QUEUED,
                due_at=after(REDELIVER_SECONDS),
                deliveries=0,
            )
            error = dumps(rules.LEG_LOST.payload())
            failed = compat.update_returning(
                lapsed.filter(status=WORKING),
                ("ref", "revision", "leg"),
                **common,
                **VISIBLE,
                **settled(conf.get_settings().RETENTION_SECONDS),
                status=FAILED,
                status_message=rules.LEG_LOST.message,
                error_json=error,
                payload_bytes=F("payload_bytes") + len(error),
                phase=DONE,
            )
            record_all(using, "leg_lost", parked + queued)
            record_all(using, "failed", failed)
            # No token for what will run again: it is the task's, and the lost leg's own heartbeat raises its own.
            for ref, _, _ in queued:
                Effect(ref, enqueue=True).after_commit(using)
            for ref, revision, _ in failed:
                Effect(ref, revision, token=CANCELLED).after_commit(using)
            report.recovered += len(parked) + len(queued)
            report.failed += len(failed)
            return len(parked) + len(queued) + len(failed)

        in_batches(lambda using: _due(using, RUNNING), step)
        return report

    def redeliver(self) -> SweepReport:
        delays = [When(deliveries=n, then=after(REDELIVER_SECONDS * 2**n)) for n in range(_REDELIVERIES)]
        values = {
            "due_at": Case(*delays, default=after(REDELIVER_LIMIT_SECONDS)),
            "deliveries": Case(
                When(deliveries__lt=_REDELIVERIES, then=F("deliveries") + 1),
                default=F("deliveries"),
                output_field=SmallIntegerField(),
            ),
        }

        def step(using: str, refs: list[UUID]) -> int:
            changed = compat.update_returning(_due(using, QUEUED).filter(pk__in=refs), ("ref",), **values)
            for (ref,) in changed:
                Effect(ref, enqueue=True).after_commit(using)
            return len(changed)

        return SweepReport(redelivered=in_batches(lambda using: _due(using, QUEUED), step))

    def answer_overdue(self) -> SweepReport:
        refs = list(_due(database(), PARKED).values_list("pk", flat=True)[:_OVERDUE_BATCH])
        return SweepReport(timed_out=sum(transact(partial(_time_out, ref=ref)) for ref in refs))


def _due(using: str, phase: str) -> Any:
    return rows(using).filter(in_phase(phase), due_at__lte=DbNow()).fresh()


def _time_out(using: str, *, ref: UUID) -> int:
    row = lock(using, ref)
    if row is None or absent(row) or row.phase != PARKED:
        return 0
    overdue = TaskInput.objects.using(using).filter(task_id=ref, state=OUTSTANDING, deadline_at__lte=DbNow())
    keys = set(overdue.values_list("key", flat=True))
    if not keys:
        swap(using, row, fresh(), due_at=earliest_deadline())
        return 0
    picked = dict.fromkeys(sorted(keys), dumps(rules.NOBODY_ANSWERED))
    answer(using, row, open_questions(using, ref), picked, actor="janitor", kind="ask_timeout")
    return 1


def sweep(store: TaskStore) -> SweepReport:
    """
    One pass over everything, in the order of the state machine: recover, redeliver, overdue, expire, purge.

    A failing step is logged and named in the report; the others still run.
    """
    report = SweepReport()
    steps: list[Callable[[], SweepReport]] = [
        store.recover,
        store.redeliver,
        store.answer_overdue,
        store.expire,
        store.purge,
    ]
    for step in steps:
        try:
            report.add(step())
        except Exception:
            logger.exception("a step of the janitor failed", extra={"event": "sweep_failed", "step": step.__name__})
            report.errors.append(step.__name__)
    return report
