"""Questions and answers: ask, park, answer. The row is locked, so two callers can never both think they were last."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import F, Q

from .. import observing
from ..dbtime import DbNow, after
from ..lifecycle import (
    ANSWERED,
    DONE,
    OUTSTANDING,
    PARKED,
    QUEUED,
    REDELIVER_SECONDS,
    RUNNING,
    STATUS_MESSAGE_LENGTH,
    SUPERSEDED,
)
from ..models import Task, TaskInput
from ..protocol.codec import Json, digest, dumps, plain_text, size_bytes
from ..protocol.tasks import INPUT_REQUIRED, WORKING
from ..querysets import VISIBLE, fresh
from . import rules
from .base import AnswerCheck
from .effects import Effect, answered, asked
from .locking import Stale, absent, earliest_deadline, leaving, lock, record, swap, transact
from .reading import Reading, open_questions
from .types import AppliedResponses, Detail, Outcome, Requests


class Inputs(Reading):
    """The asking and answering operations of the database store."""

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
        def operation(using: str) -> Outcome:
            row = lock(using, ref)
            if row is None or absent(row) or row.phase not in (QUEUED, RUNNING, PARKED):
                return self.refusal(using, ref, leg)
            if leg is not None and (row.phase != RUNNING or row.leg != leg):
                return self.refusal(using, ref, leg)
            known = TaskInput.objects.using(using).filter(task_id=ref).values_list("key", "state", "request_hash")
            plan = rules.plan_questions({key: (state, hash_) for key, state, hash_ in known}, requests)
            parks = row.phase == PARKED or row.phase == QUEUED or (leg is not None and not live)
            _issue(using, row, plan, deadlines or {})
            values: dict[str, Any] = dict(VISIBLE)
            if parks:
                values |= {} if row.phase == PARKED else leaving(row.phase)
                values |= {
                    "phase": PARKED,
                    "due_at": earliest_deadline(),
                    "not_before": None,
                    "lease_holder": None,
                }
            if message is not None:
                values["status_message"] = plain_text(message, STATUS_MESSAGE_LENGTH)
            size = sum(size_bytes(dumps(request)) for request in plan.inserted.values())
            values |= {"status": INPUT_REQUIRED, "attempts": 0, "asks_json": plan.asks_json}
            values["payload_bytes"] = F("payload_bytes") + size
            revision = swap(using, row, fresh(), **values)
            detail = {"asked": len(plan.inserted), "superseded": len(plan.superseded)}
            actor = "server" if leg is None else "worker"
            record(using, ref, "asked", revision=revision, actor=actor, leg=leg, detail=detail)
            Effect(ref, revision, signals=asked(row.status)).after_commit(using)
            return Outcome(True, "ok", revision)

        return transact(operation)

    def apply_input_responses(
        self, ref: UUID, responses: Mapping[str, Json], check: AnswerCheck | None = None
    ) -> AppliedResponses | None:
        def operation(using: str) -> AppliedResponses | None:
            row = lock(using, ref)
            if row is None or absent(row) or row.phase == DONE:
                return None
            questions = open_questions(using, ref) if row.status == INPUT_REQUIRED else {}
            picked = rules.pick_answers({key: request for key, (_, request) in questions.items()}, responses, check)
            left = answer(using, row, questions, picked, actor="client")
            ignored = tuple(key for key in responses if key not in picked)
            return AppliedResponses(tuple(picked), ignored, left)

        return transact(operation)


def _issue(using: str, row: Task, plan: rules.KeyPlan, deadlines: Mapping[str, float]) -> None:
    inputs = TaskInput.objects.using(using)
    if plan.superseded:
        _mark(using, row.pk, plan.superseded, SUPERSEDED)
    for key, request in plan.inserted.items():
        inputs.create(
            task_id=row.pk,
            key=key,
            key_hash=digest(key),
            request_hash=digest(request),
            state=OUTSTANDING,
            asked_leg=row.leg,
            asked_at=DbNow(),
            deadline_at=after(deadlines[key]) if key in deadlines else None,
            request_json=dumps(request),
        )


def _mark(using: str, ref: UUID, keys: Iterable[str], state: str) -> None:
    hashes = [digest(key) for key in keys]
    TaskInput.objects.using(using).filter(task_id=ref, key_hash__in=hashes, state=OUTSTANDING).update(state=state)


def answer(
    using: str,
    row: Task,
    questions: Mapping[str, tuple[int, dict[str, Json]]],
    picked: Mapping[str, str],
    *,
    actor: str,
    kind: str = "answered",
    detail: Detail | None = None,
) -> tuple[str, ...]:
    """
    Store picked answers of a locked row and move it on; returns the keys that are still outstanding.

    The last answer of a parked task queues its next leg. A running one goes on by itself, or its end of leg does.
    """
    left = tuple(key for key in questions if key not in picked)
    if not picked:
        return left
    for key, text in picked.items():
        stored = TaskInput.objects.using(using).filter(pk=questions[key][0], state=OUTSTANDING)
        if stored.update(state=ANSWERED, answer_json=text, answered_at=DbNow()) != 1:
            raise Stale
    values: dict[str, Any] = dict(VISIBLE)
    values["payload_bytes"] = F("payload_bytes") + sum(size_bytes(text) for text in picked.values())
    queues = False
    if left:
        values["asks_json"] = dumps({key: questions[key][1] for key in left})
        if row.phase == PARKED:
            values["due_at"] = earliest_deadline()
    else:
        values |= {"status": WORKING, "asks_json": None}
        queues = row.phase == PARKED
        if queues:
            values |= leaving(PARKED)
            values |= {
                "phase": QUEUED,
                "due_at": after(REDELIVER_SECONDS),
                "deliveries": 0,
                "not_before": None,
            }
    revision = swap(using, row, Q(status=INPUT_REQUIRED) & fresh(), **values)
    said = detail or {"keys": len(picked)}
    trace = observing.trace() if queues else None
    said |= {} if trace is None else {"trace": trace}  # what queued the next leg, which is linked to it
    record(using, row.pk, kind, revision=revision, actor=actor, detail=said)
    told = answered(INPUT_REQUIRED if left else WORKING)
    Effect(row.pk, revision, enqueue=queues, signals=told).after_commit(using)
    return left
