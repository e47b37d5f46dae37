"""After each commit: tell the listeners of this process, the other processes, and the project's own notifiers."""

import atexit
import logging
from collections.abc import Callable
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .. import conf
from ..protocol.subscriptions import LIST_KINDS, ListKind
from ..store import get_store
from ..store.locking import database
from ..store.types import TaskSnapshot
from .groups import ListChanged, TaskChanged
from .hub import hub

logger = logging.getLogger("mcp_tasks.notifications")

#: A notifier is called with the task's ref, its revision, and a function that reads its present state.
Notifier = Callable[[UUID, int, Callable[[], TaskSnapshot | None]], object]

#: How long a process that ends waits until the others know what it did last.
FLUSH_SECONDS = 1.0


def publish(ref: UUID, revision: int) -> None:
    """A client can see another state of this task; registered as an effect of the store."""
    hub.publish(TaskChanged(ref, revision))


def notify(ref: UUID, revision: int) -> None:
    """Call ``MCP_TASKS["NOTIFIERS"]``, each whatever the others do; registered as an effect of the store."""
    for path in conf.get_settings().NOTIFIERS:
        try:
            conf.load(path)(ref, revision, lambda: read(ref))
        except Exception:
            logger.exception("a notifier failed", extra={"event": "notifier_failed", "notifier": path})


def read(ref: UUID) -> TaskSnapshot | None:
    """The present state of a task, for a notifier or a receiver who wants to see it; None once it is gone."""
    return get_store().get_task_result(ref)


def notifier_problem(path: str) -> str | None:
    """What is wrong with an entry of ``NOTIFIERS``, as a sentence; None when it can be called."""
    try:
        found = conf.load(path)
    except ImproperlyConfigured as problem:
        return str(problem)
    return None if callable(found) else f"MCP_TASKS['NOTIFIERS'] names {path}, which cannot be called."


def list_changed(kind: ListKind) -> None:
    """
    Tell every client that listens, in all processes, that ``"tools"``, ``"prompts"`` or ``"resources"`` changed.

    Inside a transaction it happens at the commit. Such a message may be lost between processes; lists also carry
    a time to live. Raises ValueError for another word.
    """
    if kind not in LIST_KINDS:
        raise ValueError(f"kind must be one of {', '.join(LIST_KINDS)}, not {kind!r}")
    connection = connections[database()]
    if connection.in_atomic_block:
        connection.on_commit(lambda: hub.publish(ListChanged(kind)), robust=True)
    else:  # not through on_commit, which opens a connection, and must not be called on an event loop
        hub.publish(ListChanged(kind))


@atexit.register
def flush() -> None:
    """Wait a moment until the other processes were told; for an end that runs no exit handlers."""
    hub.flush(FLUSH_SECONDS)
