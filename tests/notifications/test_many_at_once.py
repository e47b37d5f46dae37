"""Reading many tasks costs as many statements as reading one."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from mcp_tasks.models import Task
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.types import Owner, ref_of
from tests.store.statements import counted

pytestmark = pytest.mark.django_db

ALICE, BOB = Owner(("test", "alice"), "Alice"), Owner(("test", "bob"), "Bob")


def _many(count: int, owner: Owner) -> list[tuple[str, Any]]:
    """So many tasks of an owner, copied from one that the store made."""
    first = DatabaseTaskStore().create_task("report", {}, owner=owner, durable=False)
    row = Task.objects.get(ref=first.ref)
    ids = [f"{count}-{owner.label}-{number}".ljust(43, "x") for number in range(count - 1)]
    rows = []
    for task_id in ids:
        row.pk = ref_of(task_id)
        rows.append(Task(**{field.attname: getattr(row, field.attname) for field in Task._meta.concrete_fields}))
    Task.objects.bulk_create(rows, batch_size=100)
    return [(first.task_id, first.ref), *((task_id, ref_of(task_id)) for task_id in ids)]


READS: dict[str, Callable[[DatabaseTaskStore, list[tuple[str, Any]]], Any]] = {
    "owned_refs": lambda store, made: store.owned_refs([task_id for task_id, _ in made], ALICE),
    "snapshots": lambda store, made: store.snapshots([ref for _, ref in made]),
    "revisions": lambda store, made: store.revisions([ref for _, ref in made]),
}


def _parts(count: int) -> int:
    """How many statements so many names take: one, unless the database takes fewer parameters (SQLite)."""
    limit = connection.features.max_query_params
    return 1 if limit is None else math.ceil(count / (limit - 20))


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("count", [1, 50, 900, 1000])
def test_any_number_of_tasks_is_read_by_as_few_statements_as_the_database_allows(read: str, count: int) -> None:
    made = _many(count, ALICE)
    with counted() as statements:
        found = READS[read](DatabaseTaskStore(), made)
    assert len(found) == count
    assert len(statements) == _parts(count) <= 2, statements[:3]


@pytest.mark.parametrize("count", [1, 50, 900, 1000])
def test_ids_that_are_not_the_callers_are_looked_for_once_more(count: int) -> None:
    foreign, own = _many(count, BOB), _many(1, ALICE)
    with counted() as statements:
        found = READS["owned_refs"](DatabaseTaskStore(), foreign + own)
    assert found == dict(own)
    assert len(statements) == _parts(count + 1) + _parts(count)


def test_nothing_asked_or_nothing_well_formed_costs_nothing() -> None:
    store = DatabaseTaskStore()
    with counted() as statements:
        assert store.owned_refs([], ALICE) == {}
        assert store.owned_refs(["no id", "\x00", ""], ALICE) == {}
        assert store.snapshots([]) == {}
        assert store.revisions([]) == {}
    assert statements == []


def test_a_look_reads_no_payload() -> None:
    made = _many(3, ALICE)
    with counted() as statements:
        READS["revisions"](DatabaseTaskStore(), made)
    (statement,) = statements
    assert "result_json" not in statement
    assert "asks_json" not in statement


def test_more_than_the_database_takes_in_one_statement_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _many(100, ALICE)
    monkeypatch.setitem(vars(connection.features), "max_query_params", 50)  # a cached property of some
    with counted() as statements:
        found = READS["snapshots"](DatabaseTaskStore(), made)
    assert len(found) == 100
    assert len(statements) == 4
