"""
Empties the test database after a test whose rows other threads and processes see.

In the place of Django's flush: a DELETE for each table takes a tenth of its time, and content types and permissions
stay, which every cache of this process remembers.
"""

import sys
import threading
import time

from asgiref.sync import SyncToAsync
from django.apps import apps
from django.db import connection, connections, transaction

from mcp_tasks.access import refusals
from mcp_tasks.execution.threads import DaemonPool
from mcp_tasks.notifications.hub import hub
from mcp_tasks.transports.http.streams import inline_pool
from mcp_tasks.transports.lanes import lanes

_KEPT = {"django_content_type", "auth_permission"}


def empty() -> None:
    """Wait for what the server still writes on other threads, then delete all rows that tests make."""
    refusals.settle(5)
    for pool in (lanes, inline_pool):
        _wait_for(pool, 5)
    tables = {model._meta.db_table: model for model in apps.get_models(include_auto_created=True)}
    # Foreign keys are looked at when the transaction ends, or, in MariaDB, not at all.
    with connection.constraint_checks_disabled(), transaction.atomic():
        for table, model in tables.items():
            if table not in _KEPT and model._meta.managed:
                model._base_manager.all()._raw_delete(connection.alias)


def _wait_for(pool: DaemonPool, seconds: float) -> None:
    """Until every job of the pool is done: a caller that went away does not stop what it had asked for."""
    crew, deadline = pool._crew, time.monotonic() + seconds
    while crew.jobs or crew.idle < len(crew.threads):
        assert time.monotonic() < deadline, f"{pool._name} still works: the next test would meet its rows"
        time.sleep(0.001)


def end_threads() -> None:
    """Before the database is dropped."""
    refusals.settle(5)
    hub.close()
    lanes.end(wait_seconds=5)
    inline_pool.end(wait_seconds=5)
    # The thread on which asgiref runs what asynchronous tests call; it lives as long as the process.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result(5)
    if connection.vendor == "postgresql":
        _wait_for_sessions(15)  # an outbox that rests closes its own after ten
    # A test whose handler left a transaction has another connection since than the one that drops the database.
    connections.close_all()


def _wait_for_sessions(seconds: float) -> None:
    """PostgreSQL drops no database that somebody uses, such as a thread which a test left behind: named, and ended."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    deadline = time.monotonic() + seconds
    with connection.cursor() as cursor:
        while True:
            cursor.execute(f"SELECT state, query {others}")
            left = cursor.fetchall()
            if not left:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        alive = sorted(thread.name for thread in threading.enumerate())
        print(f"threads {alive} left sessions open, and asked last: {left}", file=sys.__stderr__)
        cursor.execute(f"SELECT pg_terminate_backend(pid) {others}")
