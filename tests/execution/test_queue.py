"""What a process starts next: limits of tools, priorities, and that nobody waits for ever."""

import threading
from collections import Counter
from typing import Any

import pytest

from mcp_tasks import TaskContext
from mcp_tasks.execution.queue import OLDEST_EVERY, Queue, running_limits
from mcp_tasks.models import Task
from mcp_tasks.store import get_store
from mcp_tasks.store.types import Owner, RunningLimit
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)


def create(tool: str, *, owner: str | None = None, priority: int = 0, age: int = 0) -> Any:
    made = get_store().create_task(tool, {}, owner=owner and Owner((owner,)), priority=priority)  # type: ignore[arg-type]
    if age:
        rewind(made.ref, age)
    return made.ref


def taken(queue: Queue, number: int) -> list[Any]:
    return [claim and claim.ref for claim in (queue.take() for _ in range(number))]


def test_the_limits_are_those_that_the_tools_of_this_process_set(mcp_tools: Any) -> None:
    mcp_tools(name="free")(lambda: None)
    mcp_tools(name="few", max_running=3)(lambda: None)
    mcp_tools(name="fair", max_running=9, max_running_per_owner=2)(lambda: None)
    found = running_limits()
    assert (found["few"], found["fair"]) == (RunningLimit(3), RunningLimit(9, 2))
    assert "free" not in found


@pytest.mark.parametrize("limit", ["3", 0, -1])
def test_a_wrong_limit_stops_no_queue(mcp_tools: Any, limit: Any) -> None:
    mcp_tools(name="wrong", max_running=limit)(lambda: None)
    mcp_tools(name="other")(lambda: None)
    wrong, other = create("wrong", age=10), create("other")
    assert taken(Queue(), 2) == [wrong, other]


def test_a_tool_at_its_limit_holds_up_no_other(mcp_tools: Any) -> None:
    mcp_tools(name="few", max_running=2)(lambda: None)
    mcp_tools(name="free")(lambda: None)
    few = [create("few", age=60 - index) for index in range(20)]
    free = [create("free") for _ in range(2)]
    assert taken(Queue(), 5) == [*few[:2], *free, None]


def test_one_owner_at_the_limit_holds_up_no_other_owner(mcp_tools: Any) -> None:
    mcp_tools(name="fair", max_running_per_owner=1)(lambda: None)
    of_ann = [create("fair", owner="ann", age=60 - index) for index in range(12)]
    of_bob = create("fair", owner="bob")
    assert taken(Queue(), 3) == [of_ann[0], of_bob, None]


def test_higher_priorities_start_first_and_within_one_the_oldest(mcp_tools: Any) -> None:
    low = create("low", priority=-5, age=30)
    old, new = create("plain", age=20), create("plain", age=10)
    high = create("high", priority=5)
    assert taken(Queue(), 4) == [high, old, new, low]


def test_every_so_many_starts_the_oldest_has_its_turn_whatever_its_priority(mcp_tools: Any) -> None:
    low = create("low", priority=-5, age=100)
    for _ in range(20):
        create("high", priority=5)
    refs = taken(Queue(), OLDEST_EVERY)
    assert refs.index(low) == OLDEST_EVERY - 1


def test_processes_that_end_after_one_leg_come_to_the_oldest_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_tasks.execution.queue.randrange", lambda stop: stop - 1)
    low = create("low", priority=-5, age=100)
    high = create("high", priority=5)
    assert taken(Queue(), 2) == [low, high]


def test_a_process_for_some_tools_takes_nothing_else(mcp_tools: Any) -> None:
    create("other", priority=9)
    mine = create("mine")
    assert taken(Queue(("mine",)), 2) == [mine, None]


def test_workers_hold_a_limit_together_and_go_on_when_there_is_room(mcp_tools: Any, worker: Any) -> None:
    lock, now, most = threading.Lock(), Counter[str](), Counter[str]()

    @mcp_tools(max_running=3, max_running_per_owner=2)
    def narrow(ctx: TaskContext) -> None:
        assert ctx.owner is not None
        for key in ("all", ctx.owner.key):
            with lock:
                now[key] += 1
                most[key] = max(most[key], now[key])
        ctx.token.wait(0.05)
        with lock:
            now["all"] -= 1
            now[ctx.owner.key] -= 1

    refs = [create("narrow", owner=owner) for owner in ("ann", "bob", "eve") for _ in range(6)]
    for _ in range(2):
        worker(4)
    for ref in refs:
        assert get_store().wait_for_completion(ref, 20.0) is not None
    assert most.pop("all") <= 3
    assert set(most.values()) <= {1, 2}
    assert set(Task.objects.values_list("status", flat=True)) == {"completed"}


def test_a_task_that_waits_for_room_starts_as_soon_as_there_is_some(mcp_tools: Any, worker: Any) -> None:
    import time

    mcp_tools(name="narrow", max_running=1)(lambda: time.sleep(0.05))
    refs = [create("narrow") for _ in range(6)]
    began = time.monotonic()
    worker(2)
    for ref in refs:
        get_store().wait_for_completion(ref, 20.0)
    assert time.monotonic() - began < 3, "it did not wait for the next look of a worker that has nothing to do"
