"""What no message told: one look a period at all that is watched; the only source where no layer crosses processes."""

from collections.abc import Mapping
from uuid import UUID

from ..store.base import TaskStore

#: Between two looks: where messages tell of changes, and where nothing does.
RECONCILE_SECONDS, POLL_SECONDS = 10.0, 1.0


def period_seconds(*, crosses: bool) -> float:
    """How long a change may stay unknown at worst."""
    return RECONCILE_SECONDS if crosses else POLL_SECONDS


def moved(store: TaskStore, seen: Mapping[UUID, int]) -> list[UUID]:
    """Those of the watched tasks that are gone, or at another revision than the one that was seen."""
    found = store.revisions(seen)
    return [ref for ref, revision in seen.items() if found.get(ref, 0) != revision or ref not in found]
