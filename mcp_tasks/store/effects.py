"""
What happens after a commit, in this order: raise local tokens, ring the doorbell, tell the listeners, send signals.

The store knows none of the first three; upper rooms register them. A failing hook is logged and never reaches the
caller: a lost doorbell is repaired by ``redeliver``, a lost message by who listens.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.dispatch import Signal

from .. import observing
from ..models import Task
from ..protocol.tasks import INPUT_REQUIRED
from ..signals import input_answered, input_requested, task_settled, task_status_changed
from .types import TaskSnapshot

logger = logging.getLogger("mcp_tasks.runner")

TokenHook = Callable[[UUID, str], None]
EnqueueHook = Callable[[UUID], None]
PublishHook = Callable[[UUID, int], None]
SnapshotReader = Callable[[UUID], TaskSnapshot | None]

token_hooks: list[TokenHook] = []
enqueue_hooks: list[EnqueueHook] = []
publish_hooks: list[PublishHook] = []
#: What an outcome is to receivers of signals.
SETTLED = (task_status_changed, task_settled)

#: The columns that observers are told of a task that ended.
SPENT = ("tool", "queue_ms", "run_ms", "wait_ms")

#: The one that reads a task for a receiver of a signal who wants to see it.
snapshot_readers: list[SnapshotReader] = []


def asked(status_before: str) -> tuple[Signal, ...]:
    """The signals of a question: asked of a task that waited already, it moves no status."""
    return (input_requested,) if status_before == INPUT_REQUIRED else (input_requested, task_status_changed)


def answered(status_after: str) -> tuple[Signal, ...]:
    """The signals of an answer: only the last one moves the status."""
    return (input_answered,) if status_after == INPUT_REQUIRED else (input_answered, task_status_changed)


def settled_moment(outcome: str, tool: str, queue_ms: int, run_ms: int, wait_ms: int) -> tuple[str, dict[str, Any]]:
    """What observers are told of an outcome; once for each task."""
    return "settled", {
        "tool": tool,
        "outcome": outcome,
        "queue_ms": queue_ms,
        "run_ms": run_ms,
        "wait_ms": wait_ms,
    }


@dataclass(frozen=True, slots=True)
class Effect:
    """The consequences of one applied transition. ``revision`` is set when a client can see the change."""

    ref: UUID
    revision: int | None = None
    token: str | None = None
    enqueue: bool = False
    signals: tuple[Signal, ...] = ()
    #: What observers are told: a moment and its facts.
    moment: tuple[str, dict[str, Any]] | None = None

    def run(self) -> None:
        """Now: for a store without transactions, or after the commit of one with them."""
        if self.token is not None:
            for raise_token in token_hooks:
                _guarded(raise_token, self.ref, self.token)
        if self.enqueue:
            for enqueue in enqueue_hooks:
                _guarded(enqueue, self.ref)
        if self.revision is not None:
            for publish in publish_hooks:
                _guarded(publish, self.ref, self.revision)
        for signal in self.signals:
            send(signal, self.ref, revision=self.revision)
        if self.moment is not None:
            name, facts = self.moment
            observing.happened(name, ref=self.ref, **facts)
            if name == "settled" and logger.isEnabledFor(logging.DEBUG):
                fields = {"ref": str(self.ref), "tool": facts["tool"], "status_to": facts["outcome"]}
                more = {"revision": self.revision, "duration_ms": facts["run_ms"], "trace_id": observing.trace_id()}
                logger.debug("a task ended", extra={"event": "settled", **fields, **more})

    def after_commit(self, using: str) -> None:
        """When, and only if, the surrounding transaction commits."""
        transaction.on_commit(self.run, using=using, robust=True)


def send(signal: Signal, ref: UUID, **carried: object) -> None:
    """Send a signal about a task; receivers that raise are logged by Django."""
    if signal.receivers:
        signal.send_robust(Task, ref=ref, snapshot=lambda: snapshot_readers[0](ref), **carried)


def _guarded(hook: Callable[..., None], *arguments: object) -> None:
    try:
        hook(*arguments)
    except Exception:
        logger.exception("an effect of a task's change failed", extra={"event": "effect_failed"})
