"""The only place that knows Django versions and database vendors."""

import sqlite3
from typing import Any

from django.db import OperationalError, connections, transaction
from django.db.models import CharField, Func, QuerySet, sql
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


def is_pooled(connection: Any) -> bool:
    """Whether closing a connection only gives it back to a pool of this process."""
    return bool(connection.settings_dict.get("OPTIONS", {}).get("pool"))


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
