"""
Databases of their own for real processes: pytest's test database is bound to pytest's own connections.

Which kinds there are is decided by DATABASE_URL, as for the rest of the suite.
"""

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SQLITE_IMMEDIATE, SQLITE_DEFAULT = "sqlite immediate", "sqlite default"
READ_COMMITTED, REPEATABLE_READ = "postgresql read committed", "postgresql repeatable read"

#: For every statement of a connection, those outside of a transaction block as well.
_REPEATABLE_READ_OPTION = r"-c default_transaction_isolation=repeatable\ read"


@dataclass(frozen=True, slots=True)
class Database:
    """One database: what Django needs to open it, and a way to look into it without Django."""

    settings: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a SELECT, read outside of everything that is under test."""
        if self.settings["ENGINE"].endswith("sqlite3"):
            connection = sqlite3.connect(self.settings["NAME"], timeout=20)
            try:
                return connection.execute(statement).fetchall()
            finally:
                connection.close()
        import psycopg

        with psycopg.connect(**_parameters(self.settings)) as connection:
            return connection.execute(statement).fetchall()

    def execute(self, statement: str) -> None:
        """Change rows behind the back of everything that is under test."""
        if self.settings["ENGINE"].endswith("sqlite3"):
            connection = sqlite3.connect(self.settings["NAME"], timeout=20)
            try:
                with connection:
                    connection.execute(statement)
            finally:
                connection.close()
            return
        import psycopg

        with psycopg.connect(**_parameters(self.settings)) as connection:
            connection.execute(statement)

    @contextmanager
    def frozen(self, tell: Callable[[int], None]) -> Iterator[None]:
        """
        A process stands still for the length of a block; ``tell`` sends it a signal.

        It is caught between its transactions: with SQLite's one lock in hand it would stop every other writer.
        """
        tell(signal.SIGSTOP)
        try:
            while not self._is_free():
                tell(signal.SIGCONT)
                time.sleep(0.02)
                tell(signal.SIGSTOP)
            yield
        finally:
            tell(signal.SIGCONT)

    def _is_free(self) -> bool:
        """Whether nobody keeps a lock on a task for longer than a working process does."""
        if self.settings["ENGINE"].endswith("sqlite3"):
            connection = sqlite3.connect(self.settings["NAME"], timeout=0.5, isolation_level=None)
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
            finally:
                connection.close()
            return True
        import psycopg

        with psycopg.connect(**_parameters(self.settings)) as connection:
            connection.execute("SET lock_timeout = '500ms'")
            try:
                connection.execute("SELECT ref FROM mcp_tasks_task FOR UPDATE")
            except psycopg.errors.LockNotAvailable:
                return False
            return True


def kinds() -> list[str]:
    """The kinds of databases that this run of the suite is about."""
    url = os.environ.get("DATABASE_URL")
    if not url:
        return [SQLITE_IMMEDIATE, SQLITE_DEFAULT]
    return [READ_COMMITTED, REPEATABLE_READ] if urlsplit(url).scheme.startswith("postgres") else []


def recommended() -> str:
    """The kind that a project should have."""
    return READ_COMMITTED if kinds()[:1] == [READ_COMMITTED] else SQLITE_IMMEDIATE


@contextmanager
def database(kind: str, name: str, folder: Path) -> Iterator[Database]:
    """An empty database for the length of a block; ``name`` tells those of parallel runs apart."""
    if kind in (SQLITE_IMMEDIATE, SQLITE_DEFAULT):
        yield for_processes(_sqlite(kind, folder / f"{name}.sqlite3"), folder)
        return
    from tests.settings import database as from_url

    settings = from_url(os.environ.get("DATABASE_URL") or "postgresql:///postgres")
    settings["NAME"] = f"{settings['NAME']}_{name}"
    if kind == REPEATABLE_READ:
        settings["OPTIONS"] = {"options": _REPEATABLE_READ_OPTION}
    _administer(settings, 'DROP DATABASE IF EXISTS "{}" WITH (FORCE)', 'CREATE DATABASE "{}"')
    try:
        yield for_processes(settings, folder)
    finally:
        _administer(settings, 'DROP DATABASE IF EXISTS "{}" WITH (FORCE)')


def _sqlite(kind: str, path: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
    if kind == SQLITE_IMMEDIATE:
        settings["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;",
        }
    return settings


def for_processes(settings: dict[str, Any], folder: Path) -> Database:
    """This database for processes that tests start."""
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "FAULTS_DATABASE": json.dumps(settings),
        # The demo site keeps a secret there, which must not end up in the working copy.
        "MCP_TASKS_DEMO_DIR": str(folder / "demo"),
    }
    return Database(settings, environment)


def _parameters(settings: dict[str, Any], *, name: str | None = None) -> dict[str, Any]:
    wanted = {
        "dbname": name or settings["NAME"],
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    }
    return {key: value for key, value in wanted.items() if value}


def _administer(settings: dict[str, Any], *statements: str) -> None:
    import psycopg

    with psycopg.connect(**_parameters(settings, name="postgres"), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.format(settings["NAME"]))
