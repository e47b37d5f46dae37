"""With many tasks the API, the live refresh, the bulk page and the counts of hours find their rows by an index."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from rest_framework.test import APIRequestFactory, force_authenticate

from mcp_tasks.admin import bulk
from mcp_tasks.lifecycle import DONE, EXPIRED, RUNNING
from mcp_tasks.models import Task
from mcp_tasks.operators import numbers
from mcp_tasks.transports.rest.tasks import TaskListView
from tests.store.test_plans import BATCH, ROWS, _know_the_table, _row

from .test_list_plans import BY_TIME, INDEX, KEY, PHASE, WHOLE, explained

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor not in ("sqlite", "postgresql"), reason="reads only these plans"),
]

SECONDS = 10  # from one task to the next
CREATED, TOOL, DUE, FINISHED = "mcp_tasks_created", "mcp_tasks_tool", "mcp_tasks_due", "mcp_tasks_finished"
#: An aggregate over a subquery; and where PostgreSQL knows that it may stop early, whatever way it reads.
COUNTING = re.compile(r"CO-ROUTINE|Aggregate")
ENOUGH = re.compile(rf"Limit +\(cost=\S+ rows={bulk.MOST_FINISHED} ")
#: SQLite reads all rows that match before it has the first page.
SORTING = "TEMP B-TREE"
LIST = "/admin/mcp_tasks/task/"
NOW = datetime.now(UTC)


def ago(**span: float) -> str:
    return (NOW - timedelta(**span)).isoformat()


def a_site_with_a_past() -> None:
    """The same site over two days, with workers, and some tools of which one is rare."""
    tasks = [_row(number, NOW) for number in range(ROWS)]
    for number, task in enumerate(tasks):
        task.created_at = NOW - timedelta(seconds=SECONDS * number)
        task.tool = "rare" if number % 1000 == 0 else f"tool-{number % 7}"
        task.finished_at = task.created_at + timedelta(seconds=1) if task.phase == DONE else None
        task.lease_holder = f"web-1:{number % 5}" if task.phase == RUNNING else None
    Task.objects.bulk_create(tasks, batch_size=BATCH)
    _know_the_table()


#: Filters of the API, and the indexes by which one of them may be answered.
LISTS = {
    "worker=web-1:3": PHASE | {DUE},
    "worker=web-1:3&tool=tool-1": PHASE | {DUE, TOOL},
    f"created_after={ago(hours=1)}": {CREATED},
    f"created_before={ago(hours=30)}": {CREATED},
    f"created_after={ago(hours=30)}&created_before={ago(hours=29)}": {CREATED},
    f"expires_before={ago(hours=-1)}": PHASE | BY_TIME,
    f"expires_before={ago(hours=-99)}": PHASE | BY_TIME,
    "tool=rare&tool=tool-1": {TOOL, CREATED},
    "tool=rare&tool=nothing": {TOOL, CREATED},
    "tool=tool-1&tool=tool-2&tool=tool-3": {TOOL, CREATED},
}
#: Filters of the list that is refreshed, or of what is cancelled in bulk, and the indexes of what is counted.
COUNTS = {
    "": {CREATED, "mcp_tasks_phase"},
    "state=completed": {*PHASE, "mcp_tasks_status", CREATED},
    "state=failed": {*PHASE, "mcp_tasks_status", CREATED},
    "state=queued": {*PHASE, CREATED},
    "state=live": {*PHASE, CREATED},
    "tool=rare": {TOOL},
    "tool=tool-1": {TOOL, CREATED},
    "created=1h": {CREATED, *PHASE},
    "expiry=1h": {*PHASE, CREATED},
    f"owner={'a' * 64}": {"mcp_tasks_of_owner", "mcp_tasks_owner"},
}


#: By what was asked: the plan, and the indexes of which one at least has to be in it, and no other.
Plans = dict[str, tuple[str, set[str]]]


def faults(found: Plans, *, stops: bool = False) -> str:
    """The plans by no index, or by another; with ``stops`` a plan may also read until it has enough."""
    wrong = [
        f"{name}\n{plan}"
        for name, (plan, expected) in found.items()
        if not (stops and ENOUGH.search(plan))
        and (WHOLE.search(plan) or not set() < set(INDEX.findall(plan)) <= expected)
    ]
    return "\n".join(wrong)


def of_the_api() -> Plans:
    found = {}
    for query, expected in LISTS.items():
        request = APIRequestFactory().get("/?" + query.replace("+", "%2B"))
        force_authenticate(request, User(is_active=True, is_staff=True, is_superuser=True))
        with explained() as plans:
            answer = TaskListView.as_view()(request)
        assert answer.status_code == 200
        lists = [plan for plan in plans if "mcp_tasks_task" in plan]
        assert len(lists) == max(1, query.count("tool="))
        for number, plan in enumerate(lists):
            found[f"{query}, {number}"] = (plan, expected)
            assert SORTING not in plan or not query.startswith("tool="), plan
    return found


def of_a_live_refresh(client: Client) -> Plans:
    found = {}
    refs = ",".join(str(ref) for ref in Task.objects.order_by("-created_at").values_list("pk", flat=True)[:50])
    for query, expected in COUNTS.items():
        for named in (refs, ""):
            asked = {"refs": named, "since": ago(minutes=5), **dict(parse_qsl(query))}
            with explained() as plans:
                assert client.get(f"{LIST}live.json", asked).status_code == 200
            found[f"live, {query}, {len(named)}"] = (plans[-1], expected | {KEY} if named else expected)
    return found


def of_what_has_finished(client: Client) -> Plans:
    """What the page that cancels in bulk counts."""
    found = {}
    for query, expected in COUNTS.items():
        with explained() as plans:
            answer = client.get(f"{LIST}bulk-cancel/", {"everything": "1", **dict(parse_qsl(query))})
        assert answer.status_code == 200
        [counting] = [plan for plan in plans if COUNTING.search(plan) and "mcp_tasks_task" in plan]
        found[f"finished, {query}"] = (counting, expected)
    return found


def of_hours_that_are_not_counted_yet() -> Plans:
    found = {}
    end = NOW.replace(minute=0, second=0, microsecond=0) + numbers.HOUR
    for hours in (1, 2, 24):
        with explained() as plans:
            assert list(numbers._uncounted(end - hours * numbers.HOUR, end))
        found[f"{hours} hours"] = (plans[0], {FINISHED})
    return found


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_pages_beside_the_list_find_their_rows_by_an_index(superuser: Client, is_analyzed: bool) -> None:
    a_site_with_a_past()
    if is_analyzed:
        Task.objects.filter(phase=EXPIRED).delete()
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE mcp_tasks_task")
    for found in (of_the_api(), of_a_live_refresh(superuser), of_hours_that_are_not_counted_yet()):
        assert not faults(found), faults(found)
    found = of_what_has_finished(superuser)
    assert not faults(found, stops=True), faults(found, stops=True)
