"""Both stores keep the contract that ships with the package."""

from importlib import import_module

import pytest

from mcp_tasks.store import DatabaseTaskStore, MemoryTaskStore, TaskStore
from mcp_tasks.testing.contract import TaskStoreContract
from mcp_tasks.testing.contract_support import Advance, configured, question
from mcp_tasks.testing.timetravel import rewind
from tests.support.clock import ManualClock


class TestMemoryTaskStore(TaskStoreContract):
    """With a clock that the tests move."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def store(self, clock: ManualClock) -> TaskStore:
        return MemoryTaskStore(clock)

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Advance:
        return lambda ref, seconds: clock.advance(seconds)


@pytest.mark.django_db(transaction=True)
class TestDatabaseTaskStore(TaskStoreContract):
    """With the database's own clock, and tasks that are made older."""

    @pytest.fixture
    def store(self) -> TaskStore:
        return DatabaseTaskStore()

    @pytest.fixture
    def advance(self) -> Advance:
        return rewind


def test_without_a_clock_the_store_in_memory_uses_the_machines() -> None:
    store = MemoryTaskStore()
    first = store.create_task("report", {}).snapshot.task
    second = store.create_task("report", {}).snapshot.task
    assert first.created_at.utcoffset() is not None
    assert first.created_at <= second.created_at


def test_an_instant_belongs_to_what_comes_after_it() -> None:
    """What the database's running clock cannot be asked: the very moment of a lease, a deadline, a ttl, a removal."""
    clock = ManualClock()
    store = MemoryTaskStore(clock)
    with configured(TOMBSTONE_SECONDS=10):
        ref = store.create_task("report", {}, ttl_ms=100_000, max_attempts=3).ref
        assert store.claim(ref) is not None
        clock.advance(60)
        assert store.recover().recovered == 1
        assert store.claim(ref) is not None
        assert store.retry(ref, 2, after_seconds=5)
        clock.advance(5)
        assert store.claim(ref) is not None
        assert store.require_input(ref, {"ok": question()}, leg=3, deadlines={"ok": 5})
        clock.advance(5)
        assert store.answer_overdue().timed_out == 1
        clock.advance(29.75)
        assert store.set_ttl(ref, 200_000) is False, "a quarter of a second is too late"
        clock.advance(0.25)
        assert store.get_task(ref) is None
        assert store.expire().expired == 1
        clock.advance(10)
        assert store.purge().purged == 1


def test_two_stores_in_memory_know_nothing_of_each_other() -> None:
    created = MemoryTaskStore().create_task("report", {})
    assert MemoryTaskStore().get_task(created.ref) is None


@pytest.mark.parametrize("module", ["contract", "contract_legs", "contract_support"])
def test_a_failing_assert_of_the_contract_shows_its_values(module: str) -> None:
    loader = import_module(f"mcp_tasks.testing.{module}").__loader__
    assert type(loader).__name__ == "AssertionRewritingHook"
