"""Commits that do not wait for the disk: what a transaction sees is the same, only a power failure would show it."""

from typing import Any

_STATEMENTS = {"sqlite": "PRAGMA synchronous=OFF", "postgresql": "SET synchronous_commit = off"}


def hurry(connection: Any) -> None:
    """For the life of a connection; databases that are not known here stay as they are."""
    statement = _STATEMENTS.get(connection.vendor)
    if statement is not None:
        with connection.cursor() as cursor:
            cursor.execute(statement)
