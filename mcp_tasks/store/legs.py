"""Claim, heartbeat, end of leg, release, retry: the life of one run of a handler, and the fence around it."""

from functools import partial
from uuid import UUID

from django.db.models import F, Q
from django.db.models.functions import Coalesce, Greatest

from .. import compat, conf
from ..dbtime import DbNow, after
from ..lifecycle import DONE, PARKED, QUEUED, REDELIVER_SECONDS, RUNNING
from ..protocol.tasks import INPUT_REQUIRED, WORKING
from ..tools.cancellation import CANCELLED, EXPIRED, LEASE_LOST
from .effects import Effect
from .locking import database, earliest_deadline, leaving, record, rows, single, transact
from .reading import Reading
from .types import Claim, Outcome

_CLAIM_CANDIDATES = 8


class Legs(Reading):
    """The worker's operations of the database store."""

    def claim(self, ref: UUID | None = None, *, tools: tuple[str, ...] | None = None, holder: str = "") -> Claim | None:
        ready = rows(database()).filter(phase=QUEUED).fresh().filter(Q(not_before=None) | Q(not_before__lte=DbNow()))
        if ref is not None:
            ready = ready.filter(pk=ref)
        if tools is not None:
            ready = ready.filter(tool__in=tools)
        while True:
            # Several, because others look at the same table: who comes second takes the next one.
            candidates = list(ready.order_by("-priority", "created_at").values_list("ref", "leg")[:_CLAIM_CANDIDATES])
            for candidate, leg in candidates:
                claim = transact(partial(_claim, ref=candidate, leg=leg, holder=holder))
                if claim is not None:
                    return claim
            if ref is not None or len(candidates) < _CLAIM_CANDIDATES:
                return None

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
            return _requeue(self, using, ref, leg, "leg_ended")

        return transact(operation)

    def release(self, ref: UUID, leg: int) -> Outcome:
        return transact(
            lambda using: _requeue(
                self, using, ref, leg, "released", Q(max_attempts__gt=1), attempts=Greatest(F("attempts") - 1, 0)
            )
        )

    def retry(self, ref: UUID, leg: int, *, after_seconds: float) -> Outcome:
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
            record(using, ref, "retried", revision=changed[0][0], actor="worker", leg=leg, bounded=True)
            return Outcome(True, "ok", changed[0][0])

        return transact(operation)

    def let_go(self, ref: UUID, leg: int) -> Outcome:
        def operation(using: str) -> Outcome:
            over = rows(using).filter(pk=ref, leg=leg, phase=DONE, lease_holder__isnull=False)
            changed = compat.update_returning(over, ("revision",), lease_holder=None)
            if not changed:
                return self.refusal(using, ref, leg)
            record(using, ref, "let_go", revision=changed[0][0], actor="worker", leg=leg)
            return Outcome(True, "ok", changed[0][0])

        return transact(operation)


def _claim(using: str, *, ref: UUID, leg: int, holder: str) -> Claim | None:
    queued = rows(using).filter(pk=ref, phase=QUEUED, leg=leg).fresh()
    values = {
        **leaving(QUEUED),
        "started_at": Coalesce(F("started_at"), DbNow()),
        "phase": RUNNING,
        "leg": leg + 1,
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
    record(using, ref, "claimed", revision=revision, actor="worker", leg=leg + 1, bounded=True)
    return Claim(ref, leg + 1, tool, attempts, max_attempts)


def _requeue(
    store: Legs, using: str, ref: UUID, leg: int, kind: str, guard: Q | None = None, **values: object
) -> Outcome:
    mine = rows(using).mine(ref, leg).filter(status=WORKING)
    changed = compat.update_returning(
        mine if guard is None else mine.filter(guard),
        ("revision",),
        **leaving(RUNNING),
        phase=QUEUED,
        due_at=after(REDELIVER_SECONDS),
        deliveries=0,
        lease_holder=None,
        **values,
    )
    if not changed:
        return store.refusal(using, ref, leg)
    record(using, ref, kind, revision=changed[0][0], actor="worker", leg=leg, bounded=True)
    Effect(ref, enqueue=True).after_commit(using)
    return Outcome(True, "ok", changed[0][0])


#: Which token reason a refused heartbeat means.
STOP_REASONS = {"terminal": CANCELLED, "expired": EXPIRED, "gone": EXPIRED, "fenced": LEASE_LOST}
