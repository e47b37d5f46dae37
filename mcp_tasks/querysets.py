"""The words of the state machine as queries: the guards that every transition is made of."""

from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Greatest
from django.db.models.lookups import In

from .compat import Unindexed, Unlikely
from .dbtime import DbNow
from .lifecycle import EXPIRED, LIVE, RUNNING

if TYPE_CHECKING:
    from .models import Task  # noqa: F401 - named by the base class below

#: Set by every change that a client can see.
VISIBLE: dict[str, Any] = {
    "revision": models.F("revision") + 1,
    "updated_at": Greatest(models.F("updated_at"), DbNow()),
}


def fresh() -> Q:
    """Not past its ttl, by the database's clock."""
    return Q(expires_at=None) | Q(expires_at__gt=DbNow())


def gone() -> Q:
    """The exact complement of present: a tombstone, or past its ttl and not yet swept."""
    return Q(phase=EXPIRED) | Q(expires_at__lte=DbNow())


def in_phase(*phases: str) -> Q:
    """In one of these phases, found by another column's index: for what looks for the few rows that are due."""
    return Q(In(Unindexed(F("phase")), list(phases)))


def few_in_phase(*phases: str) -> Q:
    """In one of these phases, which few rows are in, and found by it."""
    return Q(Unlikely(In(F("phase"), list(phases))))


def unfinished() -> Q:
    """Something is still to happen."""
    return few_in_phase(*LIVE)


class TaskQuerySet(models.QuerySet["Task"]):
    """Guards as methods; they chain."""

    def live(self) -> Self:
        """Something is still to happen."""
        return self.filter(phase__in=LIVE)

    def fresh(self) -> Self:
        """Not past its ttl."""
        return self.filter(fresh())

    def present(self) -> Self:
        """What a client or a server still sees: neither a tombstone nor past its ttl."""
        return self.exclude(phase=EXPIRED).filter(fresh())

    def mine(self, ref: UUID, leg: int) -> Self:
        """
        The fence: this leg still owns its task.

        Needs both the number and the phase: the number does not change when a leg is taken away, only when
        the next one is claimed.
        """
        return self.filter(pk=ref, phase=RUNNING, leg=leg).filter(fresh())

    def owned_by(self, owner_key: str | None) -> Self:
        """Strict equality: anonymous equals only anonymous."""
        return self.filter(owner_key__isnull=True) if owner_key is None else self.filter(owner_key=owner_key)
