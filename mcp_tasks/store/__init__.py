"""
The only writer of task rows: interface, stores, and what they hand out.

``get_store()`` is the configured one. Everything else in the project, the admin and the commands included,
changes a task by calling it.
"""

from functools import lru_cache
from typing import cast

from .. import conf
from .base import TaskStore
from .database import DatabaseTaskStore
from .forwarding import ForwardingTaskStore
from .memory import MemoryTaskStore
from .types import (
    AppliedResponses,
    CreatedTask,
    Expired,
    IdempotencyConflict,
    InvalidTransition,
    Missing,
    Outcome,
    Present,
    ResumeContext,
    RetentionLimitExceeded,
    TaskLimitReached,
    TaskSnapshot,
    TaskStoreError,
    TaskView,
    Unsupported,
)

__all__ = [
    "AppliedResponses",
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
    """The store that ``MCP_TASKS["STORE"]`` names, made once per process."""
    return cast("TaskStore", conf.load(conf.get_settings().STORE)())


conf.on_reset(get_store.cache_clear)
