"""A claim beside transactions of others: it passes over the rows that they hold."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections, transaction

from mcp_tasks.models import Task
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.types import Claim, RunningLimit

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        not connection.features.has_select_for_update_skip_locked, reason="this database has no SKIP LOCKED"
    ),
]

store = DatabaseTaskStore()


@contextmanager
def held(ref: Any) -> Iterator[None]:
    """Another transaction is at this row."""
    with transaction.atomic():
        Task.objects.select_for_update().get(pk=ref)
        yield


def claimed_elsewhere(**options: Any) -> Claim | None:
    """What another worker gets; fails where it would have to wait."""
    got: list[Claim | None] = []

    def claim() -> None:
        try:
            got.append(store.claim(**options))
        finally:
            connections.close_all()

    thread = threading.Thread(target=claim, daemon=True)
    thread.start()
    thread.join(5)
    assert got, "it waits for the other transaction"
    return got[0]


def test_a_row_that_somebody_is_at_is_passed_over_without_waiting() -> None:
    first, second = (store.create_task("report", {}).ref for _ in range(2))
    with held(first):
        claim = claimed_elsewhere()
    assert claim is not None
    assert claim.ref == second


def test_the_same_holds_behind_a_tool_that_has_no_room() -> None:
    limits = {"few": RunningLimit(total=1)}
    assert store.claim(store.create_task("few", {}).ref, limits=limits)
    for _ in range(3):
        store.create_task("few", {})
    first, second = (store.create_task("report", {}).ref for _ in range(2))
    with held(first):
        claim = claimed_elsewhere(limits=limits)
    assert claim is not None
    assert claim.ref == second


def test_a_queue_of_which_somebody_is_at_every_row_has_nothing_to_start() -> None:
    only = store.create_task("report", {}).ref
    with held(only):
        assert claimed_elsewhere() is None
    assert store.claim() is not None
