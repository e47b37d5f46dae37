"""
What the operations of the store in memory are built of, and those that only look.

An operation sees one instant of the clock, under one lock; its effects happen once the lock is free.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from django.dispatch import Signal

from ..protocol.codec import Json, loads
from ..protocol.tasks import is_task_id
from ..signals import access_refused
from ..tools import cancellation
from ..tools.steps import RecordedStep
from .base import TaskStore
from .effects import Effect, send
from .memory_rows import Row
from .types import (
    Expired,
    Missing,
    Outcome,
    Owner,
    Present,
    Requests,
    ResumeContext,
    TaskSnapshot,
    TaskView,
    owner_key,
    ref_of,
)

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The clock of the machine."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Change:
    """One operation on one task: its row, the instant that it sees, and the effects that it will have."""

    ref: UUID
    row: Row | None
    now: datetime
    effects: list[Effect] = field(default_factory=list)

    def admitted(self, leg: int | None) -> Row | None:
        """The row, when the guard of a write lets this caller change it."""
        return self.row if self.row is not None and self.row.admits(leg, self.now) else None

    def refused(self, leg: int | None) -> Outcome:
        """Not applied, and why."""
        return Outcome(False, "gone" if self.row is None else self.row.why_not(leg, self.now))

    def seen(
        self, row: Row, *, enqueue: bool = False, token: str | None = None, signals: tuple[Signal, ...] = ()
    ) -> Outcome:
        """Applied, and a client can see it."""
        row.touch(self.now)
        self.effects.append(Effect(self.ref, row.revision, token=token, enqueue=enqueue, signals=signals))
        return Outcome(True, "ok", row.revision)

    def unseen(self, row: Row, *, enqueue: bool = False, signals: tuple[Signal, ...] = ()) -> Outcome:
        """Applied, and of no interest to a client."""
        self.effects.append(Effect(self.ref, enqueue=enqueue, signals=signals))
        return Outcome(True, "ok", row.revision)


class MemoryReading(TaskStore):
    """The reading operations of the store in memory."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or utc_now
        # Re-entrant: the check of an answer, and a hook, may look at the store.
        self._lock = threading.RLock()
        self._rows: dict[UUID, Row] = {}

    def resolve(self, task_id: str, owner: Owner | None, *, payload: bool = False) -> Present | Expired | Missing:
        if not is_task_id(task_id):
            return Missing()
        ref = ref_of(task_id)
        with self._change(ref) as change:
            row = change.row
            if row is not None and row.owner_key == owner_key(owner):
                if not row.is_present(change.now):
                    return Expired(row.ref, row.owner_key)
                return Present(row.ref, row.owner_key, row.tool, row.snapshot() if payload else None)
        if row is not None:
            send(access_refused, ref, revision=None, reason="owner")
        return Missing()

    def task_presence(self, ref: UUID) -> Present | Expired | Missing:
        with self._change(ref) as change:
            if change.row is None:
                return Missing()
            if not change.row.is_present(change.now):
                return Expired(ref, change.row.owner_key)
            return Present(ref, change.row.owner_key, change.row.tool)

    def get_task_result(self, ref: UUID) -> TaskSnapshot | None:
        row = self._present(ref)
        return None if row is None else row.snapshot()

    def snapshots(self, refs: Collection[UUID]) -> dict[UUID, TaskSnapshot]:
        now = self._clock()
        with self._lock:
            found = [self._rows[ref] for ref in refs if ref in self._rows]
            return {row.ref: row.snapshot() for row in found if row.is_present(now)}

    def revisions(self, refs: Collection[UUID]) -> dict[UUID, int]:
        return {ref: snapshot.task.revision for ref, snapshot in self.snapshots(refs).items()}

    def list_tasks(self, *, status: str | None = None) -> Iterator[TaskView]:
        now = self._clock()
        with self._lock:
            found = [row.view() for row in self._rows.values() if row.is_present(now)]
        return iter([view for view in found if status is None or view.status == status])

    def outstanding_input_requests(self, ref: UUID) -> Requests | None:
        row = self._present(ref)
        if row is None:
            return None
        return {} if row.asks_json is None else loads(row.asks_json)

    def input_responses(self, ref: UUID) -> dict[str, Json]:
        row = self._present(ref)
        return {} if row is None else {key: item.answer for key, item in row.answers().items()}

    def resume_context(self, ref: UUID, leg: int | None = None) -> ResumeContext | None:
        with self._change(ref) as change:
            row = change.admitted(leg)
            if row is None:
                return None
            return ResumeContext(
                ref=ref,
                leg=row.leg,
                tool=row.tool,
                attempts=row.attempts,
                max_attempts=row.max_attempts,
                arguments=loads(row.arguments_json),
                answers=row.answers(),
                owner_key=row.owner_key,
                owner_label=row.owner_label,
                context=loads(row.context_json),
                token=self._token(ref),
            )

    def recorded_steps(self, ref: UUID) -> dict[str, RecordedStep]:
        row = self._present(ref)
        return {} if row is None else dict(row.steps)

    @contextmanager
    def _change(self, ref: UUID) -> Iterator[Change]:
        with self._lock:
            change = Change(ref, self._rows.get(ref), self._clock())
            yield change
        for effect in change.effects:
            effect.run()

    def _present(self, ref: UUID) -> Row | None:
        with self._change(ref) as change:
            return change.row if change.row is not None and change.row.is_present(change.now) else None

    def _token(self, ref: UUID) -> cancellation.CancellationToken:
        return cancellation.token_for(ref, lambda: self._stopped(ref))

    def _stopped(self, ref: UUID) -> str | None:
        row = self._present(ref)
        if row is None:
            return cancellation.EXPIRED
        return None if row.cancel_requested_at is None else cancellation.CANCELLED
