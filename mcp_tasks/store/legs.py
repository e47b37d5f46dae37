"""Heartbeat, end of leg, release, retry: the life of one run of a handler once it is claimed, and its fence."""

from datetime import UTC, datetime
from uuid import UUID

from django.db.models import F, Q
from django.db.models.functions import Greatest

from .. import compat, conf
from ..dbtime import after
from ..lifecycle import DONE, PARKED, QUEUED, REDELIVER_SECONDS, RUNNING
from ..protocol.tasks import CANCELLED as CANCELLED_STATUS
from ..protocol.tasks import INPUT_REQUIRED, WORKING
from ..signals import task_requeued
from ..tools.cancellation import CANCELLED, EXPIRED, LEASE_LOST
from .claims import Claims
from .effects import Effect
from .locking import database, earliest_deadline, leaving, record, rows, single, transact
from .types import Outcome


class Legs(Claims):
    """The worker's operations of the database store."""

    def heartbeat(self, ref: UUID, leg: int) -> Outcome:
        lease = conf.get_settings().LEASE_SECONDS
        # A leg whose work was handed over has no lease, and must not get one back from a late beat.
        renewed = single(
            lambda using: rows(using).mine(ref, leg).filter(due_at__isnull=False).update(due_at=after(lease))
        )
        if renewed:
            return Outcome(True)
        return self.refusal(database(), ref, leg)

    def end_leg(self, ref: UUID, leg: int) -> Outcome:
        def operation(using: str) -> Outcome:
            mine = rows(using).mine(ref, leg)
            parked = compat.update_returning(
                mine.filter(status=INPUT_REQUIRED),
                ("revision",),
                **leaving(RUNNING),
                phase=PARKED,
                due_at=earliest_deadline(),
                lease_holder=None,
            )
            if parked:
                record(using, ref, "leg_ended", revision=parked[0][0], actor="worker", leg=leg, bounded=True)
                return Outcome(True, "ok", parked[0][0])
            # Whoever asked may be tried again: its attempts count anew. For one that did not ask the bound holds.
            return _requeue(self, using, ref, leg, "leg_ended", Q(attempts__lt=F("max_attempts")))

        return transact(operation)

    def release(self, ref: UUID, leg: int, *, unstarted_seconds: float | None = None) -> Outcome:
        values: dict[str, object] = {"attempts": Greatest(F("attempts") - 1, 0)}
        guard = Q(max_attempts__gt=1)
        if unstarted_seconds is not None:
            # Rung again when it may be claimed: who comes at once finds nothing, and an engine's message is used up.
            guard, values["not_before"] = Q(), after(unstarted_seconds)
            values["due_at"] = after(unstarted_seconds)
        return transact(lambda using: _requeue(self, using, ref, leg, "released", guard, **values))

    def retry(self, ref: UUID, leg: int, *, after_seconds: float, why: str | None = None) -> Outcome:
        def operation(using: str) -> Outcome:
            mine = rows(using).mine(ref, leg).filter(status=WORKING, attempts__lt=F("max_attempts"))
            at = after(after_seconds)
            changed = compat.update_returning(
                mine,
                ("revision",),
                **leaving(RUNNING),
                phase=QUEUED,
                not_before=at,
                due_at=at,
                deliveries=0,
                lease_holder=None,
            )
            if not changed:
                return self.refusal(using, ref, leg)
            detail = None if why is None else {"reason": why}
            revision = changed[0][0]
            record(using, ref, "retried", revision=revision, actor="worker", leg=leg, detail=detail, bounded=True)
            Effect(ref, signals=(task_requeued,)).after_commit(using)
            return Outcome(True, "ok", revision)

        return transact(operation)

    def let_go(self, ref: UUID, leg: int) -> Outcome:
        def operation(using: str) -> Outcome:
            over = rows(using).filter(pk=ref, leg=leg, phase=DONE, lease_holder__isnull=False).fresh()
            columns = ("revision", "status", "cancel_requested_at")
            changed = compat.update_returning(over, columns, lease_holder=None)
            if not changed:
                return self.refusal(using, ref, leg)
            record(using, ref, "let_go", revision=changed[0][0], actor="worker", leg=leg)
            if changed[0][1] == CANCELLED_STATUS and changed[0][2] is not None:
                # Of two clocks, which is good enough for a histogram.
                waited = max(0.0, (datetime.now(UTC) - changed[0][2]).total_seconds())
                Effect(ref, moment=("let_go", {"seconds": waited})).after_commit(using)
            return Outcome(True, "ok", changed[0][0])

        return transact(operation)


def _requeue(store: Legs, using: str, ref: UUID, leg: int, kind: str, guard: Q, **values: object) -> Outcome:
    changed = compat.update_returning(
        rows(using).mine(ref, leg).filter(guard, status=WORKING),
        ("revision",),
        **leaving(RUNNING),
        **{"phase": QUEUED, "due_at": after(REDELIVER_SECONDS), "deliveries": 0, "lease_holder": None, **values},
    )
    if not changed:
        return store.refusal(using, ref, leg)
    record(using, ref, kind, revision=changed[0][0], actor="worker", leg=leg, bounded=True)
    # A leg that was answered before it ended simply goes on.
    Effect(ref, enqueue=True, signals=(task_requeued,) if kind == "released" else ()).after_commit(using)
    return Outcome(True, "ok", changed[0][0])


#: Which token reason a refused heartbeat means.
STOP_REASONS = {"terminal": CANCELLED, "expired": EXPIRED, "gone": EXPIRED, "fenced": LEASE_LOST}
