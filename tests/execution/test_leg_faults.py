"""What else a leg outlives: a database that is away, threads that cannot be had, and predecessors that go on."""

import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection, connections
from mcp_types import CallToolResult

from mcp_tasks import DeferredTask, TaskContext
from mcp_tasks.execution import overdue, running, settling
from mcp_tasks.execution.heartbeat import Heartbeat, heartbeat
from mcp_tasks.execution.leg import run_leg
from mcp_tasks.execution.queue import Queue
from mcp_tasks.execution.running import RunningLeg
from mcp_tasks.execution.threads import DaemonPool
from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.store import get_store
from mcp_tasks.store.types import Claim
from mcp_tasks.testing import rewind
from mcp_tasks.tools.cancellation import SHUTDOWN, CancellationToken
from tests.support.push import soon

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Exception]]:
    """The database is away for the first so many calls of one method of the store; returns what is left of them."""
    monkeypatch.setattr(settling.time, "sleep", lambda seconds: None)

    def make(method: str, times: int = 2) -> list[Exception]:
        faults: list[Exception] = [OperationalError("server closed the connection")] * times
        real = getattr(get_store(), method)

        def flaky(self: Any, *args: Any, **options: Any) -> Any:
            if faults:
                raise faults.pop()
            return real(*args, **options)

        monkeypatch.setattr(type(get_store()), method, flaky)
        return faults

    return make


def create(tool: str, **options: Any) -> UUID:
    return get_store().create_task(tool, {}, **options).ref


def claim(ref: UUID) -> Claim:
    found = get_store().claim(ref)
    assert found is not None
    return found


def row(ref: UUID) -> Task:
    return Task.objects.get(pk=ref)


def kinds(ref: UUID) -> list[str]:
    return list(TaskEvent.objects.filter(task_id=ref).order_by("id").values_list("kind", flat=True))


# -- the database is away ----------------------------------------------------------------------------------------------


def test_a_leg_waits_for_its_arguments_rather_than_lose_its_only_try(mcp_tools: Any, away: Any) -> None:
    mcp_tools(name="once")(lambda: "done")
    ref = create("once", max_attempts=1)
    mine, faults = claim(ref), away("resume_context")
    run_leg(get_store(), mine)
    assert (faults, row(ref).status) == ([], "completed")


def test_a_lease_counts_from_the_claim_however_long_the_arguments_took(away: Any) -> None:
    away("heartbeat", 100_000)  # else the first renewal would tell
    leg = RunningLeg(create("any"), 1, CancellationToken(), claimed_at=time.monotonic() - 1000)
    beating = Heartbeat()
    beating.watch(get_store(), leg)
    try:
        assert leg.token.wait(0), "its lease is long over, and nobody tells it"
    finally:
        beating.forget(leg)


def test_a_job_is_started_once_though_the_database_goes_away_just_then(mcp_tools: Any, away: Any) -> None:
    started: list[UUID] = []
    mcp_tools(name="export")(lambda: DeferredTask(start=started.append))
    ref = create("export")
    mine, faults = claim(ref), away("hand_over")
    run_leg(get_store(), mine)
    assert (started, faults) == ([ref], [])
    assert (row(ref).status, row(ref).due_at) == ("working", None)


def test_no_job_is_started_for_a_task_that_was_cancelled_meanwhile(mcp_tools: Any) -> None:
    started: list[UUID] = []

    @mcp_tools(name="export")
    def export(ctx: TaskContext) -> DeferredTask:
        assert get_store().cancel(ctx.ref, actor="operator", reason="")
        return DeferredTask(start=started.append)

    ref = create("export")
    run_leg(get_store(), claim(ref))
    assert (started, row(ref).status) == ([], "cancelled")


def test_a_result_that_came_in_time_is_not_overtaken_by_the_time_limit(
    mcp_tools: Any, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overdue, "GRACE_SECONDS", 0.1)
    complete, over = get_store().complete_task, time.monotonic() + 1.5

    def late(self: Any, *args: Any, **options: Any) -> Any:
        if time.monotonic() < over:
            raise OperationalError("away for all but the failure")
        return complete(*args, **options)

    monkeypatch.setattr(type(get_store()), "complete_task", late)
    mcp_tools(name="quick", timeout_seconds=0.3)(lambda: "in time")
    ref = create("quick")
    worker(1)
    assert get_store().wait_for_completion(ref, 10.0)
    assert (row(ref).status, row(ref).status_message) == ("completed", None)


# -- results -----------------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"deeper": value}
    return value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(nested(99), id="a value that is too deep within its result"),
        pytest.param(CallToolResult(content=[], _meta={"shop/deep": nested(99)}), id="its meta"),
        pytest.param(CallToolResult(content=[], _meta={"shop/large": 10**5000}), id="a number"),
    ],
)
def test_a_result_without_a_json_form_as_a_whole_fails_after_one_run(mcp_tools: Any, value: Any) -> None:
    runs: list[int] = []

    @mcp_tools(name="deep", max_attempts=3)
    def deep() -> Any:
        runs.append(1)
        return value

    ref = create("deep", max_attempts=3)
    run_leg(get_store(), claim(ref))
    assert (runs, row(ref).status, row(ref).status_message) == ([1], "failed", "Internal error")


# -- threads -----------------------------------------------------------------------------------------------------------


