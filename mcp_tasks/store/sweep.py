"""
One pass of the janitor, and its steps that bring tasks back: recover, redeliver, overdue questions.

Any number of janitors may run at once: every step is guarded by the state it changes.
"""

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Case, F, SmallIntegerField, When

from .. import compat, conf, observing
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
from ..protocol.inputs import NOBODY_ANSWERED
from ..protocol.tasks import FAILED, INPUT_REQUIRED, WORKING
from ..querysets import VISIBLE, fresh, in_phase
from ..signals import task_requeued
from ..tools.cancellation import CANCELLED
from . import rules
from .base import TaskStore
from .batches import in_batches, record_all, row_by_row
from .budget import budget
from .effects import SETTLED, SPENT, Effect, settled_moment
from .inputs import answer
from .locking import absent, database, earliest_deadline, leaving, lock, rows, settled, swap, transact
from .reading import Reading, open_questions
from .types import SweepReport

logger = logging.getLogger("mcp_tasks.janitor")

_COUNTED = ("recovered", "failed", "redelivered", "timed_out", "expired", "purged")
_OVERDUE_BATCH = 1000  # row by row; the next pass takes the rest
_REDELIVERIES = 4  # doublings until the limit is reached


class Sweep(Reading):
    """The recovering steps of the database store."""

    def recover(self) -> SweepReport:
        def step(using: str, refs: list[UUID]) -> SweepReport:
            lapsed = due(using, RUNNING).filter(pk__in=refs)
            common = {**leaving(RUNNING), "lease_holder": None}
            parked = compat.update_returning(
                lapsed.filter(status=INPUT_REQUIRED),
                ("ref", "revision", "leg", "tool"),
                **common,
                phase=PARKED,
                due_at=earliest_deadline(),
            )
            queued = compat.update_returning(
                lapsed.filter(status=WORKING, attempts__lt=F("max_attempts")),
                ("ref", "revision", "leg", "tool"),
                **common,
                phase=QUEUED,
                due_at=after(REDELIVER_SECONDS),
                deliveries=0,
            )
            error = dumps(rules.LEG_LOST.payload())
            failed = compat.update_returning(
                lapsed.filter(status=WORKING),
                ("ref", "revision", "leg", *SPENT),
                **common,
                **VISIBLE,
                **settled(conf.get_settings().RETENTION_SECONDS),
                status=FAILED,
                status_message=rules.LEG_LOST.message,
                error_json=error,
                payload_bytes=F("payload_bytes") + len(error),
                phase=DONE,
            )
            record_all(using, "leg_lost", [row[:3] for row in parked + queued])
            record_all(using, "failed", [row[:3] for row in failed])
            # No token for what will run again: it is the task's, and the lost leg's own heartbeat raises its own.
            for ref, _, _, tool in queued:
                Effect(ref, enqueue=True, signals=(task_requeued,), moment=_lapsed(tool, "requeued")).after_commit(
                    using
                )
            for ref, _, _, tool in parked:
                Effect(ref, moment=_lapsed(tool, "parked")).after_commit(using)
            for ref, revision, _, *spent in failed:
                moment = settled_moment(FAILED, *spent)
                Effect(ref, revision, token=CANCELLED, signals=SETTLED, moment=moment).after_commit(using)
                Effect(ref, moment=_lapsed(spent[0], "failed")).after_commit(using)
            return SweepReport(recovered=len(parked) + len(queued), failed=len(failed))

        return in_batches("recover", lambda using: due(using, RUNNING), step)

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

        def step(using: str, refs: list[UUID]) -> SweepReport:
            changed = compat.update_returning(due(using, QUEUED).filter(pk__in=refs), ("ref",), **values)
            for (ref,) in changed:
                Effect(ref, enqueue=True).after_commit(using)
            return SweepReport(redelivered=len(changed))

        return in_batches("redeliver", lambda using: due(using, QUEUED), step)

    def answer_overdue(self) -> SweepReport:
        mine = budget.get()
        if mine.is_spent:
            return SweepReport()
        refs = list(due(database(), PARKED).values_list("pk", flat=True)[: mine.limit(_OVERDUE_BATCH)])
        mine.spend("deadlines", refs)
        report, faulty = row_by_row("answer_overdue", refs, lambda ref: transact(partial(_time_out, ref=ref)))
        report.errors += ["answer_overdue"] if faulty else []
        return report


def _lapsed(tool: str, action: str) -> tuple[str, dict[str, Any]]:
    return "lapsed", {"tool": tool, "action": action}


def due(using: str, phase: str) -> Any:
    """In this phase, with a timer that has run out."""
    return rows(using).filter(in_phase(phase), due_at__lte=DbNow()).fresh()


def _time_out(using: str, *, ref: UUID) -> SweepReport:
    row = lock(using, ref)
    if row is None or absent(row) or row.phase != PARKED:
        return SweepReport()
    overdue = TaskInput.objects.using(using).filter(task_id=ref, state=OUTSTANDING, deadline_at__lte=DbNow())
    keys = set(overdue.values_list("key", flat=True))
    if not keys:
        swap(using, row, fresh(), due_at=earliest_deadline())
        return SweepReport()
    picked = dict.fromkeys(sorted(keys), dumps(NOBODY_ANSWERED))
    answer(using, row, open_questions(using, ref), picked, actor="janitor", kind="ask_timeout")
    return SweepReport(timed_out=1)


#: The steps of a pass, in order, by the names that operators use.
STEPS: dict[str, Callable[[TaskStore], SweepReport]] = {
    "recover": lambda store: store.recover(),
    "redeliver": lambda store: store.redeliver(),
    "deadlines": lambda store: store.answer_overdue(),
    "expire": lambda store: store.expire(),
    "rollup": lambda store: store.roll_up(),
    "purge": lambda store: store.purge(),
    "tidy": lambda store: store.tidy(),
}


def sweep(store: TaskStore, only: Collection[str] = tuple(STEPS)) -> SweepReport:
    """
    One pass of the janitor over everything, or over the steps that are named; at the end it notes that it ran.

    A step that fails, be it for one task, is logged and named in the report; the others still run.
    """
    report = SweepReport()
    with observing.begin("sweep", report=report):
        for name, step in STEPS.items():
            if name in only:
                report.add(_guarded(name, partial(step, store)))
        report.errors += _guarded("stamp", partial(_stamp, store, report)).errors
    if report.changed and logger.isEnabledFor(logging.INFO):
        counts = {name: getattr(report, name) for name in _COUNTED if getattr(report, name)}
        logger.info("the janitor changed rows", extra={"event": "swept", **counts})
    return report


def _stamp(store: TaskStore, report: SweepReport) -> SweepReport:
    store.stamp(report)
    return SweepReport()


def _guarded(name: str, run: Callable[[], SweepReport]) -> SweepReport:
    try:
        return run()
    except Exception:
        logger.exception("a step of the janitor failed", extra={"event": "sweep_failed", "step": name})
        return SweepReport(errors=[name])
