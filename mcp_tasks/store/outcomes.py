"""Progress, complete, fail, cancel, ttl, meta: what moves a task on from wherever it is; the first outcome wins."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Q, Subquery

from .. import compat, conf
from ..dbtime import DbNow, after, moved
from ..lifecycle import (
    DONE,
    EXPIRED,
    OUTSTANDING,
    STATUS_MESSAGE_LENGTH,
    TOOL_ERROR,
    TTL_MARGIN_SECONDS,
    WITHDRAWN,
)
from ..models import TaskInput
from ..protocol.codec import Json, dumps, plain_text, size_bytes
from ..protocol.errors import McpError
from ..protocol.tasks import CANCELLED, COMPLETED, FAILED
from ..querysets import VISIBLE, TaskQuerySet
from ..tools import cancellation
from ..tools.context import check_finite
from . import rules
from .effects import SETTLED, SPENT, Effect, settled_moment
from .locking import leaving_any, lock, record, rows, settled, swap, transact
from .reading import Reading
from .types import Detail, Outcome, RetentionLimitExceeded, TaskView

_TRACEBACK_LENGTH = 16 * 1024


class Outcomes(Reading):
    """The settling operations of the database store, and the small ones beside them."""

    def set_status(
        self,
        ref: UUID,
        message: str | None,
        *,
        done: float | None = None,
        total: float | None = None,
        leg: int | None = None,
    ) -> Outcome:
        check_finite(done=done, total=total)
        text = None if message is None else plain_text(message, STATUS_MESSAGE_LENGTH)
        values = {"status_message": text, "progress_done": done, "progress_total": total}

        def operation(using: str) -> Outcome:
            differs = Q(*[~_same(name, value) for name, value in values.items()], _connector=Q.OR)
            changed = compat.update_returning(
                _guarded(using, ref, leg).filter(differs), ("revision",), **VISIBLE, **values
            )
            if changed:
                Effect(ref, changed[0][0]).after_commit(using)
                return Outcome(True, "ok", changed[0][0])
            if _guarded(using, ref, leg).exists():
                return Outcome(False, "unchanged")
            return self.refusal(using, ref, leg)

        return transact(operation)

    def set_task_meta(self, ref: UUID, meta: dict[str, Json], *, leg: int | None = None) -> Outcome:
        text = rules.meta_text(meta)

        def operation(using: str) -> Outcome:
            changed = compat.update_returning(_guarded(using, ref, leg), ("revision",), **VISIBLE, meta_json=text)
            if not changed:
                return self.refusal(using, ref, leg)
            Effect(ref, changed[0][0]).after_commit(using)
            return Outcome(True, "ok", changed[0][0])

        return transact(operation)

    def set_ttl(self, ref: UUID, ttl_ms: int | None, *, leg: int | None = None) -> bool:
        wanted = rules.changed_ttl_ms(ttl_ms)

        def operation(using: str) -> bool:
            row = lock(using, ref, "ttl_ms")
            if row is None or row.phase == EXPIRED:
                return False
            if leg is not None and not _guarded(using, ref, leg).exists():
                return False
            # Two moments before the end count as over: between guard and commit a reader may see "expired".
            guard = Q(expires_at=None) | Q(expires_at__gt=after(TTL_MARGIN_SECONDS))
            if not rows(using).filter(pk=ref).filter(guard).exists():
                return False
            if row.ttl_ms == wanted:
                return True  # it has that time already: nothing that anybody could see would change
            values: dict[str, Any] = {
                "revision": VISIBLE["revision"],
                **ttl_columns(row.phase, wanted, row.created_at),
            }
            if row.phase != DONE:
                values = {**VISIBLE, **values}
            revision = swap(using, row, guard, **values)
            detail = {"ttl_ms": wanted}
            record(using, ref, "ttl", revision=revision, actor="server", leg=leg, detail=detail, bounded=True)
            Effect(ref, revision).after_commit(using)
            return True

        return transact(operation)

    def complete_task(
        self,
        ref: UUID,
        result: dict[str, Json],
        *,
        leg: int | None = None,
        status_message: str | None = None,
        durable: bool = True,
    ) -> Outcome:
        try:
            text = rules.limited("result", dumps(result))
        except RetentionLimitExceeded:
            outcome = self.fail_task(ref, rules.oversized("result"), leg=leg, durable=durable)
            if not outcome:
                return outcome
            raise
        values = {
            "status": COMPLETED,
            "status_message": None if status_message is None else plain_text(status_message, STATUS_MESSAGE_LENGTH),
            "result_json": text,
            "tool_error": bool(result.get("isError")),
            "payload_bytes": F("payload_bytes") + size_bytes(text),
        }
        return transact(lambda using: self._settle(using, ref, leg, "completed", values), durable=durable)

    def fail_task(
        self,
        ref: UUID,
        error: McpError,
        *,
        leg: int | None = None,
        status_message: str | None = None,
        traceback: str | None = None,
        durable: bool = True,
        kind: str = "failed",
    ) -> Outcome:
        text = dumps(error.payload())
        exceeded = None
        try:
            rules.limited("error", text)
        except RetentionLimitExceeded as problem:
            exceeded, error = problem, rules.oversized("error")
            text = dumps(error.payload())
        values = {
            "status": FAILED,
            "status_message": plain_text(status_message or error.message, STATUS_MESSAGE_LENGTH),
            "error_json": text,
            "traceback": None if traceback is None else plain_text(traceback, _TRACEBACK_LENGTH),
            "payload_bytes": F("payload_bytes") + size_bytes(text),
        }
        detail = {"code": error.code}
        outcome = transact(lambda using: self._settle(using, ref, leg, kind, values, detail=detail), durable=durable)
        if outcome and exceeded is not None:
            raise exceeded
        return outcome

    def cancel_task(self, ref: UUID, reason: str | None = None, *, actor: str = "server") -> TaskView | None:
        values = {
            "status": CANCELLED,
            "status_message": None if reason is None else plain_text(reason, STATUS_MESSAGE_LENGTH),
            "cancel_requested_at": DbNow(),
        }

        def operation(using: str) -> bool:
            outcome = self._settle(using, ref, None, "cancelled", values, actor=actor)
            if outcome.why == "terminal":
                # Finished before: nothing of it changes, but whoever still works on it is told to stop.
                finished = rows(using).filter(pk=ref, phase=DONE, cancel_requested_at=None).fresh()
                finished.update(cancel_requested_at=DbNow())
                moment = ("cancel", {"actor": actor, "effect": "none"})
                Effect(ref, token=cancellation.CANCELLED, moment=moment).after_commit(using)
            return bool(outcome)

        transact(operation)
        return self.get_task(ref)

    def _settle(
        self,
        using: str,
        ref: UUID,
        leg: int | None,
        kind: str,
        values: dict[str, Any],
        *,
        actor: str | None = None,
        detail: Detail | None = None,
        revision: int | None = None,
    ) -> Outcome:
        """One guarded UPDATE to a terminal status, then what hangs on it."""
        retention = conf.get_settings().RETENTION_SECONDS
        guarded = _guarded(using, ref, leg)
        changed = compat.update_returning(
            guarded if revision is None else guarded.filter(revision=revision),
            ("revision", *SPENT),
            **leaving_any(),
            **VISIBLE,
            **settled(retention),
            **values,
            **({"lease_holder": None} if leg is not None else {}),
            phase=DONE,
        )
        if not changed:
            outcome = self.refusal(using, ref, leg)
            if leg is not None and outcome.why in ("terminal", "fenced"):
                # Whoever looks at the task is to see that work came too late; the task itself does not change.
                late = {"outcome": kind, "why": outcome.why}
                at = Subquery(rows(using).filter(pk=ref).values("revision"))
                record(using, ref, "late_result", revision=at, actor="worker", leg=leg, detail=late, bounded=True)
            return outcome
        revision, *spent = changed[0]
        withdraw(using, ref)
        if actor is None:
            actor = "server" if leg is None else "worker"
        record(using, ref, kind, revision=revision, actor=actor, leg=leg, detail=detail)
        # An outcome from elsewhere stops whatever leg still runs here.
        token = cancellation.CANCELLED if leg is None else None
        outcome_of = TOOL_ERROR if values.get("tool_error") else values["status"]
        moment = settled_moment(outcome_of, *spent)
        Effect(ref, revision, token=token, signals=SETTLED, moment=moment).after_commit(using)
        if values["status"] == CANCELLED:
            Effect(ref, moment=("cancel", {"actor": actor, "effect": "settled"})).after_commit(using)
        return Outcome(True, "ok", revision)


def withdraw(using: str, ref: UUID) -> None:
    """Close the questions of a task that ended without their answers."""
    TaskInput.objects.using(using).filter(task_id=ref, state=OUTSTANDING).update(state=WITHDRAWN)


def _guarded(using: str, ref: UUID, leg: int | None) -> TaskQuerySet:
    """The fence of a leg; for server code that is no leg: live and not expired."""
    found: TaskQuerySet = rows(using)
    return found.filter(pk=ref).live().fresh() if leg is None else found.mine(ref, leg)


def _same(name: str, value: Any) -> Q:
    return Q(**{f"{name}__isnull": True}) if value is None else Q(**{name: value})


def ttl_columns(phase: str, ttl_ms: int | None, created_at: datetime) -> dict[str, Any]:
    """The columns that another ttl sets; without one a finished task is kept as long as finished tasks are."""
    if ttl_ms is None:
        retention = timedelta(seconds=conf.get_settings().RETENTION_SECONDS)
        sweep_at = moved("finished_at", retention) if phase == DONE else None
        return {"ttl_ms": None, "expires_at": None, "sweep_at": sweep_at}
    expires_at = created_at + timedelta(milliseconds=ttl_ms)
    return {"ttl_ms": ttl_ms, "expires_at": expires_at, "sweep_at": expires_at}
