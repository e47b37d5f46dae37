"""The claim loop, the slots, the sweep and the drain of one process."""

import threading
import time
from typing import Any

import pytest

from mcp_tasks import TaskContext
from mcp_tasks.execution.worker import Worker
from mcp_tasks.models import Task
from mcp_tasks.runners.embedded import EmbeddedRunner
from mcp_tasks.store import get_store
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)


def settled(ref: Any) -> Any:
    found = get_store().wait_for_completion(ref, 10.0)
    assert found is not None
    return found.task


def test_a_queued_task_runs_without_anybody_ringing(mcp_tools: Any, worker: Any) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    created = get_store().create_task("quick", {})
    worker(1)
    assert settled(created.ref).status == "completed"


def test_the_bell_wakes_the_claim_loop_at_once(mcp_tools: Any, worker: Any) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    idle = worker(1)
    time.sleep(0.3)  # it has looked and waits now
    created = get_store().create_task("quick", {})
    started = time.monotonic()
    idle.ring()
    settled(created.ref)
    assert time.monotonic() - started < 0.9


def test_no_more_legs_run_at_once_than_there_are_slots(mcp_tools: Any, worker: Any) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    @mcp_tools
    def busy() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1

    refs = [get_store().create_task("busy", {}).ref for _ in range(8)]
    worker(2)
    for ref in refs:
        settled(ref)
    assert most[0] == 2


def test_sync_and_async_handlers_run_side_by_side(mcp_tools: Any, worker: Any) -> None:
    import asyncio

    @mcp_tools
    async def coroutine() -> str:
        await asyncio.sleep(0.05)
        return await asyncio.to_thread(lambda: "async")

    mcp_tools(name="plain")(lambda: "sync")
    refs = [get_store().create_task(name, {}).ref for name in ("coroutine", "plain")]
    worker(2)
    assert [settled(ref).status for ref in refs] == ["completed", "completed"]


def test_the_sweep_brings_back_a_task_whose_worker_was_lost(mcp_tools: Any, worker: Any, settings: Any) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "SWEEP_SECONDS": 1}
    mcp_tools(name="quick")(lambda: "ok")
    created = get_store().create_task("quick", {}, max_attempts=3)
    assert get_store().claim(created.ref) is not None
    rewind(created.ref, 120)
    worker(1)
    assert settled(created.ref).status == "completed"


def test_a_drain_claims_nothing_more_and_releases_what_stops_for_it(mcp_tools: Any) -> None:
    running = threading.Event()

    @mcp_tools(annotations={"readOnlyHint": True})
    def patient(ctx: TaskContext) -> None:
        running.set()
        ctx.token.wait(10)
        ctx.token.raise_if_cancelled()

    first = get_store().create_task("patient", {}, max_attempts=3)
    worker = Worker(1)
    worker.start()
    assert running.wait(5)
    second = get_store().create_task("patient", {}, max_attempts=3)
    began = time.monotonic()
    worker.drain(8.0)
    assert time.monotonic() - began < 4
    assert Task.objects.get(pk=first.ref).phase == "queued"
    assert Task.objects.get(pk=second.ref).leg == 0


def test_a_drain_does_not_wait_longer_than_it_may(mcp_tools: Any) -> None:
    release = threading.Event()
    running = threading.Event()

    @mcp_tools
    def deaf() -> None:
        running.set()
        release.wait(10)

    get_store().create_task("deaf", {})
    worker = Worker(1)
    worker.start()
    assert running.wait(5)
    began = time.monotonic()
    worker.drain(0.3)
    assert time.monotonic() - began < 2
    release.set()
    worker.drain(5.0)


def test_a_slot_survives_a_handler_that_raises_anything(mcp_tools: Any, worker: Any) -> None:
    @mcp_tools
    def leaving() -> None:
        raise SystemExit(3)

    refs = [get_store().create_task("leaving", {}).ref for _ in range(3)]
    worker(1)
    assert [settled(ref).status for ref in refs] == ["completed"] * 3


def _threads_of_runners() -> list[str]:
    names = (thread.name for thread in threading.enumerate())
    return sorted(name for name in names if name.startswith(("mcp-tasks-claim", "mcp-tasks-slot", "mcp-tasks-report")))


def test_the_embedded_runner_starts_with_what_serves_and_not_with_the_bell(mcp_tools: Any) -> None:
    runner = EmbeddedRunner(SLOTS=1)
    before = _threads_of_runners()
    created = get_store().create_task("quick", {})
    runner.enqueue(created.ref)
    assert set(_threads_of_runners()) <= set(before)  # one of an earlier test may have ended meanwhile
    mcp_tools(name="quick")(lambda: "ok")
    runner.ensure_started()
    runner.ensure_started()
    try:
        assert settled(created.ref).status == "completed"
    finally:
        runner.drain(5.0)


@pytest.mark.parametrize("slots", [0, -1, True, "4"])
def test_wrong_slots_are_refused_by_name(slots: Any) -> None:
    with pytest.raises(ValueError, match="SLOTS"):
        EmbeddedRunner(SLOTS=slots)
