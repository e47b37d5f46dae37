"""Both stores keep the contract that ships with the package."""

import pytest

from mcp_tasks.store import DatabaseTaskStore, MemoryTaskStore, TaskStore
from mcp_tasks.testing.contract import TaskStoreContract
from mcp_tasks.testing.contract_support import Advance
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


def test_two_stores_in_memory_know_nothing_of_each_other() -> None:
    created = MemoryTaskStore().create_task("report", {})
    assert MemoryTaskStore().get_task(created.ref) is None
