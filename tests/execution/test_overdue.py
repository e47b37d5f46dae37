"""Legs that run too long, handlers that do not stop, and tries after what a tool calls transient."""

import logging
import threading
import time
from typing import Any

import pytest
from django.db import OperationalError

from mcp_tasks import McpError, TaskContext, ToolError
from mcp_tasks.execution import overdue, running, settling
from mcp_tasks.execution.heartbeat import heartbeat
from mcp_tasks.execution.leg import run_leg
from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.store import get_store
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.tools.cancellation import LEASE_LOST, TIMED_OUT
from tests.support.push import soon

pytestmark = pytest.mark.django_db(transaction=True)

TOO_LONG = {"code": -32603, "message": "The task ran longer than the 0.2 seconds that its tool is given"}


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "GRACE_SECONDS", 0.3)


def create(tool: str, **options: Any) -> Any:
    return get_store().create_task(tool, {}, **options).ref


def settled(ref: Any) -> Any:
    found = get_store().wait_for_completion(ref, 10.0)
    assert found is not None
    return found


def kinds(ref: Any) -> list[str]:
    return list(TaskEvent.objects.filter(task_id=ref).order_by("id").values_list("kind", flat=True))


# -- timeout_seconds ---------------------------------------------------------------------------------------------------


def test_a_handler_is_told_when_its_time_is_up_and_its_task_fails(mcp_tools: Any, worker: Any) -> None:
    reasons: list[str | None] = []

    @mcp_tools(timeout_seconds=0.2)
    def patient(ctx: TaskContext) -> None:
        ctx.token.wait(10)
        reasons.append(ctx.token.reason)
        ctx.token.raise_if_cancelled()

    ref, began = create("patient"), time.monotonic()
    worker(1)
    assert settled(ref).error == TOO_LONG
    assert time.monotonic() - began < 2
    assert reasons == [TIMED_OUT]


def test_what_it_raises_when_told_is_no_outcome(mcp_tools: Any, worker: Any) -> None:
    @mcp_tools(timeout_seconds=0.2, max_attempts=3, retry_on=ConnectionError)
    def stumbling(ctx: TaskContext) -> None:
        ctx.token.wait(10)
        raise ConnectionError("cut by the stop")

    ref = create("stumbling", max_attempts=3)
    worker(1)
    assert settled(ref).error == TOO_LONG
    assert "retried" not in kinds(ref)


def test_a_result_within_the_grace_counts(mcp_tools: Any, worker: Any) -> None:
    @mcp_tools(timeout_seconds=0.1)
    def finishing(ctx: TaskContext) -> str:
        ctx.token.wait(10)
        return "half of it"

    ref = create("finishing")
    worker(1)
    assert settled(ref).result["content"][0]["text"] == "half of it"


def test_an_async_handler_is_told_too(mcp_tools: Any, worker: Any) -> None:
    @mcp_tools(timeout_seconds=0.2)
    async def patient(ctx: TaskContext) -> None:
        await ctx.token.wait_async(10)
        ctx.token.raise_if_cancelled()

    ref = create("patient")
    worker(1)
    assert settled(ref).error == TOO_LONG


