"""What looks for work does not look at every row: with many tasks each of these finds its few by its index."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from mcp_tasks.lifecycle import DONE, EXPIRED, PARKED, QUEUED, RUNNING
from mcp_tasks.models import Task
from mcp_tasks.protocol.tasks import COMPLETED, INPUT_REQUIRED, WORKING
from mcp_tasks.store import DatabaseTaskStore, RunningLimit

from .statements import WHOLE_TABLE, planned

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor not in ("sqlite", "postgresql"), reason="reads only these plans"),
]

#: PostgreSQL weighs how many there are; SQLite, at most, how they are spread.
ROWS, BATCH = 20_000 if connection.vendor == "postgresql" else 4_000, 2_000
#: One of so many rows is in each of the phases where something is still to come; all others have ended.
SHARE = 40

EXPECTED = {
    "claim": {"mcp_tasks_claim"},
    "recover": {"mcp_tasks_due"},
    "redeliver": {"mcp_tasks_due"},
    "answer_overdue": {"mcp_tasks_due"},
    "expire": {"mcp_tasks_sweep"},
    "purge": {"mcp_tasks_sweep"},
    "get_task_result": {
        "sqlite_autoindex_mcp_tasks_task_1" if connection.vendor == "sqlite" else "mcp_tasks_task_pkey"
    },
}


def a_site_in_use() -> None:
    """Mostly finished tasks, a queue, legs that run, tasks that wait for people; next to nothing is due."""
    _fill(ROWS)
    _know_the_table()


def a_long_queue() -> None:
    """Many queued tasks of one tool, each third one urgent, in front of a few of another; some run, some have ended."""
    _fill(ROWS // 2)
    now = datetime.now(UTC)
    queued = [_row(0, now + timedelta(milliseconds=number)) for number in range(ROWS // 20)]
    for number, task in enumerate(queued):
        task.priority, task.tool = int(number % 3 == 0), "report" if number < len(queued) - 3 else "rare"
    Task.objects.bulk_create(queued, batch_size=BATCH)
    _know_the_table()


def _fill(number: int) -> None:
    """So many rows: the eighth part, doubled three times by the database itself."""
    now = datetime.now(UTC)
    Task.objects.bulk_create([_row(one, now) for one in range(number // 8)], batch_size=BATCH)
    columns = ", ".join(field.column for field in Task._meta.concrete_fields if field.column != "ref")
    another = "lower(hex(randomblob(16)))" if connection.vendor == "sqlite" else "gen_random_uuid()"
    with connection.cursor() as cursor:
        for _ in range(3):
            cursor.execute(
                f"INSERT INTO mcp_tasks_task (ref, {columns}) SELECT {another}, {columns} FROM mcp_tasks_task"
            )


def _know_the_table() -> None:
    if connection.vendor == "postgresql":
        # Done by the server itself before long; SQLite has to do without.
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE mcp_tasks_task")


def _row(number: int, now: datetime) -> Task:
    phases = ((QUEUED, WORKING), (RUNNING, WORKING), (PARKED, INPUT_REQUIRED), (EXPIRED, COMPLETED))
    phase, status = phases[number % SHARE] if number % SHARE < len(phases) else (DONE, COMPLETED)
    later = now + timedelta(seconds=60 + number)
    return Task(
        ref=uuid4(),
        method="tools/call",
        tool="report",
        phase=phase,
        status=status,
        created_at=now,
        updated_at=now,
        phase_at=now,
        poll_interval_ms=1000,
        due_at=later if phase in (QUEUED, RUNNING, PARKED) else None,
        ttl_ms=3_600_000,
        expires_at=now if phase == EXPIRED else later,
        sweep_at=later,
        asks_json="{}" if phase == PARKED else None,
        result_json="{}" if phase == DONE else None,
    )


def test_what_looks_for_work_and_every_poll_find_their_rows_by_an_index() -> None:
    a_site_in_use()
    store, found = DatabaseTaskStore(), {}
    finished = Task.objects.filter(phase=DONE).values_list("pk", flat=True)[0]
    for name in EXPECTED:
        with planned() as plans:
            getattr(store, name)(*([finished] if name == "get_task_result" else []))
        found[name] = plans[0]
    assert found == EXPECTED


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({}, "mcp_tasks_claim"),
        ({"oldest_first": True}, "mcp_tasks_phase"),
        ({"tools": ("rare",)}, "mcp_tasks_claim"),
        ({"limits": {"report": RunningLimit(total=1)}}, "mcp_tasks_claim"),
    ],
    ids=["by priority", "oldest first", "one tool", "beside a full tool"],
)
def test_a_claim_reads_a_long_queue_in_its_order_and_sorts_nothing(asked: dict[str, Any], index: str) -> None:
    a_long_queue()
    with planned() as plans:
        claim = DatabaseTaskStore().claim(**asked)
    assert claim is not None
    passes_over = "tools" in asked or "limits" in asked
    assert claim.tool == ("rare" if passes_over else "report")
    if passes_over and connection.vendor == "postgresql":
        # It knows how few are left and may fetch and sort those.
        assert WHOLE_TABLE not in plans[-1]
    else:
        assert plans[-1] == {index}
