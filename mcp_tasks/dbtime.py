"""One clock, the database's: the statement's time in UTC, and what is computed from it (never an application clock)."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import BigIntegerField, DateTimeField, ExpressionWrapper, F, Func, Value, sql
from django.db.models.expressions import Combinable


class DbNow(Func):
    """
    The time of the statement, UTC.

    Not Django's ``Now()``: on MySQL that is the session's local time, on PostgreSQL the same as here.
    """

    output_field = DateTimeField()
    template = "STATEMENT_TIMESTAMP()"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Escaped for the parameter style; six digits, as Django stores and compares datetimes as text.
        return self.as_sql(
            compiler, connection, template="STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f000','NOW')", **extra
        )

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **extra)


class ElapsedMs(Func):
    """Whole milliseconds since an instant, by the database's clock."""

    output_field = BigIntegerField()
    template = "(EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP() - %(expressions)s) * 1000)::bigint"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Without the cast SQLite would store a float.
        return self.as_sql(
            compiler,
            connection,
            template="CAST((JULIANDAY('NOW') - JULIANDAY(%(expressions)s)) * 86400000 AS INTEGER)",
            **extra,
        )

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(
            compiler,
            connection,
            template="TIMESTAMPDIFF(MICROSECOND, %(expressions)s, UTC_TIMESTAMP(6)) DIV 1000",
            **extra,
        )


def current(using: str) -> datetime:
    """The time of the database as a value, for what is computed in Python: the hour that is over, an age."""
    connection = connections[using]
    compiler = sql.Query(None).get_compiler(using)
    text, params = compiler.compile(DbNow())
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {text}", params)
        [value] = cursor.fetchone()
    found: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def after(seconds: float) -> Combinable:
    """The instant so many seconds from now."""
    return later(DbNow(), timedelta(seconds=seconds))


def later(instant: Any, interval: Any) -> Combinable:
    """An instant moved by an interval (a timedelta, or an expression of one)."""
    step = Value(interval) if isinstance(interval, timedelta) else interval
    return ExpressionWrapper(instant + step, output_field=DateTimeField())


def moved(field: str, interval: timedelta) -> Combinable:
    """A column moved by an interval."""
    return later(F(field), interval)
