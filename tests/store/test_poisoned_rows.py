"""A row that cannot be swept keeps no other back: what the janitor does in batches it does row by row then."""

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connections

from mcp_tasks import compat
from mcp_tasks.models import Task
from mcp_tasks.store import DatabaseTaskStore, batches, retention
from mcp_tasks.store import sweep as sweeping
from mcp_tasks.store.sweep import sweep
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = ["recover", "redeliver", "answer_overdue", "expire", "purge"]
ASKED = {"go": {"method": "roots/list"}}
Poison = Callable[[str, set[UUID]], None]

store = DatabaseTaskStore()


def due(step: str) -> UUID:
    """A task that this step changes, and no other step before it in the same pass."""
    ref = store.create_task("scan", {}, ttl_ms=100_000, max_attempts=3).ref
    if step in ("recover", "answer_overdue"):
        assert store.claim(ref)
    if step == "answer_overdue":
        assert store.require_input(ref, ASKED, leg=1, deadlines={"go": 10})
    if step == "purge":
        rewind(ref, 101)
        assert store.expire().expired == 1
        rewind(ref, 10_000_000)
    rewind(ref, 101 if step == "expire" else 90)
    return ref


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Poison:
    """Whatever this step writes at its end raises, once everything else of it is written."""
    ends: dict[str, tuple[Any, str, Callable[..., set[UUID]]]] = {
        "recover": (sweeping, "record_all", lambda using, kind, changed: {ref for ref, _, _ in changed}),
        "redeliver": (sweeping.Effect, "after_commit", lambda effect, using: {effect.ref}),
        "answer_overdue": (sweeping, "answer", lambda using, row, *_, **__: {row.ref}),
        "expire": (retention, "record_all", lambda using, kind, changed: {ref for ref, _, _ in changed}),
        "purge": (retention, "_delete", lambda using, model, refs: set(refs) if model is Task else set()),
    }

    def poison(step: str, refs: set[UUID]) -> None:
        where, name, concerned = ends[step]
        original = getattr(where, name)

        def poisoned(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            if concerned(*arguments, **options) & refs:
                raise RuntimeError("this row cannot be swept")
            return result

        monkeypatch.setattr(where, name, poisoned)

    return poison


def rows(refs: set[UUID]) -> list[dict[str, Any]]:
    return list(Task.objects.filter(pk__in=refs).order_by("pk").values())


@pytest.mark.parametrize("step", STEPS)
def test_a_poisoned_row_keeps_no_other_from_being_swept(
    step: str, poison: Poison, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for size in ("_BATCH_SKIPPING", "_BATCH_GUARDED"):
        monkeypatch.setattr(batches, size, 3)
    refs = sorted(due(step) for _ in range(8))
    poisoned = {refs[0], refs[4]}
    before = rows(poisoned)
    poison(step, poisoned)
    report = sweep(store)
    assert (report.changed, report.errors) == (6, [step])
    assert rows(poisoned) == before, "what it wrote of a row was rolled back"
    told = [record for record in caplog.records if record.event == "sweep_row_failed"]
    assert {record.ref for record in told} == {str(ref) for ref in poisoned}
    assert all(record.levelno == logging.ERROR and record.exc_info and record.step == step for record in told)


@pytest.mark.parametrize("step", STEPS)
def test_a_row_is_swept_once_it_is_no_longer_poisoned(step: str, poison: Poison) -> None:
    refs = {due(step) for _ in range(3)}
    poisoned = {min(refs)}
    poison(step, poisoned)
    assert sweep(store).changed == 2
    poisoned.clear()
    report = sweep(store)
    assert (report.changed, report.errors) == (1, [])


def test_where_no_row_comes_through_the_pass_gives_up_after_one_batch(
    poison: Poison, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for size in ("_BATCH_SKIPPING", "_BATCH_GUARDED"):
        monkeypatch.setattr(batches, size, 3)
    poison("recover", {due("recover") for _ in range(8)})
    report = store.recover()
    assert (report.changed, report.errors) == (0, ["recover"])
    assert [record.event for record in caplog.records] == ["sweep_batch_failed"] + 3 * ["sweep_row_failed"]


@pytest.mark.parametrize("step", ["recover", "answer_overdue"])
@pytest.mark.parametrize("how", ["away", "busy"])
def test_a_database_that_is_away_or_busy_is_not_asked_for_each_row(
    step: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [due(step) for _ in range(3)]
    tries: list[Any] = []

    def failing(*arguments: Any) -> Any:
        tries.append(arguments)
        if how == "away":
            monkeypatch.setattr(connections["default"], "connection", None)
        raise OperationalError("no route to the database")

    monkeypatch.setattr(batches, "transact", failing)
    monkeypatch.setattr(sweeping, "transact", failing)
    monkeypatch.setattr(compat, "is_conflict", lambda error: how == "busy")
    with pytest.raises(OperationalError):
        getattr(store, step)()
    monkeypatch.undo()
    assert len(tries) == 1
    assert getattr(store, step)().changed == len(refs)
