"""What goes into a store and comes out of it: values only, the same for every store."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID

from ..protocol.codec import Json, canonical, loads
from ..protocol.tasks import TERMINAL
from ..tools.cancellation import CancellationToken
from ..tools.context import RecordedAnswer


class TaskStoreError(Exception):
    """Base of what a store raises."""


class InvalidTransition(TaskStoreError):
    """A programming error of the caller: a spent key, an empty ask. Nothing was written; the message names it."""


class RetentionLimitExceeded(TaskStoreError):
    """A payload is beyond ``LIMITS``. The message names the kind and the sizes, never the content."""


class TaskLimitReached(TaskStoreError):
    """The owner has as many live tasks as ``LIMITS`` allows."""


class IdempotencyConflict(TaskStoreError):
    """The idempotency key was used before, with another tool or other arguments."""


class Unsupported(TaskStoreError):
    """The store lacks this capability. Never a quiet success."""


@dataclass(frozen=True, slots=True)
class Owner:
    """
    Who a task belongs to: the identifying parts (issuer, subject, client, …) and a label for operators.

    Only a hash of the parts is stored. Equality is strict; no owner (None) equals only no owner.
    """

    parts: tuple[str | None, ...]
    label: str = ""

    @property
    def key(self) -> str:
        """Hex SHA-256 of the canonical JSON list of the parts."""
        return hashlib.sha256(canonical(list(self.parts)).encode("ascii")).hexdigest()


def owner_key(owner: Owner | None) -> str | None:
    """The stored form of an owner; None for anonymous."""
    return None if owner is None else owner.key


def ref_of(task_id: str) -> UUID:
    """The server-side name of a task: a hash of the client's id, which is itself never stored."""
    return UUID(bytes=hashlib.sha256(task_id.encode()).digest()[:16], version=4)


Why = Literal["ok", "unchanged", "terminal", "expired", "gone", "fenced", "changed", "not_applicable"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    Whether a transition was applied; false in a boolean context when it was not.

    ``why`` is advice from a second read, ``revision`` the row's after an applied change.
    """

    applied: bool
    why: Why = "ok"
    revision: int | None = None

    def __bool__(self) -> bool:
        return self.applied


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task without its payloads."""

    ref: UUID
    tool: str
    method: str
    owner_key: str | None
    owner_label: str | None
    status: str
    phase: str
    status_message: str | None
    leg: int
    attempts: int
    max_attempts: int
    priority: int
    progress_done: float | None
    progress_total: float | None
    revision: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    due_at: datetime | None
    ttl_ms: int | None
    expires_at: datetime | None
    poll_interval_ms: int
    tool_error: bool

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSnapshot:
    """One consistent state of a task with its payloads, which stay JSON text until somebody asks."""

    task: TaskView
    input_requests_json: str | None = None
    result_json: str | None = None
    error_json: str | None = None
    meta_json: str | None = None

    @property
    def input_requests(self) -> dict[str, Json]:
        """The open questions by key; empty when there are none."""
        return {} if self.input_requests_json is None else loads(self.input_requests_json)

    @property
    def result(self) -> Json:
        """The result of a completed task, else None."""
        return None if self.result_json is None else loads(self.result_json)

    @property
    def error(self) -> Json:
        """The JSON-RPC error of a failed task, else None."""
        return None if self.error_json is None else loads(self.error_json)


@dataclass(frozen=True, slots=True)
class Present:
    """A task that the caller may see; ``snapshot`` only when it was asked for."""

    ref: UUID
    owner_key: str | None
    tool: str
    snapshot: TaskSnapshot | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """A task past its ttl of which something is still kept; only its owner is told."""

    ref: UUID
    owner_key: str | None


@dataclass(frozen=True, slots=True)
class Missing:
    """No such task, or not the caller's: the two cannot be told apart."""


@dataclass(frozen=True, slots=True)
class CreatedTask:
    """A stored task. ``task_id`` is the client's capability and exists nowhere else."""

    task_id: str
    ref: UUID
    token: CancellationToken
    existed: bool
    snapshot: TaskSnapshot


@dataclass(frozen=True, slots=True)
class Claim:
    """A leg handed out: ``(ref, leg)`` is the fence of everything that it writes."""

    ref: UUID
    leg: int
    tool: str
    attempts: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class RunningLimit:
    """
    How many legs of a tool may run at once: ``total``, and ``per_owner`` (anonymous callers are one owner together).

    None is no limit. A leg counts from its claim until it has parked or ended; one that was handed over goes on
    counting until its task ends.
    """

    total: int | None = None
    per_owner: int | None = None

    def __bool__(self) -> bool:
        """Whether it limits anything."""
        return self.total is not None or self.per_owner is not None

    def is_reached(self, *, total: int = 0, of_owner: int = 0) -> bool:
        """Whether so many running legs leave no room for another."""
        return (self.total is not None and total >= self.total) or (
            self.per_owner is not None and of_owner >= self.per_owner
        )


#: For a claim that no tool limits.
NO_LIMITS: Mapping[str, RunningLimit] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AppliedResponses:
    """What became of a client's answers, by key."""

    accepted: tuple[str, ...]
    ignored: tuple[str, ...]
    still_outstanding: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeContext:
    """All that a leg needs: the original arguments unchanged, every answer so far, who called, the same token."""

    ref: UUID
    leg: int
    tool: str
    attempts: int
    max_attempts: int
    arguments: dict[str, Json]
    answers: dict[str, RecordedAnswer]
    owner_key: str | None
    owner_label: str | None
    context: dict[str, Json]
    token: CancellationToken

    @property
    def capabilities(self) -> dict[str, Json]:
        """What the creating client declared."""
        return self.context.get("capabilities") or {}

    @property
    def meta(self) -> dict[str, Json]:
        """The ``_meta`` of the creating call."""
        return self.context.get("meta") or {}


@dataclass(slots=True, kw_only=True)
class SweepReport:
    """What one pass of the janitor did."""

    recovered: int = 0
    failed: int = 0
    redelivered: int = 0
    timed_out: int = 0
    expired: int = 0
    purged: int = 0
    #: Hours that were counted.
    rolled_up: int = 0
    #: What was due and not done, because time or rows of this pass were used up.
    left: int = 0
    #: Names of the steps that raised, or did so for one task; the others went on.
    errors: list[str] = field(default_factory=list)

    def add(self, other: "SweepReport") -> None:
        for name in ("recovered", "failed", "redelivered", "timed_out", "expired", "purged", "rolled_up", "left"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors += other.errors

    @property
    def changed(self) -> int:
        """How many rows were touched."""
        return self.recovered + self.failed + self.redelivered + self.timed_out + self.expired + self.purged


#: ``ttl_ms`` left out: the default of the settings.
class _DefaultTtl:
    pass


DEFAULT_TTL = _DefaultTtl()
TtlMs = int | None | _DefaultTtl
Requests = dict[str, dict[str, Json]]
Detail = dict[str, Any]
