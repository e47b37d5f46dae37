"""The only place that knows Django versions, database vendors and the threads of asgiref."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from asgiref.sync import SyncToAsync
from django.db import OperationalError, connections, transaction
from django.db.models import BooleanField, CharField, Func, QuerySet, sql
from django.db.utils import IntegrityError

_RETRY_SQLSTATES = {"40001", "40P01"}
_RETRY_MYSQL = {1213, 1205, 1020}


class Unindexed(Func):
    """
    A column that must not choose the index.

    SQLite knows nothing of how rows are spread and prefers an equality: it would look for the few rows that are due
    among all that have ever finished. Elsewhere statistics decide.
    """

    template = "%(expressions)s"
    output_field = CharField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="+%(expressions)s", **extra)


class Unlikely(Func):
    """
    A condition that holds for few rows, so that its index is worth its while.

    SQLite guesses from the number of different values: of four phases it takes three for most of the table, once
    somebody ran ANALYZE. Elsewhere statistics know how many rows have each.
    """

    template = "%(expressions)s"
    output_field = BooleanField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="unlikely(%(expressions)s)", **extra)


def has_returning(using: str) -> bool:
    """Whether ``UPDATE … RETURNING`` works; Django 5.2 has a flag for INSERT only."""
    connection = connections[using]
    if connection.vendor == "sqlite":
        return sqlite3.sqlite_version_info >= (3, 35)
    return connection.vendor == "postgresql"


def update_returning(queryset: QuerySet[Any], returning: tuple[str, ...], **values: Any) -> list[tuple[Any, ...]]:
    """
    One guarded UPDATE that tells which rows it changed, as tuples of the fields in ``returning``.

    Without RETURNING the rows are found by a locking read first and read back afterwards, one by one: the
    caller is inside a transaction, and each UPDATE tests the guard again.
    """
    using = queryset.db
    if has_returning(using):
        query = queryset.query.chain(sql.UpdateQuery)
        query.add_update_values(values)  # type: ignore[attr-defined]
        query.clear_ordering(force=True)
        connection = connections[using]
        compiler = query.get_compiler(using)
        statement, params = compiler.as_sql()
        fields = [queryset.model._meta.get_field(name) for name in returning]
        columns = ", ".join(connection.ops.quote_name(field.column) for field in fields)
        with transaction.mark_for_rollback_on_error(using=using), connection.cursor() as cursor:
            cursor.execute(f"{statement} RETURNING {columns}", params)
            rows = cursor.fetchall()
        convert = compiler.get_converters([field.get_col(queryset.model._meta.db_table) for field in fields])
        return [tuple(row) for row in compiler.apply_converters(rows, convert)] if convert else rows
    changed = []
    for key in list(queryset.values_list("pk", flat=True)):
        if queryset.filter(pk=key).update(**values):
            changed.extend(queryset.model._base_manager.using(using).filter(pk=key).values_list(*returning))
    return changed


def in_transaction() -> bool:
    """Whether this thread is inside of an atomic block, the one that a test case puts around everything aside."""
    blocks = [connection.atomic_blocks for connection in connections.all(initialized_only=True)]
    return any(of_one and not of_one[-1]._from_testcase for of_one in blocks)  # type: ignore[attr-defined]


def is_pooled(connection: Any) -> bool:
    """Whether closing a connection only gives it back to a pool of this process."""
    return bool(connection.settings_dict.get("OPTIONS", {}).get("pool"))


def forget_session(connection: Any) -> None:
    """Before a connection goes back to its pool: whoever gets it next finds nothing of what was set in its session."""
    if not is_pooled(connection) or connection.connection is None:
        return
    try:
        with connection.connection.cursor() as cursor:
            cursor.execute("DISCARD ALL")
        connection._configure_connection(connection.connection)  # which Django does once, when the pool opens it
    except connection.Database.Error:
        connection.connection.close()  # the pool opens another one


def take_thread() -> ThreadPoolExecutor | None:
    """
    The thread that Django's ASGI handler keeps for the request of this context, for the caller to end.

    What runs in the context later gets another one. None where there is none, or it belongs to somebody else.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is None or getattr(context, "_executor", None) is not None:
        return None
    executor = SyncToAsync.context_to_thread_executor.pop(context, None)
    return executor if isinstance(executor, ThreadPoolExecutor) else None


def hears_notices(using: str) -> bool:
    """Whether LISTEN and NOTIFY can be used; psycopg2 cannot wait for a notice."""
    connection: Any = connections[using]
    return bool(connection.vendor == "postgresql" and connection.Database.__name__ == "psycopg")


def own_connection(using: str) -> Any:
    """A connection of the driver, in autocommit, to be closed by its user; never of a pool, which would miss it."""
    wrapper: Any = connections[using]
    return wrapper.Database.connect(**wrapper.get_connection_params(), autocommit=True)


def django_tasks() -> Any:
    """The module ``django.tasks``, before Django 6 that of its backport; raises ImportError where there is neither."""
    return import_module("django.tasks" if find_spec("django.tasks") else "django_tasks")


def skips_locked(using: str) -> bool:
    """Whether a batch can pass over rows that another transaction holds."""
    return bool(connections[using].features.has_select_for_update_skip_locked)


def is_conflict(error: Exception) -> bool:
    """Whether a whole transaction that failed so may simply be run again."""
    if isinstance(error, IntegrityError):
        return "idem_hash" in str(error)
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state in _RETRY_SQLSTATES:
        return True
    if not isinstance(error, OperationalError):
        return False
    if error.args and error.args[0] in _RETRY_MYSQL:
        return True
    return "database is locked" in str(error) or "database table is locked" in str(error)
