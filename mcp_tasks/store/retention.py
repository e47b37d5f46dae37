"""Expire and purge: payloads go at the end of the ttl, the tombstone and what hangs on it later."""

from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.db.models.functions import Coalesce

from .. import compat, conf
from ..dbtime import DbNow, after
from ..lifecycle import DONE, EXPIRED, LIVE
from ..models import Task, TaskEvent, TaskInput, TaskStep
from ..querysets import in_phase
from ..tools import cancellation
from .batches import in_batches, record_all
from .effects import Effect
from .locking import leaving_any, rows
from .reading import Reading
from .types import SweepReport

_STRIPPED = (
    "status_message",
    "asks_json",
    "result_json",
    "error_json",
    "meta_json",
    "arguments_json",
    "context_json",
    "traceback",
    "idem_hash",
    "due_at",
    "not_before",
)


class Retention(Reading):
    """The reclaiming steps of the database store."""

    def expire(self) -> SweepReport:
        return SweepReport(expired=in_batches(_expiring, _expire))

    def purge(self) -> SweepReport:
        return SweepReport(purged=in_batches(_purgeable, _purge))


def _expiring(using: str) -> Any:
    return rows(using).filter(in_phase(*LIVE, DONE), sweep_at__lte=DbNow(), expires_at__lte=DbNow())


def _expire(using: str, refs: list[UUID]) -> int:
    values: dict[str, Any] = {
        **leaving_any(),
        **dict.fromkeys(_STRIPPED),
        "revision": F("revision") + 1,
        "finished_at": Coalesce(F("finished_at"), DbNow()),
        "sweep_at": after(conf.get_settings().TOMBSTONE_SECONDS),
        "payload_bytes": 0,
        "phase": EXPIRED,
    }
    changed = compat.update_returning(_expiring(using).filter(pk__in=refs), ("ref", "revision", "leg"), **values)
    gone = [ref for ref, _, _ in changed]
    _delete(using, TaskInput, gone)
    _delete(using, TaskStep, gone)
    record_all(using, "expired", changed)
    for ref, revision, _ in changed:
        Effect(ref, revision, token=cancellation.EXPIRED).after_commit(using)
    return len(changed)


def _purgeable(using: str) -> Any:
    over = in_phase(EXPIRED) | (in_phase(DONE) & Q(expires_at=None))
    return rows(using).filter(over, sweep_at__lte=DbNow())


def _purge(using: str, refs: list[UUID]) -> int:
    # Locked or re-read, they are still purgeable: nothing leads out of these states but a new ttl of a task
    # without one, and that moves sweep_at.
    doomed = list(_purgeable(using).filter(pk__in=refs).values_list("pk", flat=True))
    for satellite in (TaskEvent, TaskInput, TaskStep):
        _delete(using, satellite, doomed)
    return _delete(using, Task, doomed)


def _delete(using: str, model: Any, refs: list[UUID]) -> int:
    """Without loading anything: there are no signals to send and no cascade beyond what is deleted here."""
    if not refs:
        return 0
    column = "pk__in" if model is Task else "task_id__in"
    deleted: int = model.objects.using(using).filter(**{column: refs})._raw_delete(using)
    return deleted
