"""Expire and purge: payloads go at the end of the ttl, the tombstone and what hangs on it later."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.db.models.functions import Coalesce

from .. import compat, conf
from ..dbtime import DbNow, after
from ..lifecycle import DONE, EXPIRED, LIVE
from ..models import Task, TaskEvent, TaskInput, TaskStep
from ..protocol.codec import Json
from ..protocol.tasks import TERMINAL
from ..querysets import in_phase
from ..signals import task_expired
from ..tools import cancellation
from . import processes, rollups
from .batches import in_batches, record_all
from .effects import SPENT, Effect, settled_moment
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
        return in_batches("expire", expiring, _expire)

    def purge(self) -> SweepReport:
        return in_batches("purge", purgeable, _purge)

    def roll_up(self) -> SweepReport:
        return SweepReport(rolled_up=rollups.roll_up())

    def tidy(self) -> SweepReport:
        processes.forget()
        rollups.forget()
        return SweepReport()

    def stamp(self, report: SweepReport) -> None:
        processes.report(processes.janitor_name(), processes.JANITOR, info={"changed": report.changed})

    def note_process(
        self, name: str, kind: str, *, slots: int, busy: int, tools: str, only: Sequence[str] | None = None
    ) -> None:
        info: dict[str, Json] = {} if only is None else {"only": list(only)}
        processes.report(name, kind, slots=slots, busy=busy, tools=tools, info=info)

    def is_outdated(self, name: str, tools: str) -> bool:
        return processes.is_outdated(name, tools)

    def forget_process(self, name: str) -> None:
        processes.leave(name)


def expiring(using: str) -> Any:
    """Past their ttl, and not yet tombstones."""
    return rows(using).filter(in_phase(*LIVE, DONE), sweep_at__lte=DbNow(), expires_at__lte=DbNow())


def _expire(using: str, refs: list[UUID]) -> SweepReport:
    values: dict[str, Any] = {
        **leaving_any(),
        **dict.fromkeys(_STRIPPED),
        "revision": F("revision") + 1,
        "finished_at": Coalesce(F("finished_at"), DbNow()),
        "sweep_at": after(conf.get_settings().TOMBSTONE_SECONDS),
        "payload_bytes": 0,
        "phase": EXPIRED,
    }
    changed = compat.update_returning(
        expiring(using).filter(pk__in=refs), ("ref", "revision", "leg", "status", *SPENT), **values
    )
    gone = [row[0] for row in changed]
    _delete(using, TaskInput, gone)
    _delete(using, TaskStep, gone)
    record_all(using, "expired", [row[:3] for row in changed])
    for ref, revision, _, status, *spent in changed:
        moment = None if status in TERMINAL else settled_moment(EXPIRED, *spent)
        Effect(ref, revision, token=cancellation.EXPIRED, signals=(task_expired,), moment=moment).after_commit(using)
    return SweepReport(expired=len(changed))


def purgeable(using: str) -> Any:
    """What nobody needs any more."""
    over = in_phase(EXPIRED) | (in_phase(DONE) & Q(expires_at=None))
    return rows(using).filter(over, sweep_at__lte=DbNow())


def _purge(using: str, refs: list[UUID]) -> SweepReport:
    # Locked or re-read, they are still purgeable: nothing leads out of these states but a new ttl of a task
    # without one, and that moves sweep_at.
    doomed = list(purgeable(using).filter(pk__in=refs).values_list("pk", flat=True))
    rollups.count_early(using, doomed)
    for satellite in (TaskEvent, TaskInput, TaskStep):
        _delete(using, satellite, doomed)
    return SweepReport(purged=_delete(using, Task, doomed))


def _delete(using: str, model: Any, refs: list[UUID]) -> int:
    """Without loading anything: there are no signals to send and no cascade beyond what is deleted here."""
    if not refs:
        return 0
    column = "pk__in" if model is Task else "task_id__in"
    deleted: int = model.objects.using(using).filter(**{column: refs})._raw_delete(using)
    return deleted
