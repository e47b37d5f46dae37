"""Create, defer, discard, hand over: how a task comes into being, and how many an owner may have."""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings as django_settings
from django.db.models import Exists, QuerySet, Value
from django.utils.crypto import salted_hmac

from ..dbtime import DbNow
from ..lifecycle import (
    OWNER_LABEL_LENGTH,
    QUEUED,
    REDELIVER_SECONDS,
    RUNNING,
    STATUS_MESSAGE_LENGTH,
)
from ..models import OwnerGate, Task
from ..protocol.codec import Json, digest, dumps, plain_text, size_bytes
from ..protocol.errors import McpError, internal_error
from ..protocol.tasks import WORKING
from ..querysets import TaskQuerySet
from ..signals import task_created
from . import gates, rules
from .effects import Effect
from .locking import absent, is_gone, lock, record, rows, transact
from .reading import Reading
from .snapshots import PAYLOAD_COLUMNS, VIEW_COLUMNS, to_snapshot
from .types import (
    DEFAULT_TTL,
    CreatedTask,
    IdempotencyConflict,
    Outcome,
    Owner,
    TaskLimitReached,
    TtlMs,
    owner_key,
    ref_of,
)

_KEY_SALT = "mcp_tasks.store.creation.task_id"


class Creation(Reading):
    """The creating operations of the database store."""

    def create_task(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        owner: Owner | None = None,
        ttl_ms: TtlMs = DEFAULT_TTL,
        idempotency_key: str | None = None,
        method: str = "tools/call",
        poll_interval_ms: int | None = None,
        max_attempts: int = 1,
        priority: int = 0,
        context: dict[str, Json] | None = None,
        trace_context: str | None = None,
        status_message: str | None = None,
        meta: dict[str, Json] | None = None,
        deferred: bool = False,
        durable: bool = True,
    ) -> CreatedTask:
        key = owner_key(owner)
        arguments_json = rules.limited("arguments", dumps(arguments))
        context_json = rules.limited("context", dumps(context or {}))
        meta_json = None if meta is None else rules.meta_text(meta)
        keyed = idempotency_key is not None and owner is not None
        task = Task(
            owner_key=key,
            owner_label=None if owner is None else plain_text(owner.label, OWNER_LABEL_LENGTH),
            idem_hash=digest([key, idempotency_key]) if keyed else None,
            idem_print=digest([method, tool, arguments]) if keyed else None,
            id_nonce=secrets.token_hex(16) if keyed else None,
            method=method,
            tool=tool,
            status=WORKING,
            phase=RUNNING if deferred else QUEUED,
            status_message=None if status_message is None else plain_text(status_message, STATUS_MESSAGE_LENGTH),
            leg=1 if deferred else 0,
            attempts=1 if deferred else 0,
            max_attempts=max_attempts,
            priority=priority,
            ttl_ms=rules.checked_ttl_ms(ttl_ms),
            poll_interval_ms=rules.checked_poll_interval_ms(poll_interval_ms),
            payload_bytes=size_bytes(arguments_json) + size_bytes(meta_json or ""),
            trace_context=trace_context,
            lease_holder="deferred" if deferred else None,
            meta_json=meta_json,
            arguments_json=arguments_json,
            context_json=context_json,
        )
        task_id = _keyed_id(task.id_nonce) if task.id_nonce else secrets.token_urlsafe(32)
        task.ref = ref_of(task_id)
        gate = gates.of_owner(key)
        existing = gates.through(gate, lambda using: _insert(using, task, gate), durable=durable)
        if existing is None:
            return CreatedTask(task_id, task.ref, self.token(task.ref), False, to_snapshot(vars(task)))
        token = self.token(existing["ref"])
        return CreatedTask(_known_id(existing), existing["ref"], token, True, to_snapshot(existing))

    def discard_task(self, ref: UUID) -> bool:
        def operation(using: str) -> bool:
            row = lock(using, ref)
            if row is None or absent(row) or row.phase != QUEUED or row.leg != 0:
                return False
            row.events.using(using).all()._raw_delete(using)
            row.inputs.using(using).all()._raw_delete(using)
            return bool(rows(using).filter(pk=ref, phase=QUEUED, leg=0)._raw_delete(using))

        return transact(operation)

    def hand_over(self, ref: UUID, leg: int) -> Outcome:
        def operation(using: str) -> Outcome:
            if not rows(using).mine(ref, leg).filter(due_at__isnull=False).update(due_at=None):
                return self.refusal(using, ref, leg)
            revision = rows(using).values_list("revision", flat=True).get(pk=ref)
            record(using, ref, "handed_over", revision=revision, actor="worker", leg=leg)
            return Outcome(True, "ok", revision)

        return transact(operation)


def _insert(using: str, task: Task, gate_key: str) -> dict[str, Json] | None:
    """Insert under the owner's gate; returns the values of the task that was there under the same key, if any."""
    gate = gates.enter(using, gate_key)
    if task.idem_hash is not None:
        existing = _existing(using, task)
        if existing is not None:
            return existing
    now = _admitted_at(gate, rows(using).owned_by(task.owner_key), rules.live_limit(task.owner_key))
    task.created_at = task.updated_at = task.phase_at = now
    task.started_at = now if task.leg else None
    task.due_at = now + timedelta(seconds=REDELIVER_SECONDS)
    task.expires_at = None if task.ttl_ms is None else now + timedelta(milliseconds=task.ttl_ms)
    task.sweep_at = task.expires_at
    rows(using).bulk_create([task])
    record(using, task.ref, "created", revision=1, actor="client", leg=task.leg or None)
    Effect(task.ref, enqueue=task.phase == QUEUED, signals=(task_created,)).after_commit(using)
    return None


def _admitted_at(gate: QuerySet[OwnerGate], bucket: TaskQuerySet, cap: int | None) -> datetime:
    """The database's time, if the bucket has room. The gate is held, so nobody else counts meanwhile."""
    live = bucket.live().fresh().values("pk")
    full = Value(False) if cap is None else Exists(live[cap - 1 : cap])
    now, is_full = gate.annotate(now=DbNow(), is_full=full).values_list("now", "is_full").get()
    if is_full:
        raise TaskLimitReached("task limit reached")
    moment: datetime = now
    return moment


def _existing(using: str, task: Task) -> dict[str, Json] | None:
    columns = (*VIEW_COLUMNS, *PAYLOAD_COLUMNS, "id_nonce", "idem_print")
    found = rows(using).filter(idem_hash=task.idem_hash)
    row: dict[str, Json] | None = found.annotate(is_gone=is_gone()).values(*columns, "is_gone").first()
    if row is None:
        return None
    if row["is_gone"]:
        found.update(idem_hash=None)
        return None
    if row["idem_print"] != task.idem_print:
        raise IdempotencyConflict("the idempotency key was used with another tool or other arguments")
    return row


def _keyed_id(nonce: str, secret: str | bytes | None = None) -> str:
    """The id of a keyed task: it can be computed again, though it is stored nowhere."""
    key = salted_hmac(_KEY_SALT, "", secret=secret or django_settings.SECRET_KEY, algorithm="sha256").digest()
    mac = hmac.new(key, bytes.fromhex(nonce), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode("ascii")


def _known_id(row: dict[str, Json]) -> str:
    for secret in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
        task_id = _keyed_id(row["id_nonce"], secret)
        if ref_of(task_id) == row["ref"]:
            return task_id
    raise McpError(internal_error().code, "The task of this idempotency key cannot be named any more")
