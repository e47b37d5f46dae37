"""A store around a store loses nothing, and a subclass changes exactly what it overrides."""

import inspect
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID, uuid4

import pytest
from asgiref.sync import async_to_sync

from mcp_tasks.store import ForwardingTaskStore, MemoryTaskStore, Outcome, TaskStore
from mcp_tasks.store.base import twin
from mcp_tasks.store.forwarding import forwarded
from mcp_tasks.store.verbs import OperatorVerbs
from mcp_tasks.testing.contract import TaskStoreContract
from mcp_tasks.testing.contract_support import Advance
from tests.support.clock import ManualClock

INTERFACE = {name: value for kind in (OperatorVerbs, TaskStore) for name, value in vars(kind).items()}
PUBLIC = [name for name in INTERFACE if not name.startswith("_")]
METHODS = [name for name in PUBLIC if inspect.isfunction(INTERFACE[name])]


class TestForwardingTaskStore(TaskStoreContract):
    """The whole contract holds through it."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def store(self, clock: ManualClock) -> TaskStore:
        return ForwardingTaskStore(MemoryTaskStore(clock))

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Advance:
        return lambda ref, seconds: clock.advance(seconds)


def test_the_interface_has_nothing_but_methods_and_their_twins() -> None:
    for name in PUBLIC:
        value = INTERFACE[name]
        assert inspect.isfunction(value) or isinstance(value, twin), f"how is {name} forwarded?"


@pytest.mark.parametrize("name", METHODS)
def test_every_public_method_is_forwarded(name: str) -> None:
    assert isinstance(vars(ForwardingTaskStore).get(name), forwarded), f"{name} would be silently lost"


@pytest.mark.parametrize("name", METHODS)
def test_a_forwarded_call_arrives_with_every_argument_and_returns_what_the_inner_store_returns(name: str) -> None:
    parameters = list(inspect.signature(INTERFACE[name]).parameters.values())[1:]
    positional = [object() for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    keywords = {p.name: object() for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    inner = MagicMock(spec=MemoryTaskStore)
    assert getattr(ForwardingTaskStore(inner), name)(*positional, **keywords) is getattr(inner, name).return_value
    getattr(inner, name).assert_called_once_with(*positional, **keywords)
    assert len(inner.method_calls) == 1


def test_an_override_reaches_the_inner_store_by_super_and_is_what_twins_call() -> None:
    class Shouting(ForwardingTaskStore):
        def set_status(self, ref: UUID, message: str | None, **progress: Any) -> Outcome:
            return super().set_status(ref, (message or "").upper(), **progress)

    store = Shouting(MemoryTaskStore())
    ref = store.create_task("report", {}).ref
    assert store.set_status(ref, "reading", done=1)
    task = store.get_task(ref)
    assert task is not None
    assert (task.status_message, task.progress_done) == ("READING", 1)
    assert async_to_sync(store.aset_status)(ref, "writing")
    task = store.get_task(ref)
    assert task is not None
    assert task.status_message == "WRITING"


def test_a_twin_of_a_forwarding_store_reaches_what_the_inner_store_overrides() -> None:
    class Deaf(MemoryTaskStore):
        def wait_for_completion(self, ref: UUID, timeout: float | None = None) -> None:
            raise TimeoutError("never listens")

    with pytest.raises(TimeoutError, match="never listens"):
        async_to_sync(ForwardingTaskStore(Deaf()).await_for_completion)(uuid4())


def test_the_documentation_of_a_method_stays_with_it() -> None:
    assert ForwardingTaskStore.claim.__doc__ == TaskStore.claim.__doc__
