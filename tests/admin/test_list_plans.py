"""With many tasks each filter of the list, and what stands on the overview, finds its rows by an index."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.test import RequestFactory
from django.utils import timezone

from mcp_tasks.admin import overview
from mcp_tasks.admin.filters import CREATED, EXPIRY, tool_names
from mcp_tasks.lifecycle import EXPIRED
from mcp_tasks.models import Task
from mcp_tasks.operators import numbers
from mcp_tasks.operators.bulk import cancellable
from mcp_tasks.operators.states import FILTERS
from mcp_tasks.store.locking import database, rows
from tests.store.test_plans import ROWS, a_site_in_use

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor not in ("sqlite", "postgresql"), reason="reads only these plans"),
]

KEY = "sqlite_autoindex_mcp_tasks_task_1" if connection.vendor == "sqlite" else "mcp_tasks_task_pkey"
#: By time, where the newest of many that match are found soon: PostgreSQL knows how many do.
BY_TIME = {"mcp_tasks_created"} if connection.vendor == "postgresql" else set()
#: Both begin with the phase.
PHASE = {"mcp_tasks_phase", "mcp_tasks_claim"}
#: Filters, and the indexes by which one of them may be answered.
QUERIES: dict[str, set[str]] = {
    "": {"mcp_tasks_created"},
    **{f"state={name}": {*PHASE, "mcp_tasks_status", "mcp_tasks_due"} for name in FILTERS},
    "state=live": PHASE | BY_TIME,
    "state=completed": {*PHASE, "mcp_tasks_status"} | BY_TIME,
    "state=stopping": {*PHASE, "mcp_tasks_status", "mcp_tasks_finished", KEY},
    **{f"created={name}": {"mcp_tasks_created"} for name in CREATED},
    **{f"expiry={name}": PHASE | BY_TIME for name in EXPIRY},
    "tool=rare": {"mcp_tasks_tool"},
    "tool=report": {"mcp_tasks_tool", "mcp_tasks_created"},
    f"owner={'a' * 64}": {"mcp_tasks_of_owner", "mcp_tasks_owner"},
    "owner=anonymous": {"mcp_tasks_of_owner", "mcp_tasks_owner", "mcp_tasks_created"},
    "state=queued&tool=report": {*PHASE, "mcp_tasks_tool"},
    "state=failed&created=1h": {*PHASE, "mcp_tasks_status", "mcp_tasks_created"},
}


INDEX = {
    "sqlite": re.compile(r"mcp_tasks_task USING (?:COVERING )?INDEX (\w+)"),
    "postgresql": re.compile(r"(?:Scan|Scan Backward) (?:using|on) (mcp_tasks_(?!task\b)\w+)"),
}[connection.vendor]
WHOLE = re.compile(
    {"sqlite": r"SCAN mcp_tasks_task(?! USING)", "postgresql": r"Seq Scan on mcp_tasks_task"}[connection.vendor]
)


@contextmanager
def explained() -> Iterator[list[str]]:
    """The plans of the statements in this block, as text."""
    plans: list[str] = []

    def explain(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if sql.lstrip("(").startswith("SELECT"):
            prefix = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
            with connection.cursor() as cursor:
                # Not through the wrapped cursor, which would explain the explanation.
                cursor.cursor.execute(f"{prefix} {sql}", params)
                plans.append("\n".join(str(row[-1]) for row in cursor.cursor.fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield plans


#: No two tasks are created at once, or SQLite would go through the few instants one by one.
SPREAD = (
    "UPDATE mcp_tasks_task SET created_at = strftime('%Y-%m-%d %H:%M:%f000', created_at, '-' || rowid || ' seconds')"
)


def analyzed_without_tombstones() -> None:
    """The worst for SQLite: of four phases it takes any three for most of the rows, as soon as it has counted them."""
    Task.objects.filter(phase=EXPIRED).delete()
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(SPREAD)
        cursor.execute("ANALYZE mcp_tasks_task")


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_every_filter_and_what_the_overview_lists_are_answered_by_an_index(
    is_analyzed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_site_in_use()
    monkeypatch.setattr("mcp_tasks.admin.list.MOST_ROWS", ROWS // 2)
    if is_analyzed:
        analyzed_without_tombstones()
    request: Any = RequestFactory().get("/")
    request.user = User(is_active=True, is_staff=True, is_superuser=True)
    model_admin = admin.site._registry[Task]
    Task.objects.filter(pk__in=list(Task.objects.values_list("pk", flat=True)[:3])).update(tool="rare")
    refs = ",".join(str(ref) for ref in Task.objects.values_list("pk", flat=True)[:3])
    tool_names()
    wrong = {}
    for query, expected in {**QUERIES, f"ref={refs}": {KEY}}.items():
        request.GET = RequestFactory().get(f"/?{query}").GET
        with explained() as plans:
            found: Any = model_admin.get_changelist_instance(request)
        counting, listing = plans[-2:]  # an unheard-of tool costs one more
        # Where nearly every row matches, counting stops early, by whatever way.
        is_counted = found.paginator.is_capped or (
            set(INDEX.findall(counting)) <= expected and not WHOLE.search(counting)
        )
        by = set(INDEX.findall(listing))
        if not is_counted or not by or not by <= expected or WHOLE.search(listing):
            wrong[query] = plans
    assert not wrong, "\n".join(f"{query}\n{chr(10).join(plans)}" for query, plans in wrong.items())
    found = rows(database())
    for read, expected in (
        (numbers.live, PHASE),
        (overview._owners, PHASE),
        (overview._waiting, PHASE),
        (overview._stalled, {*PHASE, "mcp_tasks_due"}),
        (lambda found: list(cancellable(found, timezone.now())[:500]), PHASE | BY_TIME),
    ):
        with explained() as plans:
            read(found)
        by = set(INDEX.findall(plans[0]))
        assert by, plans
        assert by <= expected, plans
        assert not WHOLE.search(plans[0])
