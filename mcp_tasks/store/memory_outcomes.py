"""Questions, progress, outcomes and ttl in the store in memory: the first outcome wins."""

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from ..lifecycle import DONE, LIVE, RUNNING, TTL_MARGIN_SECONDS
from ..protocol.codec import Json, dumps
from ..protocol.errors import McpError
from ..protocol.tasks import CANCELLED, COMPLETED, FAILED
from ..tools import cancellation
from ..tools.context import check_finite
from ..tools.steps import RecordedStep
from . import rules
from .base import AnswerCheck
from .effects import SETTLED, Effect, answered, asked
from .memory_reading import Change, MemoryReading
from .memory_rows import Row, cleaned
from .types import AppliedResponses, Outcome, Requests, RetentionLimitExceeded, TaskView


class MemoryOutcomes(MemoryReading):
    """The asking, answering and settling operations of the store in memory."""

    def require_input(
        self,
        ref: UUID,
        requests: Requests,
        message: str | None = None,
        *,
        leg: int | None = None,
        live: bool = False,
        deadlines: Mapping[str, float] | None = None,
    ) -> Outcome:
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None:
                return change.refused(leg)
            told = asked(row.status)
            known = {key: (item.state, item.request_hash) for key, item in row.questions.items()}
            row.ask(rules.plan_questions(known, requests), deadlines or {}, change.now)
            # Server code that is no leg may ask while one runs: that leg goes on, as with a live ask.
            if row.phase != RUNNING or (leg is not None and not live):
                row.park()
            if message is not None:
                row.status_message = cleaned(message)
            return change.seen(row, signals=told)

    def apply_input_responses(
        self, ref: UUID, responses: Mapping[str, Json], check: AnswerCheck | None = None
    ) -> AppliedResponses | None:
        with self._change(ref) as change:
            row = change.admitted(None)
            if row is None:
                return None
            picked = rules.pick_answers(row.open_questions(), responses, check)
            self._answer(change, row, picked)
            ignored = tuple(key for key in responses if key not in picked)
            return AppliedResponses(tuple(picked), ignored, tuple(row.open_questions()))

    def record_step(self, ref: UUID, leg: int, name: str, args_hash: str, result: Json) -> Outcome:
        text = rules.step_text(name, result)
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None:
                return change.refused(leg)
            if name in row.steps:
                return rules.same_step(name, row.steps[name].args_hash, args_hash)
            row.steps[name] = RecordedStep(args_hash, text)
            return Outcome(True)

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
        wanted = (cleaned(message), None if done is None else float(done), None if total is None else float(total))
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None:
                return change.refused(leg)
            if wanted == (row.status_message, row.progress_done, row.progress_total):
                return Outcome(False, "unchanged")
            row.status_message, row.progress_done, row.progress_total = wanted
            return change.seen(row)

    def set_task_meta(self, ref: UUID, meta: dict[str, Json], *, leg: int | None = None) -> Outcome:
        text = rules.meta_text(meta)
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None:
                return change.refused(leg)
            row.meta_json = text
            return change.seen(row)

    def set_ttl(self, ref: UUID, ttl_ms: int | None, *, leg: int | None = None) -> bool:
        wanted = rules.changed_ttl_ms(ttl_ms)
        with self._change(ref) as change:
            row = change.row if leg is None else change.admitted(leg)
            # The last moments count as over: no reader may see "expired" and then "present".
            if row is None or not row.is_present(change.now + timedelta(seconds=TTL_MARGIN_SECONDS)):
                return False
            if row.ttl_ms == wanted:
                return True  # it has that time already: nothing that anybody could see would change
            row.set_ttl(wanted)
            if row.phase == DONE:
                # How long a finished task is kept is no news of the task itself.
                row.revision += 1
                change.effects.append(Effect(ref, row.revision))
            else:
                change.seen(row)
            return True

    def complete_task(
        self,
        ref: UUID,
        result: dict[str, Json],
        *,
        leg: int | None = None,
        status_message: str | None = None,
        durable: bool = True,
    ) -> Outcome:
        text = dumps(result)
        try:
            rules.limited("result", text)
        except RetentionLimitExceeded:
            refused = self.fail_task(ref, rules.oversized("result"), leg=leg)
            if refused:
                raise
            return refused
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None:
                return change.refused(leg)
            row.result_json, row.tool_error = text, bool(result.get("isError"))
            return self._settle(change, row, COMPLETED, status_message, leg=leg)

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
        try:
            rules.limited("error", text)
        except RetentionLimitExceeded:
            outcome = self.fail_task(ref, rules.oversized("error"), leg=leg, status_message=status_message)
            if not outcome:
                return outcome
            raise
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None:
                return change.refused(leg)
            row.error_json, row.traceback = text, traceback
            return self._settle(change, row, FAILED, status_message or error.message, leg=leg)

    def cancel_task(self, ref: UUID, reason: str | None = None, *, actor: str = "server") -> TaskView | None:
        with self._change(ref) as change:
            row = change.row
            if row is None or not row.is_present(change.now):
                return None
            row.cancel_requested_at = row.cancel_requested_at or change.now
            if row.phase in LIVE:
                self._settle(change, row, CANCELLED, reason)
            else:
                # Finished before: nothing of it changes, but whoever still works on it is told to stop.
                change.effects.append(Effect(ref, token=cancellation.CANCELLED))
            return row.view()

    def _answer(self, change: Change, row: Row, picked: Mapping[str, str]) -> None:
        if picked:
            queued = row.answer(picked, change.now)
            change.seen(row, enqueue=queued, signals=answered(row.status))

    def _settle(self, change: Change, row: Row, status: str, message: str | None, *, leg: int | None = None) -> Outcome:
        row.settle(status, message, change.now)
        if leg is not None:
            row.lease_holder = None
        # An outcome from elsewhere stops whatever leg still runs here.
        return change.seen(row, token=cancellation.CANCELLED if leg is None else None, signals=SETTLED)