def test_a_task_for_which_no_thread_can_be_started_goes_back_untried(
    mcp_tools: Any, worker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Any, job: Any) -> None:
        raise RuntimeError("can't start new thread")

    mcp_tools(name="once")(lambda: "done")
    ref = create("once", max_attempts=1)
    with monkeypatch.context() as patch:
        patch.setattr(DaemonPool, "submit", refuse)
        made = worker(1)
        assert soon(lambda: "released" in kinds(ref))
        assert (row(ref).phase, row(ref).attempts) == ("queued", 0)
        assert made.claims == 0
    rewind(ref, 5)
    assert soon(lambda: row(ref).status == "completed", 10)


def test_a_heartbeat_whose_thread_could_not_be_started_is_started_with_the_next_leg(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beating, legs = Heartbeat(), [RunningLeg(create("any"), 1, CancellationToken()) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("no thread")))
        with pytest.raises(RuntimeError):
            beating.watch(get_store(), legs[0])
    legs[1].beat_at = 0.0
    beating.watch(get_store(), legs[1])
    try:
        names = [thread.name for thread in threading.enumerate()]
        assert "mcp-tasks-heartbeat" in names
    finally:
        for leg in legs:
            beating.forget(leg)


def test_a_leg_that_could_not_be_watched_is_not_left_among_those_that_run(
    mcp_tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Heartbeat):
        def _ensure_started(self) -> None:
            raise RuntimeError("can't start new thread")

    mcp_tools(name="once")(lambda: "done")
    ref = create("once")
    with pytest.raises(RuntimeError):
        run_leg(get_store(), claim(ref), Broken())
    assert ref not in [leg.ref for leg in running.all_legs()]


# -- handlers that go on -----------------------------------------------------------------------------------------------


def test_a_handler_that_ignores_the_loss_of_its_lease_loses_its_slot_to_others_though_its_task_runs_here_again(
    mcp_tools: Any, worker: Any, released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overdue, "GRACE_SECONDS", 1.0)
    began: list[int] = []

    @mcp_tools(name="deaf", max_attempts=3)
    def deaf(ctx: TaskContext) -> None:
        began.append(ctx.leg or 0)
        if ctx.leg == 1:
            released.wait(20)

    both = threading.Barrier(2)
    mcp_tools(name="both")(lambda: both.wait(10))
    ref = create("deaf", max_attempts=3)
    made = worker(2)
    assert soon(lambda: began == [1])
    rewind(ref, 1000)
    get_store().recover()
    made.ring()
    assert soon(lambda: row(ref).status == "completed"), "the second leg, in this process too"
    first = next(leg for leg in running.all_legs() if leg.ref == ref)
    assert first.leg == 1
    first.beat_at = 0.0  # as if its renewal were due
    with heartbeat._wake:
        heartbeat._wake.notify()
    assert soon(lambda: made.deaf == 1, 10)
    assert [leg.ref for leg in running.all_legs()].count(ref) == 0
    pair = [create("both") for _ in range(2)]
    made.ring()
    assert soon(lambda: all(row(each).status == "completed" for each in pair)), "one slot is lost"
    released.set()
    assert soon(lambda: made.deaf == 0)


def test_the_time_limit_holds_for_a_handler_that_was_told_of_something_else_before(
    mcp_tools: Any, worker: Any, released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overdue, "GRACE_SECONDS", 0.3)

    @mcp_tools(name="deaf", timeout_seconds=0.5)
    def deaf() -> None:
        released.wait(20)

    ref = create("deaf")
    made = worker(1)
    assert soon(lambda: any(leg.ref == ref for leg in running.all_legs()))
    next(leg for leg in running.all_legs() if leg.ref == ref).token.raise_(SHUTDOWN)
    assert soon(lambda: row(ref).status == "failed"), "it runs as long as it likes"
    assert "0.5 seconds" in (row(ref).status_message or "")
    assert soon(lambda: made.deaf == 1)


# -- connections of a pool ---------------------------------------------------------------------------------------------


def test_a_handler_that_uses_no_database_occupies_no_connection_of_a_pool(
    mcp_tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_tasks.compat.is_pooled", lambda connection: True)
    monkeypatch.setattr("mcp_tasks.compat.forget_session", lambda connection: None)
    held: list[Any] = []
    mcp_tools(name="calls")(lambda: held.append(connection.connection))
    ref = create("calls")
    run_leg(get_store(), claim(ref))
    assert (held, row(ref).status) == ([None], "completed")


def test_a_worker_that_waits_occupies_no_connection_of_a_pool(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_tasks.compat.is_pooled", lambda connection: True)
    looked: list[Any] = []
    take = Queue.take

    def noted(self: Queue, *args: Any) -> Any:
        try:
            return take(self, *args)
        finally:
            looked.append(connections["default"])

    monkeypatch.setattr(Queue, "take", noted)
    worker(1)
    assert soon(lambda: looked)
    assert soon(lambda: looked[-1].connection is None), "it waits for seconds"


def test_a_tool_that_a_process_does_not_know_is_given_back_though_the_database_is_away(
    away: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(get_store()), "is_outdated", lambda *args: True)
    ref = create("of_a_newer_process", max_attempts=1)
    mine, faults = claim(ref), away("release")
    run_leg(get_store(), mine)
    assert (faults, row(ref).phase, row(ref).attempts) == ([], "queued", 0)
