"""Database connections of threads that live as long as the process: kept open, and never trusted for ever."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from django.db import connections, transaction

from . import compat

logger = logging.getLogger("mcp_tasks.runner")

_IDLE_CHECK_SECONDS = 5.0

View = TypeVar("View", bound=Callable[..., Any])


def outside_transactions(view: View) -> View:
    """A view that no ``ATOMIC_REQUESTS`` wraps, on whatever database: what it acknowledges is not rolled back."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


def look_after_connections(idle_seconds: float = 0.0) -> None:
    """Between two jobs of this thread, which rested so long: give back, close, or keep each of its connections."""
    for connection in connections.all(initialized_only=True):
        if compat.is_pooled(connection):
            connection.close()  # back to the pool: threads that rest must not starve those that work
        elif connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()
        elif idle_seconds > _IDLE_CHECK_SECONDS and connection.connection is not None and not connection.is_usable():
            connection.close()


@contextmanager
def left_as_found(tool: str) -> Iterator[None]:
    """
    Around a handler: a connection of this thread that it leaves in a transaction, or out of autocommit, is closed.

    What was not committed is rolled back, and neither the handler's own outcome nor the next task becomes a part of
    it. A connection that was in a transaction before is the caller's, and left alone.
    """
    found = {connection.alias for connection in connections.all(initialized_only=True) if not _is_plain(connection)}
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.alias not in found and not _is_plain(connection):
                logger.warning(
                    "a tool left a transaction open, which was rolled back",
                    extra={"event": "transaction_left", "tool": tool, "database": connection.alias},
                )
                connection.close()
                del connections[connection.alias]  # it would go on to believe in its transaction


@contextmanager
def sessions_of_its_own() -> Iterator[None]:
    """
    Around a handler that runs in a leg: a connection that it used is closed, however long Django would keep it.

    So what it has set in its session, a role or a search path, is neither there when its outcome is stored nor for
    the next task. A connection that it left alone is kept. One of a pool goes back as it once came, and is not
    occupied by a handler that does not use it.
    """
    for connection in connections.all(initialized_only=True):
        if compat.is_pooled(connection) and not connection.in_atomic_block:
            connection.close()
    used: set[str] = set()

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        used.add(context["connection"].alias)
        return execute(sql, params, many, context)

    found = {connection.alias: connection.connection for connection in connections.all(initialized_only=True)}
    with ExitStack() as stack:
        for alias in found:
            stack.enter_context(connections[alias].execute_wrapper(note))
        try:
            yield
        finally:
            for connection in connections.all(initialized_only=True):
                is_used = connection.alias in used or connection.connection is not found.get(connection.alias)
                if is_used and not connection.in_atomic_block:  # else it is the caller's, as in a test
                    compat.forget_session(connection)
                    connection.close()


def _is_plain(connection: Any) -> bool:
    if connection.connection is None and not connection.in_atomic_block:
        return True
    return not connection.in_atomic_block and connection.autocommit == connection.settings_dict["AUTOCOMMIT"]
