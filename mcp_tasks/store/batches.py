"""The janitor's way through many rows: small transactions, over rows that nobody else holds, until none is left."""

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from .. import compat
from ..dbtime import DbNow
from ..models import TaskEvent
from .locking import database, transact

_BATCH_SKIPPING, _BATCH_GUARDED = 1000, 200
_PAUSE_SECONDS = 0.01

Step = Callable[[str, list[UUID]], int]


def in_batches(pick: Callable[[str], Any], step: Step) -> int:
    """
    Run ``step`` over the rows that ``pick`` finds; returns how many it changed.

    Where locked rows can be skipped, a batch is picked and locked in its transaction. Elsewhere keys are picked
    before it and the step's own guards decide. Ends at an empty batch: a short one may only have skipped rows.
    """
    total = 0
    while True:
        picked, changed = _batch(pick, step)
        total += changed
        if not picked or (not changed and not compat.skips_locked(database())):
            return total
        time.sleep(_PAUSE_SECONDS)


def _batch(pick: Callable[[str], Any], step: Step) -> tuple[int, int]:
    using = database()
    if compat.skips_locked(using):

        def operation(using: str) -> tuple[int, int]:
            found = pick(using).select_for_update(skip_locked=True)
            refs = sorted(found.values_list("pk", flat=True)[:_BATCH_SKIPPING])
            return len(refs), step(using, refs) if refs else 0

        return transact(operation)
    refs = sorted(pick(using).values_list("pk", flat=True)[:_BATCH_GUARDED])
    return len(refs), transact(lambda using: step(using, refs)) if refs else 0


def record_all(using: str, kind: str, changed: list[tuple[UUID, int, int]]) -> None:
    """One event for each changed row, given as ref, revision, leg."""
    TaskEvent.objects.using(using).bulk_create(
        TaskEvent(task_id=ref, revision=revision, kind=kind, leg=leg or None, actor="janitor", at=DbNow())
        for ref, revision, leg in changed
    )