def test_a_deaf_handler_costs_its_task_and_not_the_slot(
    mcp_tools: Any, worker: Any, released: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[bool] = []

    @mcp_tools(timeout_seconds=0.2)
    def deaf() -> str:
        released.wait(10)
        written.append(True)
        return "too late"

    mcp_tools(name="quick")(lambda: "ok")
    first = create("deaf")
    only = worker(1)
    assert settled(first).error == TOO_LONG
    second = create("quick")
    only.ring()
    assert settled(second).task.status == "completed"
    assert not written, "it still runs"
    assert first not in [leg.ref for leg in running.all_legs()], "and nobody renews what is over"
    released.set()
    assert soon(lambda: written)
    assert soon(lambda: "late_result" in kinds(first))
    assert settled(first).error == TOO_LONG
    abandoned = [it for it in caplog.records if getattr(it, "event", "") == "leg_abandoned"]
    assert [(it.levelno, it.ref, it.why) for it in abandoned] == [(logging.ERROR, str(first), "timed_out")]  # type: ignore[attr-defined]


def test_the_slots_are_as_many_as_before_after_a_deaf_handler_has_ended(
    mcp_tools: Any, worker: Any, released: threading.Event
) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    @mcp_tools(timeout_seconds=0.1)
    def deaf() -> None:
        released.wait(10)

    @mcp_tools
    def busy() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1

    stuck = [create("deaf") for _ in range(3)]
    two = worker(2)
    for ref in stuck:
        assert settled(ref).error is not None
    released.set()
    refs = [create("busy") for _ in range(8)]
    two.ring()
    for ref in refs:
        settled(ref)
    assert most[0] == 2
    assert soon(lambda: two._pool._size == 2)


def test_time_counts_for_each_leg_and_not_while_a_human_is_awaited(mcp_tools: Any, worker: Any) -> None:
    form = {"type": "object", "properties": {}}

    @mcp_tools(timeout_seconds=0.4)
    def asking(ctx: TaskContext) -> str:
        time.sleep(0.25)
        ctx.elicit("one", "One?", form)
        return "done"

    context = {"capabilities": {"elicitation": {}}}
    ref = create("asking", context=context)
    only = worker(1)
    assert soon(lambda: Task.objects.get(pk=ref).phase == "parked")
    time.sleep(0.4)
    get_store().apply_input_responses(ref, {"one": {"action": "decline"}})
    only.ring()
    assert settled(ref).task.status == "completed"


def test_a_database_that_is_away_when_time_is_up_is_asked_again(
    mcp_tools: Any, worker: Any, released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overdue, "_RETRY_SECONDS", 0.1)
    fail, refusals = get_store().fail_task, [OperationalError("away")] * 2

    def flaky(*arguments: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return fail(*arguments, **options)

    @mcp_tools(timeout_seconds=0.1)
    def deaf() -> None:
        released.wait(10)

    ref = create("deaf")
    monkeypatch.setattr(type(get_store()), "fail_task", lambda self, *a, **o: flaky(*a, **o))
    worker(1)
    assert settled(ref).task.status == "failed"
    assert not refusals


# -- a handler that was told by others ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancelled", "expired"])
def test_a_handler_that_ignores_its_end_gives_the_slot_back(
    mcp_tools: Any, worker: Any, released: threading.Event, how: str, settings: Any
) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "HEARTBEAT_SECONDS": 1}
    began = threading.Event()

    @mcp_tools
    def deaf() -> None:
        began.set()
        released.wait(15)

    mcp_tools(name="quick")(lambda: "ok")
    first = create("deaf")
    only = worker(1)
    assert began.wait(5)
    if how == "cancelled":
        get_store().cancel_task(first)
    else:
        rewind(first, 10_000_000)
    second = create("quick")
    only.ring()
    assert settled(second).task.status == "completed"


def test_a_deaf_handler_that_lost_its_lease_gives_the_slot_back_and_may_still_finish(
    mcp_tools: Any, worker: Any, released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody else has its task, what it worked for is not thrown away."""
    tokens: list[Any] = []

    @mcp_tools
    def deaf(ctx: TaskContext) -> str:
        tokens.append(ctx.token)
        released.wait(10)
        return "after all"

    mcp_tools(name="quick")(lambda: "ok")
    first = create("deaf")
    only = worker(1)
    assert soon(lambda: tokens)
    tokens[0].raise_(LEASE_LOST)
    with heartbeat._wake:
        heartbeat._wake.notify()
    second = create("quick")
    only.ring()
    assert settled(second).task.status == "completed"
    assert first in [leg.ref for leg in running.all_legs()]
    released.set()
    assert settled(first).result["content"][0]["text"] == "after all"


# -- retry_on ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before the next tries; none is slept."""
    seen: list[float] = []
    retry = get_store().retry

    def noted(self: Any, ref: Any, leg: int, *, after_seconds: float, why: str | None = None) -> Any:
        seen.append(after_seconds)
        return retry(ref, leg, after_seconds=0, why=why)

    monkeypatch.setattr(type(get_store()), "retry", noted)
    return seen


def test_a_transient_error_is_tried_again_after_a_growing_pause(mcp_tools: Any, pauses: list[float]) -> None:
    tries: list[int] = []

    @mcp_tools(max_attempts=4, retry_on=(ConnectionError, TimeoutError))
    def flaky(ctx: TaskContext) -> str:
        tries.append(ctx.leg)
        if len(tries) < 4:
            raise ConnectionResetError("for the moment")
        return "reached"

    ref = create("flaky", max_attempts=4)
    run_until_idle()
    assert tries == [1, 2, 3, 4]
    assert settled(ref).result["content"][0]["text"] == "reached"
    assert len(pauses) == 3
    for pause, middle in zip(pauses, (2, 4, 8), strict=True):
        assert 0.75 * middle <= pause <= 1.25 * middle
    retried = TaskEvent.objects.filter(task_id=ref, kind="retried").values_list("detail", flat=True)
    assert list(retried) == ['{"reason":"ConnectionResetError"}'] * 3


def test_the_pause_is_kept_by_the_queue(mcp_tools: Any) -> None:
    @mcp_tools(max_attempts=2, retry_on=ConnectionError)
    def flaky() -> None:
        raise ConnectionError

    ref = create("flaky", max_attempts=2)
    claim = get_store().claim(ref)
    assert claim is not None
    run_leg(get_store(), claim)
    assert Task.objects.get(pk=ref).phase == "queued"
    assert get_store().claim(ref) is None
    rewind(ref, 10)
    assert get_store().claim(ref) is not None


def test_the_last_try_stands_with_its_error(
    mcp_tools: Any, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    @mcp_tools(max_attempts=2, retry_on=McpError)
    def unlucky() -> None:
        raise McpError(-32050, "The warehouse is closed")

    ref = create("unlucky", max_attempts=2)
    run_until_idle()
    assert settled(ref).error == {"code": -32050, "message": "The warehouse is closed"}
    assert len(pauses) == 1
    assert [it.levelno for it in caplog.records if getattr(it, "event", "") == "tool_retried"] == [logging.WARNING]


def test_the_last_try_is_logged_as_any_other_exception(
    mcp_tools: Any, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    @mcp_tools(max_attempts=2, retry_on=ConnectionError)
    def unlucky() -> None:
        raise ConnectionError("the second time too")

    ref = create("unlucky", max_attempts=2)
    run_until_idle()
    assert settled(ref).result["isError"] is True
    events = [getattr(it, "event", "") for it in caplog.records]
    assert (events.count("tool_retried"), events.count("tool_raised")) == (1, 1)


def test_what_is_not_named_is_not_tried_again(mcp_tools: Any, pauses: list[float]) -> None:
    @mcp_tools(max_attempts=3, retry_on=ConnectionError)
    def wrong() -> None:
        raise ToolError("no such item")

    ref = create("wrong", max_attempts=3)
    run_until_idle()
    assert settled(ref).result["isError"] is True
    assert pauses == []


def test_one_transient_error_among_the_branches_of_a_group_counts(mcp_tools: Any, pauses: list[float]) -> None:
    import asyncio

    tries: list[int] = []

    @mcp_tools(max_attempts=2, retry_on=ConnectionError)
    async def branching() -> str:
        tries.append(1)

        async def reach() -> None:
            if len(tries) == 1:
                raise ConnectionError

        async with asyncio.TaskGroup() as group:
            group.create_task(reach())
        return "reached"

    ref = create("branching", max_attempts=2)
    run_until_idle()
    assert settled(ref).result["content"][0]["text"] == "reached"


def test_a_task_that_was_cancelled_meanwhile_is_not_tried_again(mcp_tools: Any) -> None:
    @mcp_tools(max_attempts=3, retry_on=ConnectionError)
    def flaky(ctx: TaskContext) -> None:
        get_store().cancel_task(ctx.ref)
        raise ConnectionError

    ref = create("flaky", max_attempts=3)
    run_until_idle()
    assert settled(ref).task.status == "cancelled"
    assert "retried" not in kinds(ref)


def test_inline_there_are_no_tries(mcp_tools: Any, client_of: Any) -> None:
    tries: list[int] = []

    @mcp_tools(task="never", max_attempts=3, retry_on=ConnectionError)
    def flaky() -> None:
        tries.append(1)
        raise ConnectionError

    assert client_of("alice").call_tool("flaky")["isError"] is True
    assert tries == [1]


def test_the_pause_ends_growing() -> None:
    assert settling._pause_seconds(100) <= 1.25 * settling.RETRY_LIMIT_SECONDS
