"""The verbs of operators in the store in memory."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from ..lifecycle import DONE, LIVE, PARKED, RUNNING, TTL_MARGIN_SECONDS
from ..protocol.codec import dumps, plain_text
from ..protocol.errors import internal_error
from ..protocol.inputs import NOBODY_ANSWERED
from ..protocol.tasks import CANCELLED, FAILED, WORKING
from ..signals import task_requeued
from . import rules
from .memory_outcomes import MemoryOutcomes
from .memory_reading import Change
from .memory_rows import Row
from .types import Outcome

_REASON_LENGTH = 1000


class MemoryOperating(MemoryOutcomes):
    """The operators' verbs; who did it and why is not kept, since this store has no timeline."""

    def cancel(
        self, ref: UUID, *, actor: str, reason: str, revision: int | None = None, share_reason: bool = True
    ) -> Outcome:
        def apply(change: Change, row: Row) -> Outcome:
            row.cancel_requested_at = change.now
            return self._settle(change, row, CANCELLED, reason if share_reason else None)

        return self._operate(ref, revision, lambda row, change: row.phase in LIVE, apply)

    def fail(
        self, ref: UUID, *, actor: str, reason: str, revision: int | None = None, share_reason: bool = False
    ) -> Outcome:
        def apply(change: Change, row: Row) -> Outcome:
            text = plain_text(reason, _REASON_LENGTH) if share_reason else rules.FAILED_BY_OPERATOR
            row.error_json = dumps(internal_error(text).payload())
            return self._settle(change, row, FAILED, text)

        return self._operate(ref, revision, lambda row, change: row.phase in LIVE, apply)

    def extend(self, ref: UUID, ttl_ms: int, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        wanted = rules.changed_ttl_ms(ttl_ms)

        def admits(row: Row, change: Change) -> bool:
            ends = row.expires_at is not None
            return row.phase in LIVE and ends and row.is_present(change.now + timedelta(seconds=TTL_MARGIN_SECONDS))

        def apply(change: Change, row: Row) -> Outcome:
            if wanted is not None and row.ttl_ms is not None and wanted <= row.ttl_ms:
                return Outcome(False, "not_applicable")
            row.set_ttl(wanted)
            return change.seen(row)

        return self._operate(ref, revision, admits, apply)

    def requeue(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        def apply(change: Change, row: Row) -> Outcome:
            row.queue(change.now)
            row.attempts = min(row.attempts, row.max_attempts - 1)
            return change.unseen(row, enqueue=True, signals=(task_requeued,))

        return self._operate(
            ref, revision, lambda row, change: row.status == WORKING and row.is_due(RUNNING, change.now), apply
        )

    def dismiss_inputs(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        def apply(change: Change, row: Row) -> Outcome:
            forms = [key for key, question in row.open_questions().items() if rules.is_form(question)]
            if not forms:
                return Outcome(False, "not_applicable")
            self._answer(change, row, dict.fromkeys(forms, dumps(NOBODY_ANSWERED)))
            return Outcome(True, "ok", row.revision)

        return self._operate(ref, revision, lambda row, change: row.phase == PARKED, apply)

    def delete_terminal(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        def apply(change: Change, row: Row) -> Outcome:
            if row.phase != DONE:
                return Outcome(False, "not_applicable")
            del self._rows[ref]
            return Outcome(True, "ok", row.revision)

        return self._operate(ref, revision, lambda row, change: True, apply)

    def _operate(
        self,
        ref: UUID,
        revision: int | None,
        admits: Callable[[Row, Change], bool],
        apply: Callable[[Change, Row], Outcome],
    ) -> Outcome:
        with self._change(ref) as change:
            row = change.row
            is_other = row is not None and revision is not None and row.revision != revision
            if row is not None and row.is_present(change.now) and admits(row, change):
                return Outcome(False, "changed") if is_other else apply(change, row)
            refused = change.refused(None)
            return Outcome(False, "changed") if refused.why == "not_applicable" and is_other else refused
