"""
Gates: one row per bucket of tasks, written first by whoever must count what is in the bucket exactly.

A write, not a lock for reading: it also holds at the isolation levels where the rival would count what was.
"""

from collections.abc import Callable
from typing import TypeVar

from django.db.models import F, QuerySet

from ..models import OwnerGate
from ..protocol.codec import digest
from .locking import transact

T = TypeVar("T")

#: The gate of all anonymous callers.
_ANONYMOUS = "0" * 64


class NoGate(Exception):
    """Nobody has passed this gate before: it must be made first."""


def of_owner(owner_key: str | None) -> str:
    """The gate of those who create tasks for one owner."""
    return owner_key or _ANONYMOUS


def of_tool(tool: str) -> str:
    """The gate of those who start legs of one tool."""
    return digest(["tool", tool])


def through(key: str, operation: Callable[[str], T], *, durable: bool = True) -> T:
    """Run a transaction that enters this gate; the gate is made where it is missing."""
    while True:
        try:
            return transact(operation, durable=durable)
        except NoGate:
            # In a transaction of its own: inside the first one InnoDB deadlocks when two callers do it at once.
            transact(lambda using: _make(using, key), durable=durable)


def enter(using: str, key: str) -> QuerySet[OwnerGate]:
    """Hold the gate until the transaction ends; must be its first statement. Raises NoGate."""
    gate = OwnerGate.objects.using(using).filter(pk=key)
    if not gate.update(n=F("n") + 1):
        raise NoGate
    return gate


def _make(using: str, key: str) -> None:
    OwnerGate.objects.using(using).bulk_create([OwnerGate(key=key)], ignore_conflicts=True)
