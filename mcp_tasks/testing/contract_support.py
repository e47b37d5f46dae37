"""What the parts of the contract share: fixtures to fill in, settings, shorthands, and ears for the effects."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from ..protocol.codec import Json
from ..store import effects
from ..store.base import TaskStore
from ..store.types import Claim, CreatedTask, Owner, Requests, TaskSnapshot, TaskView

#: Makes so many seconds pass for one task.
Advance = Callable[[UUID, float], None]

ALICE = Owner(("https://issuer.example", "alice", None), "Alice")
BOB = Owner(("https://issuer.example", "bob", None), "Bob")

ACCEPT: dict[str, Json] = {"action": "accept", "content": {"sure": True}}
DECLINE: dict[str, Json] = {"action": "decline"}
CANCEL: dict[str, Json] = {"action": "cancel"}
RESULT: dict[str, Json] = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}

TTL_MS, MAX_TTL_MS = 3_600_000, 604_800_000
LEASE_SECONDS, RETENTION_SECONDS, TOMBSTONE_SECONDS = 60, 7_200, 3_600
#: The doorbell of a queued task is rung again after so many seconds.
REDELIVER_SECONDS = 60
_LIMITS = {
    "PAYLOAD_BYTES": 4 * 1024 * 1024,
    "LIVE_TASKS_PER_OWNER": 100,
    "LIVE_TASKS_ANONYMOUS": 100,
    "INPUT_KEYS": 64,
}
_PINNED = {
    "DEFAULT_TTL_MS": TTL_MS,
    "MAX_TTL_MS": MAX_TTL_MS,
    "POLL_INTERVAL_MS": 1_000,
    "RETENTION_SECONDS": RETENTION_SECONDS,
    "TOMBSTONE_SECONDS": TOMBSTONE_SECONDS,
    "LEASE_SECONDS": LEASE_SECONDS,
    "HEARTBEAT_SECONDS": 15,
    "LIMITS": _LIMITS,
}


@dataclass(slots=True)
class Heard:
    """The effects that were run: raised tokens, rung doorbells, published revisions."""

    tokens: list[tuple[UUID, str]] = field(default_factory=list)
    rung: list[UUID] = field(default_factory=list)
    published: list[tuple[UUID, int]] = field(default_factory=list)

    def forget(self) -> None:
        """From here on."""
        for heard in (self.tokens, self.rung, self.published):
            heard.clear()

    @property
    def nothing(self) -> bool:
        return not (self.tokens or self.rung or self.published)


class ContractBase:
    """The two fixtures that a suite must supply, and what each of its tests stands on."""

    @pytest.fixture
    def store(self) -> TaskStore:
        """The store under test, empty."""
        pytest.fail("a suite supplies a fixture `store`: an empty TaskStore")

    @pytest.fixture
    def advance(self) -> Advance:
        """A function that makes seconds pass for one task; whether others age as well is left open."""
        pytest.fail("a suite supplies a fixture `advance`: called with ref and seconds")

    @pytest.fixture(autouse=True)
    def _pinned_settings(self) -> Iterator[None]:
        with configured():
            yield

    @pytest.fixture
    def heard(self) -> Iterator[Heard]:
        """What the store did after its transitions. Whatever else listens goes on listening."""
        heard = Heard()
        hooks: list[tuple[list[Any], Any]] = [
            (effects.token_hooks, lambda ref, reason: heard.tokens.append((ref, reason))),
            (effects.enqueue_hooks, heard.rung.append),
            (effects.publish_hooks, lambda ref, revision: heard.published.append((ref, revision))),
        ]
        for registered, hook in hooks:
            registered.append(hook)
        yield heard
        for registered, hook in hooks:
            registered.remove(hook)


def configured(*, limits: dict[str, int | None] | None = None, **changes: Any) -> AbstractContextManager[Any]:
    """``MCP_TASKS`` of the project with the values that the contract counts on, and these changes."""
    project = getattr(django_settings, "MCP_TASKS", {})
    pinned = {**_PINNED, "LIMITS": {**_LIMITS, **(limits or {})}}
    return override_settings(MCP_TASKS={**project, **pinned, **changes})


def question(message: str = "Deploy?") -> dict[str, Json]:
    """A form with one box to tick."""
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def create(
    store: TaskStore, tool: str = "report", arguments: dict[str, Json] | None = None, **options: Any
) -> CreatedTask:
    """A new task."""
    return store.create_task(tool, {} if arguments is None else arguments, **options)


def claimed(store: TaskStore, **options: Any) -> Claim:
    """A new task whose first leg runs."""
    return claim(store, create(store, **options).ref)


def claim(store: TaskStore, ref: UUID) -> Claim:
    """The next leg of a queued task."""
    claim = store.claim(ref, holder="contract:1")
    assert claim is not None
    return claim


def parked(store: TaskStore, requests: Requests | None = None, **options: Any) -> UUID:
    """A new task whose first leg has asked."""
    leg = claimed(store, **options)
    assert store.require_input(leg.ref, requests or {"approval": question()}, "Approve?", leg=leg.leg)
    return leg.ref


def asked_live(store: TaskStore, requests: Requests | None = None, **options: Any) -> Claim:
    """A new task whose first leg has asked and goes on running."""
    leg = claimed(store, **options)
    assert store.require_input(leg.ref, requests or {"approval": question()}, leg=leg.leg, live=True)
    return leg


def view(store: TaskStore, ref: UUID) -> TaskView:
    """The task, which must be there."""
    task = store.get_task(ref)
    assert task is not None
    return task


def snapshot(store: TaskStore, ref: UUID) -> TaskSnapshot:
    """The task with its payloads, which must be there."""
    found = store.get_task_result(ref)
    assert found is not None
    return found


def seconds_between(earlier: datetime | None, later: datetime | None) -> float:
    """How far two instants of a task lie apart."""
    assert earlier is not None
    assert later is not None
    return (later - earlier).total_seconds()


@contextmanager
def unchanged(store: TaskStore, ref: UUID, heard: Heard | None = None) -> Iterator[None]:
    """Nothing that anybody could see of the task changes in here, and nobody is told anything."""
    before = store.get_task_result(ref)
    if heard is not None:
        heard.forget()
    yield
    assert store.get_task_result(ref) == before
    assert heard is None or heard.nothing


def stranger() -> UUID:
    """The ref of no task."""
    return uuid4()
