"""
The database store and the store in memory, fed with the same calls and asked for the same answers.

The store in memory is the reference: small enough to be read. Time moves for both at once: the clock of the one is
set forward, and everything in the other is made older.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from mcp_tasks.models import OwnerGate, Task, TaskEvent, TaskInput, TaskStep
from mcp_tasks.store import DatabaseTaskStore, MemoryTaskStore, effects
from mcp_tasks.store.base import TaskStore
from mcp_tasks.store.types import (
    CreatedTask,
    IdempotencyConflict,
    InvalidTransition,
    Owner,
    RetentionLimitExceeded,
    TaskLimitReached,
    TaskSnapshot,
)
from mcp_tasks.testing.timetravel import rewind
from mcp_tasks.tools.cancellation import CancellationToken

#: What a store raises for a reason that its caller has to know.
REASONS = (InvalidTransition, RetentionLimitExceeded, TaskLimitReached, IdempotencyConflict, ValueError)
#: Satellites first.
TABLES = (TaskEvent, TaskInput, TaskStep, Task, OwnerGate)

Heard = list[tuple[str, UUID, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One task in both stores, under a number: the two have different ids."""

    number: int
    owner: Owner | None
    database: CreatedTask
    memory: CreatedTask

    def __repr__(self) -> str:
        return f"task {self.number}"


class SideBySide:
    """Both stores, empty at first."""

    def __init__(self) -> None:
        for table in TABLES:
            table.objects.all()._raw_delete("default")
        #: How much older than its time everything in the database is.
        self.travelled = timedelta()
        self.database: TaskStore = DatabaseTaskStore()
        self.memory: TaskStore = MemoryTaskStore(lambda: datetime.now(UTC) + self.travelled)
        self.pairs: list[Pair] = []
        #: The revisions that the database store has told of, by the number of the task.
        self.published: dict[int, list[int]] = {}
        self._numbers: dict[UUID, int] = {}

    def advance(self, minutes: int) -> None:
        """
        Let time pass for both.

        All timers of a test are whole minutes, so that the time which the test itself takes decides nothing.
        """
        self.travelled += timedelta(minutes=minutes)
        for ref in Task.objects.values_list("pk", flat=True):
            rewind(ref, minutes * 60)

    def create(self, tool: str, arguments: dict[str, Any], *, owner: Owner | None, **options: Any) -> Pair | None:
        """A task in both, perhaps one that was there; None when both refused for the same reason."""
        with _listening() as heard:
            database, memory = (
                _result(store.create_task, tool, arguments, owner=owner, **options)
                for store in (self.database, self.memory)
            )
        if isinstance(database, type) or isinstance(memory, type):
            assert database is memory, f"create_task: the database store {database}, the one in memory {memory}"
            assert heard == [], f"create_task refused and told {heard}"
            return None
        pair = self._known_or_new(owner, database, memory)
        self._compare_effects("create_task", heard)
        assert self._plain(database.snapshot, timedelta()) == self._plain(memory.snapshot, self.travelled)
        return pair

    def call(self, name: str, pair: Pair | None, *arguments: Any, **options: Any) -> Any:
        """
        Call a method of both, on a task or on none, and compare; returns what the database store did.

        The type of an exception that callers have to know is returned, not raised.
        """
        sides = ((self.database, pair and pair.database.ref), (self.memory, pair and pair.memory.ref))
        with _listening() as heard:
            database, memory = (
                _result(getattr(store, name), *([ref] if ref else []), *arguments, **options) for store, ref in sides
            )
            # What is listed lazily is compared as well.
            if isinstance(database, Iterator):
                database, memory = list(database), list(memory)
        left, right = self._plain(database, timedelta()), self._plain(memory, self.travelled)
        assert left == right, f"{name}: the database store returned {left}, the one in memory {right}"
        self._compare_effects(name, heard)
        return database

    def compare(self, pair: Pair, snapshot: TaskSnapshot | None) -> None:
        """What a row of the database shows, with what the store in memory shows."""
        left = self._plain(snapshot, timedelta())
        right = self._plain(self.memory.get_task_result(pair.memory.ref), self.travelled)
        assert left == right, f"{pair}: the database store shows {left}, the one in memory {right}"

    def pair_of(self, ref: UUID) -> Pair:
        """The task that a claim is about."""
        return self.pairs[self._numbers[ref]]

    def _known_or_new(self, owner: Owner | None, database: CreatedTask, memory: CreatedTask) -> Pair:
        known = self._numbers.get(database.ref)
        assert (database.existed, memory.existed) == (known is not None, known is not None)
        if known is not None:
            pair = self.pairs[known]
            assert (database.task_id, memory.task_id) == (pair.database.task_id, pair.memory.task_id)
            assert (database.token, memory.token) == (pair.database.token, pair.memory.token)
            return pair
        pair = Pair(len(self.pairs), owner, database, memory)
        self.pairs.append(pair)
        self._numbers |= {database.ref: pair.number, memory.ref: pair.number}
        self.published[pair.number] = []
        return pair

    def _compare_effects(self, name: str, heard: Heard) -> None:
        databases = {pair.database.ref for pair in self.pairs}
        left = sorted((kind, self._numbers[ref], value) for kind, ref, value in heard if ref in databases)
        right = sorted((kind, self._numbers[ref], value) for kind, ref, value in heard if ref not in databases)
        assert left == right, f"{name}: the database store told {left}, the one in memory {right}"
        for kind, number, value in left:
            if kind == "published":
                self.published[number].append(value)

    def _plain(self, value: Any, ahead: timedelta) -> Any:
        """A value as it may be compared: refs as numbers, instants as minutes from now, tokens as their reasons."""
        match value:
            case datetime():
                return ("minutes", round((value - datetime.now(UTC) - ahead).total_seconds() / 60))
            case UUID():
                return self._numbers[value]
            case CancellationToken():
                return value.reason
            case list():
                # Only the listing returns one, in an order of its own.
                return sorted((self._plain(item, ahead) for item in value), key=repr)
            case Mapping():
                return {key: self._plain(item, ahead) for key, item in value.items()}
            case tuple():
                return tuple(self._plain(item, ahead) for item in value)
        if is_dataclass(value) and not isinstance(value, type):
            shown = {field.name: self._plain(getattr(value, field.name), ahead) for field in fields(value)}
            return (type(value).__name__, shown)
        return value


def _result(method: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return method(*arguments, **options)
    except REASONS as reason:
        return type(reason)


@contextmanager
def _listening() -> Iterator[Heard]:
    """All effects of a call, of either store."""
    heard: Heard = []
    hooks: list[tuple[list[Any], Any]] = [
        (effects.token_hooks, lambda ref, reason: heard.append(("token", ref, reason))),
        (effects.enqueue_hooks, lambda ref: heard.append(("rung", ref, None))),
        (effects.publish_hooks, lambda ref, revision: heard.append(("published", ref, revision))),
    ]
    for registered, hook in hooks:
        registered.append(hook)
    try:
        yield heard
    finally:
        for registered, hook in hooks:
            registered.remove(hook)
