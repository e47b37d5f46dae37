"""Everything that only looks: resolve, presence, snapshots, questions, what a leg works with."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db import connections

from .. import observing
from ..lifecycle import ANSWERED, OUTSTANDING
from ..models import TaskInput
from ..protocol.codec import Json, loads
from ..protocol.tasks import is_task_id
from ..querysets import TaskQuerySet
from ..signals import access_refused
from ..tools.cancellation import CANCELLED, EXPIRED, CancellationToken, token_for
from ..tools.context import RecordedAnswer
from .base import TaskStore
from .effects import send
from .locking import database, is_gone, refused, rows, single
from .prepared import PreparedRead
from .snapshots import PAYLOAD_COLUMNS, VIEW_COLUMNS, to_snapshot, to_view
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

access_logger = logging.getLogger("mcp_tasks.access")

_LISTING_BATCH = 500
#: How many tasks are named in one statement at most, and what it may compare with besides.
_AMONG_LIMIT, _PARAMS_TO_SPARE = 10_000, 20


def _owned(*, payload: bool, anonymous: bool) -> PreparedRead:
    """A client's look at its own task. The owner stands in the WHERE: a stranger's large row is never fetched."""
    columns = (*VIEW_COLUMNS, *PAYLOAD_COLUMNS) if payload else ("tool",)

    def build(using: str, ref: UUID, owner_key: str | None = None) -> Any:
        return rows(using).filter(pk=ref).owned_by(owner_key).annotate(is_gone=is_gone()).values(*columns, "is_gone")

    samples = {"ref": UUID(int=1)} if anonymous else {"ref": UUID(int=1), "owner_key": "a sample owner"}
    return PreparedRead(build, **samples)


_OWNED = {
    (payload, anonymous): _owned(payload=payload, anonymous=anonymous)
    for payload in (False, True)
    for anonymous in (False, True)
}


class Reading(TaskStore):
    """The reading operations of the database store."""

    def resolve(self, task_id: str, owner: Owner | None, *, payload: bool = False) -> Present | Expired | Missing:
        if not is_task_id(task_id):
            observing.happened("refused", reason="unknown")
            return Missing()
        ref, key = ref_of(task_id), owner_key(owner)
        row = single(lambda using: _OWNED[payload, key is None].first(using, ref=ref, owner_key=key))
        if row is None:
            if single(lambda using: rows(using).filter(pk=ref).exists()):
                _log_denial(ref, key)
            else:
                observing.happened("refused", reason="unknown")
            return Missing()
        if row["is_gone"]:
            observing.happened("refused", reason="expired")
            return Expired(ref, key)
        return Present(ref, key, row["tool"], to_snapshot(row) if payload else None)

    def task_presence(self, ref: UUID) -> Present | Expired | Missing:
        columns = ("owner_key", "tool", "is_gone")
        row = _first(ref, *columns, within=lambda found: found.annotate(is_gone=is_gone()))
        if row is None:
            return Missing()
        if row["is_gone"]:
            return Expired(ref, row["owner_key"])
        return Present(ref, row["owner_key"], row["tool"])

    def get_task(self, ref: UUID) -> TaskView | None:
        row = _first(ref, *VIEW_COLUMNS, within=TaskQuerySet.present)
        return None if row is None else to_view(row)

    def get_task_result(self, ref: UUID) -> TaskSnapshot | None:
        row = _first(ref, *VIEW_COLUMNS, *PAYLOAD_COLUMNS, within=TaskQuerySet.present)
        return None if row is None else to_snapshot(row)

    def owned_refs(self, task_ids: Sequence[str], owner: Owner | None) -> dict[str, UUID]:
        wanted = {task_id: ref_of(task_id) for task_id in task_ids if is_task_id(task_id)}
        key = owner_key(owner)
        owned = {row["ref"] for row in _among(wanted.values(), "ref", within=lambda found: found.owned_by(key))}
        for row in _among(set(wanted.values()) - owned, "ref"):
            _log_denial(row["ref"], key)
        return {task_id: ref for task_id, ref in wanted.items() if ref in owned}

    def snapshots(self, refs: Collection[UUID]) -> dict[UUID, TaskSnapshot]:
        return {row["ref"]: to_snapshot(row) for row in _among(refs, *VIEW_COLUMNS, *PAYLOAD_COLUMNS)}

    def revisions(self, refs: Collection[UUID]) -> dict[UUID, int]:
        return {row["ref"]: row["revision"] for row in _among(refs, "ref", "revision")}

    def list_tasks(self, *, status: str | None = None) -> Iterator[TaskView]:
        found = rows(database()).present().order_by("ref").values(*VIEW_COLUMNS)
        if status is not None:
            found = found.filter(status=status)
        last = None
        while True:
            batch = list(found[:_LISTING_BATCH] if last is None else found.filter(ref__gt=last)[:_LISTING_BATCH])
            if not batch:
                return
            yield from map(to_view, batch)
            last = batch[-1]["ref"]

    def outstanding_input_requests(self, ref: UUID) -> Requests | None:
        row = _first(ref, "asks_json", within=TaskQuerySet.present)
        if row is None:
            return None
        return {} if row["asks_json"] is None else loads(row["asks_json"])

    def input_responses(self, ref: UUID) -> dict[str, Json]:
        if _first(ref, "ref", within=TaskQuerySet.present) is None:
            return {}
        return {key: item.answer for key, item in _answers(database(), ref).items()}

    def resume_context(self, ref: UUID, leg: int | None = None) -> ResumeContext | None:
        using = database()
        guard = rows(using).mine(ref, leg) if leg is not None else rows(using).filter(pk=ref).live().fresh()
        columns = ("tool", "leg", "attempts", "max_attempts", "owner_key", "owner_label")
        row = guard.values(*columns, "arguments_json", "context_json").first()
        if row is None:
            return None
        return ResumeContext(
            ref=ref,
            arguments=loads(row.pop("arguments_json")),
            context=loads(row.pop("context_json")),
            answers=_answers(using, ref),
            token=self.token(ref),
            **row,
        )

    def token(self, ref: UUID) -> CancellationToken:
        """The token of a task in this process. Outside a leg it looks at its row from its first check on."""
        return token_for(ref, lambda: _stopped(ref))

    def refusal(self, using: str, ref: UUID, leg: int | None) -> Outcome:
        """Why a transition was not applied."""
        return refused(using, ref, leg)

    def before_sleep(self) -> None:
        connection = connections[database()]
        if not connection.in_atomic_block:
            connection.close()


def _first(ref: UUID, *columns: str, within: Callable[[TaskQuerySet], TaskQuerySet]) -> dict[str, Any] | None:
    """One row's columns, or None where it is not within what the caller may see."""

    def look(using: str) -> dict[str, Any] | None:
        row: dict[str, Any] | None = within(rows(using).filter(pk=ref)).values(*columns).first()
        return row

    return single(look)


