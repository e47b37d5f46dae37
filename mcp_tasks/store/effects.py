"""
What happens after a commit, in this order: raise local tokens, ring the doorbell, tell the listeners.

The store knows none of the three; upper rooms register them. A failing hook is logged and never reaches the
caller: a lost doorbell is repaired by ``redeliver``, a lost message by who listens.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from . import waiting

logger = logging.getLogger("mcp_tasks.runner")

TokenHook = Callable[[UUID, str], None]
EnqueueHook = Callable[[UUID], None]
PublishHook = Callable[[UUID, int], None]

token_hooks: list[TokenHook] = []
enqueue_hooks: list[EnqueueHook] = []
publish_hooks: list[PublishHook] = []


@dataclass(frozen=True, slots=True)
class Effect:
    """The consequences of one applied transition. ``revision`` is set when a client can see the change."""

    ref: UUID
    revision: int | None = None
    token: str | None = None
    enqueue: bool = False

    def run(self) -> None:
        """Now: for a store without transactions, or after the commit of one with them."""
        if self.token is not None:
            for raise_token in token_hooks:
                _guarded(raise_token, self.ref, self.token)
        if self.enqueue:
            for enqueue in enqueue_hooks:
                _guarded(enqueue, self.ref)
        if self.revision is not None:
            _guarded(waiting.wake, self.ref)
            for publish in publish_hooks:
                _guarded(publish, self.ref, self.revision)

    def after_commit(self, using: str) -> None:
        """When, and only if, the surrounding transaction commits."""
        transaction.on_commit(self.run, using=using, robust=True)


def _guarded(hook: Callable[..., None], *arguments: object) -> None:
    try:
        hook(*arguments)
    except Exception:
        logger.exception("an effect of a task's change failed", extra={"event": "effect_failed"})
