"""What only the database store has: transactions of a caller, batches, paging, and a timeline."""

from typing import Any

import pytest
from django.db import transaction

from mcp_tasks.models import Task, TaskEvent, TaskInput
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.protocol.tasks import is_task_id
from mcp_tasks.store import batches, effects, locking, reading
from mcp_tasks.store.database import DatabaseTaskStore
from mcp_tasks.store.types import Owner
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)

ASK = {"go": {"method": "roots/list"}}
RESULT = {"content": [], "resultType": "complete"}


@pytest.fixture
def store() -> DatabaseTaskStore:
    return DatabaseTaskStore()


def kinds(ref: Any) -> list[str]:
    return list(TaskEvent.objects.filter(task_id=ref).order_by("id").values_list("kind", flat=True))


def test_an_acknowledgement_is_never_given_inside_a_transaction_that_may_roll_back(store: DatabaseTaskStore) -> None:
    ref = store.create_task("scan", {}).ref
    with transaction.atomic():
        for write in (
            lambda: store.create_task("scan", {}),
            lambda: store.cancel_task(ref),
            lambda: store.complete_task(ref, RESULT),
            lambda: store.apply_input_responses(ref, {}),
        ):
            with pytest.raises(RuntimeError, match="durable"):
                write()
    assert Task.objects.count() == 1


def test_a_caller_may_ask_to_commit_together_and_hears_nothing_before(store: DatabaseTaskStore) -> None:
    rung: list[Any] = []
    effects.enqueue_hooks.append(rung.append)
    try:
        with transaction.atomic():
            kept = store.create_task("scan", {}, durable=False)
            assert rung == []
        assert rung == [kept.ref]
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            store.create_task("scan", {}, durable=False)
            _ = 1 / 0
        assert rung == [kept.ref]
    finally:
        effects.enqueue_hooks.remove(rung.append)
    assert list(Task.objects.values_list("pk", flat=True)) == [kept.ref]


def test_a_first_task_of_an_owner_also_commits_together(store: DatabaseTaskStore) -> None:
    owner = Owner(("new", "owner"))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        store.create_task("scan", {}, owner=owner, durable=False)
        _ = 1 / 0
    assert not Task.objects.exists()
    assert store.create_task("scan", {}, owner=owner).existed is False


def test_a_hook_that_raises_reaches_nobody(store: DatabaseTaskStore) -> None:
    def broken(ref: Any) -> None:
        raise RuntimeError("no broker")

    effects.enqueue_hooks.insert(0, broken)
    try:
        created = store.create_task("scan", {})
    finally:
        effects.enqueue_hooks.remove(broken)
    assert store.get_task(created.ref) is not None


def test_a_listing_goes_on_over_many_batches(store: DatabaseTaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LISTING_BATCH", 3)
    made = {store.create_task("scan", {}).ref for _ in range(10)}
    listed = [task.ref for task in store.list_tasks()]
    assert len(listed) == 10
    assert set(listed) == made


def test_the_janitor_goes_on_over_many_batches(store: DatabaseTaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_BATCH_SKIPPING", 3)
    monkeypatch.setattr(batches, "_BATCH_GUARDED", 3)
    refs = [store.create_task("scan", {}, ttl_ms=60_000).ref for _ in range(10)]
    for ref in refs:
        rewind(ref, 120)
    assert store.expire().expired == 10
    for ref in refs:
        rewind(ref, 200_000)
    assert store.purge().purged == 10
    assert store.purge().purged == 0
    assert not Task.objects.exists()
    assert not TaskEvent.objects.exists()


def test_each_transition_leaves_one_event_in_its_order(store: DatabaseTaskStore) -> None:
    ref = store.create_task("scan", {}, max_attempts=3).ref
    for _ in range(2):
        claim = store.claim(ref, holder="host:1")
        assert claim is not None
        store.set_status(ref, "reading", leg=claim.leg)
        if claim.leg == 1:
            store.require_input(ref, ASK, leg=1)
            store.apply_input_responses(ref, {"go": {"roots": []}})
    store.release(ref, 2)
    store.claim(ref)
    store.retry(ref, 3, after_seconds=0)
    store.claim(ref)
    store.complete_task(ref, RESULT, leg=4)
    assert kinds(ref) == [
        "created",
        "claimed",
        "asked",
        "answered",
        "claimed",
        "released",
        "claimed",
        "retried",
        "claimed",
        "completed",
    ]
    assert list(TaskEvent.objects.order_by("id").values_list("revision", flat=True)) == sorted(
        TaskEvent.objects.values_list("revision", flat=True)
    )


def test_a_refused_transition_leaves_no_event(store: DatabaseTaskStore) -> None:
    ref = store.create_task("scan", {}).ref
    store.cancel_task(ref)
    before = kinds(ref)
    assert not store.complete_task(ref, RESULT)
    assert not store.fail_task(ref, McpError(-32603, "late"))
    store.cancel_task(ref)
    assert kinds(ref) == before == ["created", "cancelled"]


def test_a_timeline_has_a_bound_that_only_the_end_passes(
    store: DatabaseTaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "EVENTS_PER_TASK", 5)
    ref = store.create_task("scan", {}).ref
    for n in range(10):
        store.set_ttl(ref, 60_000 + n)
    assert len(kinds(ref)) == 5
    store.cancel_task(ref)
    assert kinds(ref)[-1] == "cancelled"


def test_no_clients_id_is_in_any_column_of_any_table(store: DatabaseTaskStore) -> None:
    owner = Owner(("a",), "Ada")
    ids = [store.create_task("scan", {}, owner=owner, idempotency_key=key).task_id for key in (None, "k")]
    assert all(map(is_task_id, ids))
    rows = [str(row) for model in (Task, TaskEvent, TaskInput) for row in model.objects.values()]
    assert not [row for row in rows for task_id in ids if task_id in row]


def test_the_time_in_each_phase_is_booked(store: DatabaseTaskStore) -> None:
    ref = store.create_task("scan", {}).ref
    rewind(ref, 10)
    store.claim(ref)
    rewind(ref, 20)
    store.require_input(ref, ASK, leg=1)
    rewind(ref, 30)
    store.cancel_task(ref)
    row = Task.objects.get(pk=ref)
    assert row.queue_ms == pytest.approx(10_000, abs=2_000)
    assert row.run_ms == pytest.approx(20_000, abs=2_000)
    assert row.wait_ms == pytest.approx(30_000, abs=2_000)
