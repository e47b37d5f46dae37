"""The SQL of an operation: how many statements it is, and by which index each would be answered."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

#: Begin, end and nesting of transactions; SQLite's BEGIN and savepoints pass through Django's cursors too.
_FRAME = re.compile(r"\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)", re.IGNORECASE)
_INDEX = {
    "sqlite": re.compile(r"USING (?:COVERING )?INDEX (\w+)"),
    "postgresql": re.compile(r"(?:Index Scan|Index Only Scan)(?: Backward)?(?: using| on) (\w+)"),
}
_WHOLE_TABLE = {"sqlite": re.compile(r"^SCAN \w+$", re.MULTILINE), "postgresql": re.compile(r"Seq Scan on")}

WHOLE_TABLE = "every row of the table"


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements in this block that are not the frame of a transaction."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if not _FRAME.match(sql):
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
    whole = {WHOLE_TABLE} if _WHOLE_TABLE[connection.vendor].search(plan) else set()
    return {*_INDEX[connection.vendor].findall(plan), *whole}
