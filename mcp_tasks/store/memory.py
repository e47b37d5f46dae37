"""
A store in this process's memory: for unit tests of host projects, and as the model of the database store.

The clock can be handed in, so that a test moves time instead of sleeping. Nothing survives the process, and
no timeline is kept.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from ..lifecycle import (
    DONE,
    EXPIRED,
    OWNER_LABEL_LENGTH,
    PARKED,
    QUEUED,
    REDELIVER_LIMIT_SECONDS,
    REDELIVER_SECONDS,
    RUNNING,
)
from ..protocol.codec import Json, digest, dumps, plain_text
from ..protocol.inputs import NOBODY_ANSWERED
from ..protocol.tasks import FAILED, INPUT_REQUIRED, WORKING
from ..signals import task_created, task_expired, task_requeued
from ..tools import cancellation
from . import rules
from .effects import Effect
from .memory_operating import MemoryOperating
from .memory_reading import Change
from .memory_rows import Row, cleaned
from .types import (
    DEFAULT_TTL,
    NO_LIMITS,
    Claim,
    CreatedTask,
    IdempotencyConflict,
    Outcome,
    Owner,
    RunningLimit,
    SweepReport,
    TaskLimitReached,
    TtlMs,
    owner_key,
    ref_of,
)


class MemoryTaskStore(MemoryOperating):
    """All that ``TaskStore`` promises, while the process lives. ``clock`` returns an aware time in UTC."""

    # -- creation --------------------------------------------------------------------------------------------

    def create_task(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        owner: Owner | None = None,
        ttl_ms: TtlMs = DEFAULT_TTL,
        idempotency_key: str | None = None,
        method: str = "tools/call",
        poll_interval_ms: int | None = None,
        max_attempts: int = 1,
        priority: int = 0,
        context: dict[str, Json] | None = None,
        trace_context: str | None = None,
        status_message: str | None = None,
        meta: dict[str, Json] | None = None,
        deferred: bool = False,
        durable: bool = True,
    ) -> CreatedTask:
        key = owner_key(owner)
        task_id = secrets.token_urlsafe(32)
        now = self._clock()
        row = Row(
            ref=ref_of(task_id),
            task_id=task_id,
            tool=tool,
            method=method,
            owner_key=key,
            owner_label=None if owner is None else plain_text(owner.label, OWNER_LABEL_LENGTH),
            status=WORKING,
            phase=RUNNING if deferred else QUEUED,
            status_message=cleaned(status_message),
            leg=1 if deferred else 0,
            attempts=1 if deferred else 0,
            max_attempts=max_attempts,
            priority=priority,
            created_at=now,
            updated_at=now,
            started_at=now if deferred else None,
            due_at=now + timedelta(seconds=REDELIVER_SECONDS),
            ttl_ms=None,
            expires_at=None,
            poll_interval_ms=rules.checked_poll_interval_ms(poll_interval_ms),
            arguments_json=rules.limited("arguments", dumps(arguments)),
            context_json=rules.limited("context", dumps(context or {})),
            meta_json=None if meta is None else rules.meta_text(meta),
            lease_holder="deferred" if deferred else None,
            idempotency_key=None if owner is None else idempotency_key,
            idempotency_print=digest([method, tool, arguments]),
            trace_context=trace_context,
        )
        row.set_ttl(rules.checked_ttl_ms(ttl_ms))
        with self._lock:
            existing = self._keyed(row, now)
            if existing is not None:
                return self._created(existing, existed=True)
            self._check_room(key, now)
            self._rows[row.ref] = row
            created = self._created(row, existed=False)
        Effect(row.ref, enqueue=not deferred, signals=(task_created,)).run()
        return created

    def discard_task(self, ref: UUID) -> bool:
        with self._change(ref) as change:
            row = change.admitted(None)
            if row is None or row.phase != QUEUED or row.leg != 0:
                return False
            del self._rows[ref]
            return True

    def hand_over(self, ref: UUID, leg: int) -> Outcome:
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None or row.due_at is None:
                return change.refused(leg)
            row.due_at = None
            return change.unseen(row)

    # -- legs ------------------------------------------------------------------------------------------------

    def claim(
        self,
        ref: UUID | None = None,
        *,
        tools: tuple[str, ...] | None = None,
        limits: Mapping[str, RunningLimit] = NO_LIMITS,
        oldest_first: bool = False,
        holder: str = "",
    ) -> Claim | None:
        now = self._clock()
        with self._lock:
            candidates = self._rows.values() if ref is None else filter(None, [self._rows.get(ref)])
            ready = [row for row in candidates if row.is_claimable(tools, now) and self._has_room(row, limits)]
            if not ready:
                return None
            row = min(ready, key=lambda row: (0 if oldest_first else -row.priority, row.created_at))
            row.start_leg(holder, now)
            return Claim(row.ref, row.leg, row.tool, row.attempts, row.max_attempts)

    def heartbeat(self, ref: UUID, leg: int) -> Outcome:
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None or row.due_at is None:
                return change.refused(leg)
            row.renew(change.now)
            return Outcome(True)

    def end_leg(self, ref: UUID, leg: int) -> Outcome:
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None:
                return change.refused(leg)
            if row.status == INPUT_REQUIRED:
                row.park()
                return change.unseen(row)
            # Whoever asked may be tried again: its attempts count anew. For one that did not ask the bound holds.
            if row.attempts >= row.max_attempts:
                return change.refused(leg)
            row.queue(change.now)
            return change.unseen(row, enqueue=True)

    def release(self, ref: UUID, leg: int, *, unstarted_seconds: float | None = None) -> Outcome:
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None or row.status != WORKING or (row.max_attempts <= 1 and unstarted_seconds is None):
                return change.refused(leg)
            row.queue(change.now, back_off_seconds=unstarted_seconds)
            row.attempts = max(row.attempts - 1, 0)
            return change.unseen(row, enqueue=True, signals=(task_requeued,))

    def retry(self, ref: UUID, leg: int, *, after_seconds: float, why: str | None = None) -> Outcome:
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None or row.status != WORKING or row.attempts >= row.max_attempts:
                return change.refused(leg)
            row.queue(change.now, back_off_seconds=after_seconds)
            return change.unseen(row, signals=(task_requeued,))

    def let_go(self, ref: UUID, leg: int) -> Outcome:
        with self._change(ref) as change:
            row = change.row
            if row is None or row.phase != DONE or row.leg != leg or not row.is_present(change.now):
                return change.refused(leg)
            if row.lease_holder is None:
                return change.refused(leg)
            row.lease_holder = None
            return change.unseen(row)

    # -- janitor ---------------------------------------------------------------------------------------------

    def recover(self) -> SweepReport:
        report = SweepReport()
        for change, row in self._each(lambda row, now: row.is_due(RUNNING, now)):
            if row.status == INPUT_REQUIRED:
                row.park()
                report.recovered += 1
            elif row.attempts < row.max_attempts:
                row.queue(change.now)
                change.unseen(row, enqueue=True, signals=(task_requeued,))
                report.recovered += 1
            else:
                row.error_json = dumps(rules.LEG_LOST.payload())
                row.lease_holder = None
                self._settle(change, row, FAILED, rules.LEG_LOST.message)
                report.failed += 1
        return report

    def redeliver(self) -> SweepReport:
        report = SweepReport()
        for change, row in self._each(lambda row, now: row.is_due(QUEUED, now)):
            pause = min(REDELIVER_SECONDS * 2**row.deliveries, REDELIVER_LIMIT_SECONDS)
            row.due_at = change.now + timedelta(seconds=pause)
            row.deliveries += 1
            change.unseen(row, enqueue=True)
            report.redelivered += 1
        return report

    def answer_overdue(self) -> SweepReport:
        report = SweepReport()
        nobody = dumps(NOBODY_ANSWERED)
        for change, row in self._each(lambda row, now: row.is_due(PARKED, now)):
            self._answer(change, row, dict.fromkeys(row.overdue(change.now), nobody))
            report.timed_out += 1
        return report

    def expire(self) -> SweepReport:
        report = SweepReport()
        for change, row in self._each(lambda row, now: row.phase != EXPIRED and not row.is_present(now)):
            row.bury(change.now)
            change.effects.append(Effect(row.ref, row.revision, token=cancellation.EXPIRED, signals=(task_expired,)))
            report.expired += 1
        return report

    def purge(self) -> SweepReport:
        report = SweepReport()
        for _, row in self._each(lambda row, now: row.is_over(now)):
            del self._rows[row.ref]
            report.purged += 1
        return report

    # -- inside ----------------------------------------------------------------------------------------------

    def _each(self, guard: Callable[[Row, datetime], bool]) -> Iterator[tuple[Change, Row]]:
        """The rows that a step of the janitor is about, each in an operation of its own."""
        with self._lock:
            refs = list(self._rows)
        for ref in refs:
            with self._change(ref) as change:
                if change.row is not None and guard(change.row, change.now):
                    yield change, change.row

    def _keyed(self, wanted: Row, now: datetime) -> Row | None:
        """The task that this owner made under this key; raises IdempotencyConflict for another call."""
        if wanted.idempotency_key is None:
            return None
        name = (wanted.owner_key, wanted.idempotency_key)
        for row in self._rows.values():
            if (row.owner_key, row.idempotency_key) == name and row.is_present(now):
                if row.idempotency_print != wanted.idempotency_print:
                    raise IdempotencyConflict("the idempotency key was used with another tool or other arguments")
                return row
        return None

    def _check_room(self, key: str | None, now: datetime) -> None:
        limit = rules.live_limit(key)
        live = sum(row.owner_key == key and row.is_live(now) for row in self._rows.values())
        if limit is not None and live >= limit:
            raise TaskLimitReached("task limit reached")

    def _has_room(self, wanted: Row, limits: Mapping[str, RunningLimit]) -> bool:
        limit = limits.get(wanted.tool)
        if limit is None:
            return True
        running = [row for row in self._rows.values() if row.phase == RUNNING and row.tool == wanted.tool]
        of_owner = sum(row.owner_key == wanted.owner_key for row in running)
        return not limit.is_reached(total=len(running), of_owner=of_owner)

    def _created(self, row: Row, *, existed: bool) -> CreatedTask:
        return CreatedTask(row.task_id, row.ref, self._token(row.ref), existed, row.snapshot())
