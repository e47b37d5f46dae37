"""
The only writer of task rows: interface, stores, and what they hand out.

``get_store()`` is the configured one. Everything else in the project, the admin and the commands included,
changes a task by calling it.
"""

from functools import lru_cache

from django.core.exceptions import ImproperlyConfigured

from .. import conf
from .base import TaskStore
from .database import DatabaseTaskStore
from .forwarding import ForwardingTaskStore
from .memory import MemoryTaskStore
from .types import (
    DEFAULT_TTL,
    AppliedResponses,
    Claim,
    CreatedTask,
    Expired,
    IdempotencyConflict,
    InvalidTransition,
    Missing,
    Outcome,
    Present,
    ResumeContext,
    RetentionLimitExceeded,
    RunningLimit,
    SweepReport,
    TaskLimitReached,
    TaskSnapshot,
    TaskStoreError,
    TaskView,
    Unsupported,
)

__all__ = [
    "DEFAULT_TTL",
    "AppliedResponses",
    "Claim",
    "CreatedTask",
    "DatabaseTaskStore",
    "Expired",
    "ForwardingTaskStore",
    "IdempotencyConflict",
    "InvalidTransition",
    "MemoryTaskStore",
    "Missing",
    "Outcome",
    "Present",
    "ResumeContext",
    "RetentionLimitExceeded",
    "RunningLimit",
    "SweepReport",
    "TaskLimitReached",
    "TaskSnapshot",
    "TaskStore",
    "TaskStoreError",
    "TaskView",
    "Unsupported",
    "get_store",
]


@lru_cache(maxsize=1)
def get_store() -> TaskStore:
    """The store that ``MCP_TASKS["STORE"]`` names, made once per process; raises ImproperlyConfigured naming it."""
    path = conf.get_settings().STORE
    store = conf.load(path)
    store = store() if callable(store) else store
    if not isinstance(store, TaskStore):
        raise ImproperlyConfigured(f"MCP_TASKS['STORE']: {path} makes no TaskStore.")
    return store


conf.on_reset(get_store.cache_clear)
