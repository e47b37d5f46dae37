"""
The verbs of operators: one task at a time, each with who did it, why, and the revision that was looked at.

They change no task that is finished, for its client may have read the outcome. A lost race is an ``Outcome``, never an
exception: ``changed`` says that the task is at another revision than the page showed.
"""

from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.db.models.functions import Least

from .. import compat
from ..dbtime import DbNow, after
from ..lifecycle import DONE, PARKED, QUEUED, REDELIVER_SECONDS, RUNNING, STATUS_MESSAGE_LENGTH, TTL_MARGIN_SECONDS
from ..models import Task, TaskEvent, TaskInput, TaskStep
from ..protocol.codec import dumps, plain_text, size_bytes
from ..protocol.errors import internal_error
from ..protocol.inputs import NOBODY_ANSWERED
from ..protocol.tasks import CANCELLED, FAILED, WORKING
from ..querysets import VISIBLE
from ..signals import task_requeued
from . import rollups, rules
from .effects import Effect
from .inputs import Inputs, answer
from .locking import absent, database, leaving, lock, record, rows, swap, transact
from .outcomes import Outcomes, ttl_columns
from .reading import open_questions
from .types import Outcome


class Operating(Outcomes, Inputs):
    """The operators' verbs of the database store."""

    def cancel(
        self, ref: UUID, *, actor: str, reason: str, revision: int | None = None, share_reason: bool = True
    ) -> Outcome:
        values = {
            "status": CANCELLED,
            "status_message": plain_text(reason, STATUS_MESSAGE_LENGTH) if share_reason else None,
            "cancel_requested_at": DbNow(),
        }
        return self._settle_as_operator(ref, "cancelled", values, actor=actor, reason=reason, revision=revision)

    def fail(
        self, ref: UUID, *, actor: str, reason: str, revision: int | None = None, share_reason: bool = False
    ) -> Outcome:
        error = internal_error(plain_text(reason, STATUS_MESSAGE_LENGTH) if share_reason else rules.FAILED_BY_OPERATOR)
        text = dumps(error.payload())
        values = {
            "status": FAILED,
            "status_message": error.message,
            "error_json": text,
            "payload_bytes": F("payload_bytes") + size_bytes(text),
        }
        return self._settle_as_operator(ref, "failed", values, actor=actor, reason=reason, revision=revision)

    def extend(self, ref: UUID, ttl_ms: int, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        wanted = rules.changed_ttl_ms(ttl_ms)

        def operation(using: str) -> Outcome:
            row = lock(using, ref, "ttl_ms")
            guard = Q(expires_at__gt=after(TTL_MARGIN_SECONDS))
            if row is None or not rows(using).filter(pk=ref).live().filter(guard).exists():
                return self._refused(using, ref, revision)
            if revision is not None and row.revision != revision:
                return Outcome(False, "changed")
            if wanted is not None and row.ttl_ms is not None and wanted <= row.ttl_ms:
                return Outcome(False, "not_applicable")
            new = swap(using, row, guard, **VISIBLE, **ttl_columns(row.phase, wanted, row.created_at))
            record(using, ref, "ttl", revision=new, actor=actor, detail={"ttl_ms": wanted, "reason": reason})
            Effect(ref, new).after_commit(using)
            return Outcome(True, "ok", new)

        return transact(operation)

    def requeue(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        def operation(using: str) -> Outcome:
            stalled = rows(using).filter(pk=ref, phase=RUNNING, status=WORKING, due_at__lte=DbNow()).fresh()
            changed = compat.update_returning(
                _at(stalled, revision),
                ("revision",),
                **leaving(RUNNING),
                phase=QUEUED,
                due_at=after(REDELIVER_SECONDS),
                deliveries=0,
                lease_holder=None,
                attempts=Least(F("attempts"), F("max_attempts") - 1),
            )
            if not changed:
                return self._refused(using, ref, revision)
            record(using, ref, "requeued", revision=changed[0][0], actor=actor, detail={"reason": reason})
            Effect(ref, enqueue=True, signals=(task_requeued,)).after_commit(using)
            return Outcome(True, "ok", changed[0][0])

        return transact(operation)

    def dismiss_inputs(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        def operation(using: str) -> Outcome:
            row = lock(using, ref)
            if row is None or absent(row) or row.phase != PARKED:
                return self._refused(using, ref, revision)
            if revision is not None and row.revision != revision:
                return Outcome(False, "changed")
            questions = open_questions(using, ref)
            picked = {key: dumps(NOBODY_ANSWERED) for key, (_, ask) in questions.items() if rules.is_form(ask)}
            if not picked:
                return Outcome(False, "not_applicable")
            detail = {"keys": len(picked), "reason": reason}
            answer(using, row, questions, picked, actor=actor, kind="dismissed", detail=detail)
            return Outcome(True, "ok", row.revision + 1)

        return transact(operation)

    def delete_terminal(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        def operation(using: str) -> Outcome:
            row = lock(using, ref)
            if row is None or absent(row):
                return self._refused(using, ref, revision)
            if revision is not None and row.revision != revision:
                return Outcome(False, "changed")
            if row.phase != DONE:
                return Outcome(False, "not_applicable")
            rollups.count_early(using, [ref])
            for satellite in (TaskEvent, TaskInput, TaskStep):
                satellite._base_manager.using(using).filter(task_id=ref)._raw_delete(using)
            Task.objects.using(using).filter(pk=ref, phase=DONE)._raw_delete(using)
            return Outcome(True, "ok", row.revision)

        return transact(operation)

    def note_refusal(self, ref: UUID, count: int) -> None:
        row = rows(database()).filter(pk=ref).present().values("revision").first()
        if row is not None:
            detail = {"count": count}
            transact(
                lambda using: record(
                    using, ref, "access_refused", revision=row["revision"], actor="client", detail=detail, bounded=True
                )
            )

    def _settle_as_operator(
        self, ref: UUID, kind: str, values: dict[str, Any], *, actor: str, reason: str, revision: int | None
    ) -> Outcome:
        def operation(using: str) -> Outcome:
            detail = {"reason": reason}
            outcome = self._settle(using, ref, None, kind, values, actor=actor, detail=detail, revision=revision)
            return outcome or self._refused(using, ref, revision)

        return transact(operation)

    def _refused(self, using: str, ref: UUID, revision: int | None) -> Outcome:
        """Why a verb was not applied: gone and finished say more than "changed"."""
        outcome = self.refusal(using, ref, None)
        if outcome.why != "not_applicable" or _at(rows(using).filter(pk=ref), revision).exists():
            return outcome
        return Outcome(False, "changed")


def _at(found: Any, revision: int | None) -> Any:
    return found if revision is None else found.filter(revision=revision)
