"""
Rows of the store in memory: what a task is there, which guards it passes, and how its state changes.

Every method is handed the time, so that one operation sees one instant. Nothing here locks or notifies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from .. import conf
from ..lifecycle import (
    ANSWERED,
    DONE,
    EXPIRED,
    LIVE,
    OUTSTANDING,
    PARKED,
    QUEUED,
    REDELIVER_SECONDS,
    RUNNING,
    STATUS_MESSAGE_LENGTH,
    SUPERSEDED,
    WITHDRAWN,
)
from ..protocol.codec import digest, dumps, loads, plain_text
from ..protocol.tasks import INPUT_REQUIRED, WORKING
from ..tools.context import RecordedAnswer
from ..tools.steps import RecordedStep
from .rules import KeyPlan
from .types import Requests, TaskSnapshot, TaskView, Why


def cleaned(text: str | None) -> str | None:
    """A status message as it is kept."""
    return None if text is None else plain_text(text, STATUS_MESSAGE_LENGTH)


@dataclass(slots=True, kw_only=True)
class Question:
    """One key ever issued. It leaves ``outstanding`` once and never comes back."""

    request_json: str
    request_hash: str
    deadline_at: datetime | None = None
    state: str = OUTSTANDING
    answer_json: str | None = None
    answered_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class Row:
    """One task with its questions, under the names of the table: the two stores can be read side by side."""

    ref: UUID
    task_id: str
    tool: str
    method: str
    owner_key: str | None
    owner_label: str | None
    status: str
    phase: str
    status_message: str | None
    leg: int
    attempts: int
    max_attempts: int
    priority: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    due_at: datetime | None
    ttl_ms: int | None
    expires_at: datetime | None
    poll_interval_ms: int
    arguments_json: str
    context_json: str
    meta_json: str | None
    lease_holder: str | None
    idempotency_key: str | None
    idempotency_print: str
    trace_context: str | None
    revision: int = 1
    deliveries: int = 0
    progress_done: float | None = None
    progress_total: float | None = None
    finished_at: datetime | None = None
    #: Of a tombstone, or of a finished task without ttl: when it is removed.
    sweep_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    not_before: datetime | None = None
    tool_error: bool = False
    asks_json: str | None = None
    result_json: str | None = None
    error_json: str | None = None
    traceback: str | None = None
    questions: dict[str, Question] = field(default_factory=dict)
    steps: dict[str, RecordedStep] = field(default_factory=dict)

    # -- guards ----------------------------------------------------------------------------------------------

    def is_present(self, now: datetime) -> bool:
        """Neither a tombstone nor past its ttl."""
        return self.phase != EXPIRED and (self.expires_at is None or self.expires_at > now)

    def is_live(self, now: datetime) -> bool:
        """Something is still to happen, and the ttl is not over."""
        return self.phase in LIVE and self.is_present(now)

    def is_mine(self, leg: int, now: datetime) -> bool:
        """The fence: this leg is the running one."""
        return self.phase == RUNNING and self.leg == leg and self.is_present(now)

    def admits(self, leg: int | None, now: datetime) -> bool:
        """The guard of a write: the fence of a leg, or live where the caller is none."""
        return self.is_live(now) if leg is None else self.is_mine(leg, now)

    def is_due(self, phase: str, now: datetime) -> bool:
        """In this phase, and its timer has run out."""
        return self.phase == phase and self.due_at is not None and self.due_at <= now and self.is_present(now)

    def is_over(self, now: datetime) -> bool:
        """Nobody needs it any more: a tombstone, or finished without ttl, whose time of removal has come."""
        is_kept = self.phase == EXPIRED or (self.phase == DONE and self.expires_at is None)
        return is_kept and self.sweep_at is not None and self.sweep_at <= now

    def is_claimable(self, tools: tuple[str, ...] | None, now: datetime) -> bool:
        """Waits for a leg, of one of these tools, and its back-off is over."""
        waits = self.phase == QUEUED and self.is_present(now)
        rested = self.not_before is None or self.not_before <= now
        return waits and rested and (tools is None or self.tool in tools)

    def why_not(self, leg: int | None, now: datetime) -> Why:
        """Why a guard refused a write."""
        if not self.is_present(now):
            return "expired"
        if self.phase == DONE:
            return "terminal"
        if leg is not None and not self.is_mine(leg, now):
            return "fenced"
        return "not_applicable"

    # -- views -----------------------------------------------------------------------------------------------

    def view(self) -> TaskView:
        values: dict[str, Any] = {name: getattr(self, name) for name in TaskView.__dataclass_fields__}
        return TaskView(**values)

    def snapshot(self) -> TaskSnapshot:
        return TaskSnapshot(
            task=self.view(),
            input_requests_json=self.asks_json,
            result_json=self.result_json,
            error_json=self.error_json,
            meta_json=self.meta_json,
        )

    def open_questions(self) -> Requests:
        """The outstanding questions, in the order in which they were first asked."""
        asked = ((key, item) for key, item in self.questions.items() if item.state == OUTSTANDING)
        return {key: loads(item.request_json) for key, item in asked}

    def overdue(self, now: datetime) -> tuple[str, ...]:
        """The keys of open questions whose deadline is over."""
        asked = [(key, item.deadline_at) for key, item in self.questions.items() if item.state == OUTSTANDING]
        return tuple(sorted(key for key, deadline in asked if deadline is not None and deadline <= now))

    def answers(self) -> dict[str, RecordedAnswer]:
        """Every answer so far, in the order in which they came."""
        given = sorted(
            (item.answered_at, order, key, item.answer_json, item.request_hash)
            for order, (key, item) in enumerate(self.questions.items())
            if item.answered_at is not None and item.answer_json is not None
        )
        return {key: RecordedAnswer(loads(answer), question) for _, _, key, answer, question in given}

    # -- changes ---------------------------------------------------------------------------------------------

    def touch(self, now: datetime) -> None:
        """A client can see the change."""
        self.revision += 1
        self.updated_at = max(self.updated_at, now)

    def start_leg(self, holder: str, now: datetime) -> None:
        """Hand out the next leg under a fresh lease."""
        self.phase, self.leg, self.attempts = RUNNING, self.leg + 1, self.attempts + 1
        self.started_at = self.started_at or now
        self.lease_holder = holder[:100] or None
        self.renew(now)

    def renew(self, now: datetime) -> None:
        """The lease of the running leg begins anew."""
        self.due_at = now + timedelta(seconds=conf.get_settings().LEASE_SECONDS)

    def queue(self, now: datetime, *, back_off_seconds: float | None = None) -> None:
        """A leg should start: at once, or after a back-off."""
        wait = REDELIVER_SECONDS if back_off_seconds is None else back_off_seconds
        self.phase, self.deliveries, self.lease_holder = QUEUED, 0, None
        self.due_at = now + timedelta(seconds=wait)
        self.not_before = None if back_off_seconds is None else self.due_at

    def park(self) -> None:
        """No leg any more, until the questions are answered; the timer is the earliest deadline."""
        self.phase, self.lease_holder = PARKED, None
        self.set_alarm()

    def set_alarm(self) -> None:
        """The timer of a parked task: when its first open question must be answered."""
        deadlines = [item.deadline_at for item in self.questions.values() if item.state == OUTSTANDING]
        self.due_at = min((at for at in deadlines if at is not None), default=None)

    def ask(self, plan: KeyPlan, deadlines: Mapping[str, float], now: datetime) -> None:
        """Replace the outstanding set. Attempts count anew: with the answers a new stretch of work begins."""
        for key in plan.superseded:
            self.questions[key].state = SUPERSEDED
        for key, request in plan.inserted.items():
            deadline = now + timedelta(seconds=deadlines[key]) if key in deadlines else None
            self.questions[key] = Question(
                request_json=dumps(request), request_hash=digest(request), deadline_at=deadline
            )
        self.status, self.attempts, self.asks_json = INPUT_REQUIRED, 0, plan.asks_json

    def answer(self, picked: Mapping[str, str], now: datetime) -> bool:
        """Store answers to open questions; True when the last one queued the next leg."""
        for key, text in picked.items():
            item = self.questions[key]
            item.state, item.answer_json, item.answered_at = ANSWERED, text, now
        left = self.open_questions()
        if left:
            self.asks_json = dumps(left)
            if self.phase == PARKED:
                self.set_alarm()
            return False
        self.status, self.asks_json = WORKING, None
        if self.phase != PARKED:
            return False  # the live leg, or the end of it, goes on
        self.queue(now)
        return True

    def settle(self, status: str, message: str | None, now: datetime) -> None:
        """Terminal from here on. Without a ttl it is removed when its retention is over."""
        self.status, self.phase = status, DONE
        self.status_message = cleaned(message)
        self.asks_json = self.due_at = self.not_before = None
        self.finished_at = now
        for item in self.questions.values():
            if item.state == OUTSTANDING:
                item.state = WITHDRAWN
        self.sweep_at = now + timedelta(seconds=conf.get_settings().RETENTION_SECONDS)

    def set_ttl(self, ttl_ms: int | None) -> None:
        """Another ttl, measured from creation."""
        self.ttl_ms = ttl_ms
        self.expires_at = None if ttl_ms is None else self.created_at + timedelta(milliseconds=ttl_ms)

    def bury(self, now: datetime) -> None:
        """A tombstone from here on: the payload is gone, the status stays what it was."""
        self.phase = EXPIRED
        self.status_message = self.asks_json = self.meta_json = None
        self.result_json = self.error_json = self.traceback = None
        self.arguments_json = self.context_json = "{}"
        self.questions.clear()
        self.steps.clear()
        self.sweep_at = now + timedelta(seconds=conf.get_settings().TOMBSTONE_SECONDS)
        self.revision += 1
