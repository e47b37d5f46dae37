"""The SQL of an operation: how many statements it is, and by which index each would be answered."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection

from mcp_tasks.dbtime import current
from mcp_tasks.models import TaskStat

#: A pass of the janitor that finds nothing to do: a look of each of five steps, two whether an hour is over, three for
#: rows that nobody looks at any more, one to note that it ran.
IDLE_PASS = 11

#: Begin, end and nesting of transactions; SQLite's BEGIN and savepoints pass through Django's cursors too.
_FRAME = re.compile(r"\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)", re.IGNORECASE)
_INDEX = {
    "sqlite": re.compile(r"USING (?:COVERING )?INDEX (\w+)"),
    "postgresql": re.compile(r"(?:Index Scan|Index Only Scan)(?: Backward)?(?: using| on) (\w+)"),
}
_WHOLE_TABLE = {"sqlite": re.compile(r"^SCAN \w+$", re.MULTILINE), "postgresql": re.compile(r"Seq Scan on")}
_SORT = {"sqlite": re.compile(r"TEMP B-TREE FOR ORDER BY"), "postgresql": re.compile(r"Sort Key")}

WHOLE_TABLE, SORT = "every row of the table", "sorted after all were read"


def is_frame(sql: str) -> bool:
    """Whether a statement only begins, ends or nests a transaction."""
    return _FRAME.match(sql) is not None


def hours_are_counted() -> None:
    """As in a site that has run for a while: the hour before this one is counted, and no other is over."""
    this_hour = current("default").replace(minute=0, second=0, microsecond=0)
    TaskStat.objects.create(hour=this_hour - timedelta(hours=1), tool="", outcome="", early=False)


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements in this block that are not the frame of a transaction."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if not is_frame(sql):
            seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield seen


@contextmanager
def planned() -> Iterator[list[set[str]]]:
    """For each SELECT in this block, the indexes that it is answered by, as the database plans it there and then."""
    plans: list[set[str]] = []

    def explain(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if sql.startswith("SELECT"):
            prefix = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
            with connection.cursor() as cursor:
                # Not through the wrapped cursor, which would explain the explanation.
                cursor.cursor.execute(f"{prefix} {sql}", params)
                plans.append(_indexes("\n".join(str(row[-1]) for row in cursor.cursor.fetchall())))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield plans


def _indexes(plan: str) -> set[str]:
    found = set(_INDEX[connection.vendor].findall(plan))
    for name, sign in ((WHOLE_TABLE, _WHOLE_TABLE), (SORT, _SORT)):
        found |= {name} if sign[connection.vendor].search(plan) else set()
    return found