def _log_denial(ref: UUID, key: str | None) -> None:
    """A foreign task is logged; to the caller it is exactly a missing one."""
    access_logger.warning(
        "a caller asked for a task of another owner",
        extra={
            "event": "access_refused",
            "reason": "owner",
            "ref": str(ref),
            "owner_hash": observing.owner_hash(key),  # of who asked
            "trace_id": observing.trace_id(),
        },
    )
    observing.happened("refused", reason="owner")
    send(access_refused, ref, revision=None, reason="owner")


def _among(
    refs: Collection[UUID], *columns: str, within: Callable[[TaskQuerySet], TaskQuerySet] | None = None
) -> Iterator[dict[str, Any]]:
    """The columns of the present rows among many, in as few statements as the database takes parameters."""
    names, limit = list(refs), connections[database()].features.max_query_params or _AMONG_LIMIT
    step = min(limit - _PARAMS_TO_SPARE, _AMONG_LIMIT)
    for start in range(0, len(names), step):
        part = names[start : start + step]

        def look(using: str, part: list[UUID] = part) -> list[dict[str, Any]]:
            found = rows(using).filter(pk__in=part).present()
            return list((found if within is None else within(found)).values(*columns))

        yield from single(look)


def _answers(using: str, ref: UUID) -> dict[str, RecordedAnswer]:
    found = TaskInput.objects.using(using).filter(task_id=ref, state=ANSWERED).order_by("answered_at", "id")
    return {
        key: RecordedAnswer(loads(answer or ""), request_hash)
        for key, answer, request_hash in found.values_list("key", "answer_json", "request_hash")
    }


def _stopped(ref: UUID) -> str | None:
    found = rows(database()).filter(pk=ref).annotate(is_gone=is_gone())
    row = found.values("cancel_requested_at", "is_gone").first()
    if row is None or row["is_gone"]:
        return EXPIRED
    return None if row["cancel_requested_at"] is None else CANCELLED


def open_questions(using: str, ref: UUID) -> dict[str, tuple[int, dict[str, Json]]]:
    """The outstanding rows of a task: key to primary key and question, in the order of asking."""
    found = TaskInput.objects.using(using).filter(task_id=ref, state=OUTSTANDING).order_by("id")
    return {key: (pk, loads(text)) for pk, key, text in found.values_list("pk", "key", "request_json")}
