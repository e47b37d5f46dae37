"""Steps in legs that run: what was done is done once, whatever becomes of the leg that did it."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection, transaction

from mcp_tasks import TaskContext
from mcp_tasks.execution import running
from mcp_tasks.execution.leg import run_leg
from mcp_tasks.models import Task, TaskStep
from mcp_tasks.store import DatabaseTaskStore, MemoryTaskStore, TaskStore, get_store
from mcp_tasks.store.types import Outcome
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.tools.cancellation import SHUTDOWN
from tests.store.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

Tools = Callable[..., Any]
ABLE = {"capabilities": {"elicitation": {}}}
YES = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
ANSWER = {"sure": {"action": "accept", "content": {"yes": True}}}


@pytest.fixture(params=["database", "memory"])
def store(request: pytest.FixtureRequest, settings: Any) -> Iterator[TaskStore]:
    """The store of this process, of either kind."""
    if request.param == "memory":
        settings.MCP_TASKS = {**settings.MCP_TASKS, "STORE": "mcp_tasks.store.MemoryTaskStore"}
    store = get_store()
    assert isinstance(store, MemoryTaskStore if request.param == "memory" else DatabaseTaskStore)
    return store


def create(store: TaskStore, tool: str, **options: Any) -> UUID:
    return store.create_task(tool, {}, context=ABLE, **options).ref


def run(store: TaskStore, ref: UUID) -> None:
    claim = store.claim(ref)
    assert claim is not None
    run_leg(store, claim)


def outcome(store: TaskStore, ref: UUID) -> Any:
    """Text of the result, or code of the error."""
    found = store.get_task_result(ref)
    assert found is not None
    return found.error["code"] if found.task.status == "failed" else found.result["content"][0]["text"]


def test_a_step_before_a_question_is_done_once(mcp_tools: Tools, store: TaskStore) -> None:
    calls: list[int] = []

    def reserve(amount: int) -> tuple[str, int]:
        calls.append(amount)
        return ("reservation", len(calls))

    @mcp_tools
    def book(ctx: TaskContext) -> str:
        reserved = ctx.step("reserve", reserve, 5)
        answer = ctx.elicit("sure", "Book?", YES)
        return f"{reserved} {answer['action']}"

    ref = create(store, "book")
    run(store, ref)
    assert store.apply_input_responses(ref, ANSWER)
    run(store, ref)
    assert (outcome(store, ref), calls) == ("['reservation', 1] accept", [5])


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_leg_that_is_lost_after_a_step_leaves_it_done(mcp_tools: Tools, store: TaskStore, is_async: bool) -> None:
    calls: list[str] = []

    def done(name: str) -> str:
        calls.append(name)
        return f"{name} {len(calls)}"

    def plain(ctx: TaskContext) -> str:
        first = ctx.step("charge", done, "charge")
        if ctx.leg == 1:
            take_away(store, ctx)
        return f"{first}, {ctx.step('receipt', done, 'receipt')}"

    async def coroutine(ctx: TaskContext) -> str:
        first = await ctx.step("charge", done, "charge")
        if ctx.leg == 1:
            await sync_to_async(take_away)(store, ctx)
        return f"{first}, {await ctx.step('receipt', done, 'receipt')}"

    mcp_tools(name="pay")(coroutine if is_async else plain)
    ref = create(store, "pay", max_attempts=3)
    run(store, ref)
    # The lost leg went on, and its receipt could not be recorded: it ended there, and its work is not used.
    assert calls == ["charge", "receipt"]
    assert list(store.recorded_steps(ref)) == ["charge"]
    run(store, ref)
    assert (outcome(store, ref), calls) == ("charge 1, receipt 3", ["charge", "receipt", "receipt"])


def take_away(store: TaskStore, ctx: TaskContext) -> None:
    """As a janitor does with a leg whose lease is over. The token of this leg hears of it by its heartbeat only."""
    assert ctx.ref is not None
    assert store.retry(ctx.ref, ctx.leg, after_seconds=0)


def test_a_step_of_a_cancelled_task_ends_the_leg_and_counts_for_nothing(mcp_tools: Tools, store: TaskStore) -> None:
    went_on: list[bool] = []

    @mcp_tools
    def slow(ctx: TaskContext) -> str:
        assert ctx.ref is not None
        ref = ctx.ref
        ctx.step("cancelled", lambda: store.cancel_task(ref) is not None)
        went_on.append(True)
        return "done"

    ref = create(store, "slow")
    run(store, ref)
    task = store.get_task(ref)
    assert task is not None
    assert (task.status, went_on, store.recorded_steps(ref)) == ("cancelled", [], {})
    assert store.let_go(ref, 1).why == "terminal", "the leg has let go"


def test_no_step_begins_once_the_leg_is_told_to_stop(mcp_tools: Tools, store: TaskStore) -> None:
    calls: list[str] = []

    @mcp_tools
    def slow(ctx: TaskContext) -> None:
        assert ctx.ref is not None
        store.cancel_task(ctx.ref)
        ctx.step("charge", calls.append, "charge")

    run(store, create(store, "slow"))
    assert calls == []


def test_a_process_that_stops_lets_a_handler_finish_its_steps(mcp_tools: Tools, store: TaskStore) -> None:
    @mcp_tools
    def steady(ctx: TaskContext) -> str:
        running.stop_all(SHUTDOWN)
        return str(ctx.step("charge", lambda: "charged"))

    ref = create(store, "steady")
    run(store, ref)
    assert outcome(store, ref) == "charged"


@pytest.mark.parametrize("how", ["other arguments", "no JSON", "too large", "a question", "a wrong name"])
def test_a_broken_rule_fails_the_task(
    mcp_tools: Tools, store: TaskStore, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    @mcp_tools
    def broken(ctx: TaskContext) -> None:
        match how:
            case "other arguments":
                ctx.step("charge", lambda amount: 1, 1)
                ctx.step("charge", lambda amount: 1, 2)
            case "no JSON":
                ctx.step("charge", object)
            case "too large":
                ctx.step("charge", lambda: "x" * (4 * 1024 * 1024))
            case "a question":
                ctx.step("charge", lambda: ctx.elicit("sure", "Sure?", YES))
            case "a wrong name":
                ctx.step("charge it", lambda: 1)

    ref = create(store, "broken")
    run(store, ref)
    assert outcome(store, ref) == -32603
    [record] = [record for record in caplog.records if getattr(record, "event", "") == "tool_contract"]
    assert record.exc_info is not None
    assert "'charge" in str(record.exc_info[1])


def test_a_step_in_a_later_leg_with_other_arguments_fails_the_task(mcp_tools: Tools, store: TaskStore) -> None:
    calls: list[int] = []

    @mcp_tools
    def fickle(ctx: TaskContext) -> str:
        ctx.step("charge", calls.append, ctx.leg)
        return str(ctx.elicit("sure", "Sure?", YES))

    ref = create(store, "fickle")
    run(store, ref)
    store.apply_input_responses(ref, ANSWER)
    run(store, ref)
    assert (outcome(store, ref), calls) == (-32603, [1])


def test_a_step_inside_of_a_transaction_is_refused_before_it_begins(mcp_tools: Tools, store: TaskStore) -> None:
    calls: list[str] = []

    @mcp_tools
    def careless(ctx: TaskContext) -> None:
        with transaction.atomic():
            ctx.step("charge", calls.append, "charge")

    ref = create(store, "careless")
    run(store, ref)
    assert (outcome(store, ref), calls) == (-32603, [])


def test_a_step_may_have_a_transaction_of_its_own(mcp_tools: Tools, store: TaskStore) -> None:
    def write() -> str:
        with transaction.atomic():
            return "written"

    mcp_tools(name="careful")(_careful(write))
    ref = create(store, "careful")
    run(store, ref)
    assert outcome(store, ref) == "written"


def _careful(write: Callable[[], str]) -> Callable[..., str]:
    def careful(ctx: TaskContext) -> str:
        return str(ctx.step("write", write))

    return careful


def test_the_database_may_be_away_for_a_moment_when_a_step_is_recorded(
    mcp_tools: Tools, store: TaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures, calls = store.record_step, [1, 2], []

    def unsteady(*arguments: Any) -> Outcome:
        if failures:
            # The first is lost, of the second only the news.
            if failures.pop() == 1:
                real(*arguments)
            raise OperationalError("the server closed the connection")
        return real(*arguments)

    monkeypatch.setattr(store, "record_step", unsteady)

    @mcp_tools
    def steady(ctx: TaskContext) -> str:
        return str(ctx.step("charge", lambda: calls.append("charge") or "charged"))

    ref = create(store, "steady")
    run(store, ref)
    assert (outcome(store, ref), calls, failures) == ("charged", ["charge"], [])


@pytest.mark.django_db
def test_steps_run_in_a_tests_own_transaction(mcp_tools: Tools, store: TaskStore) -> None:
    mcp_tools(name="careful")(_careful(lambda: "written"))
    assert connection.in_atomic_block
    ref = create(store, "careful")
    assert run_until_idle(store) == 1
    assert outcome(store, ref) == "written"


# -- what steps cost ------------------------------------------------------------------------------------------------


def test_steps_cost_three_statements_each_and_later_legs_one_for_all_of_them(mcp_tools: Tools) -> None:
    store, spent = get_store(), []

    @mcp_tools
    def thrifty(ctx: TaskContext) -> str:
        with counted() as statements:
            for name in ("a", "b"):
                ctx.step(name, lambda: "x")
        spent.append(len(statements))
        return str(ctx.elicit("sure", "Sure?", YES))

    ref = create(store, "thrifty")
    run(store, ref)
    store.apply_input_responses(ref, ANSWER)
    run(store, ref)
    assert spent == [6, 1]


def test_what_steps_returned_counts_as_payload_and_goes_with_the_task(mcp_tools: Tools) -> None:
    store = get_store()

    @mcp_tools
    def large(ctx: TaskContext) -> None:
        ctx.step("a", lambda: "é" * 100)
        ctx.step("b", lambda: "x" * 100)

    ref = create(store, "large")
    before = Task.objects.get(pk=ref)
    run(store, ref)
    after = Task.objects.get(pk=ref)
    result = len((after.result_json or "").encode())
    assert after.payload_bytes - before.payload_bytes == result + 202 + 102
    assert TaskStep.objects.filter(task_id=ref).count() == 2
    assert store.delete_terminal(ref, actor="operator:1", reason="tidy")
    assert not TaskStep.objects.exists()


def test_a_tombstone_has_no_steps(mcp_tools: Tools) -> None:
    store = get_store()
    mcp_tools(name="careful")(_careful(lambda: "written"))
    ref = create(store, "careful", ttl_ms=60_000)
    run(store, ref)
    rewind(ref, 61)
    assert TaskStep.objects.exists()
    assert store.expire().expired == 1
    assert not TaskStep.objects.exists()


def test_the_retention_of_a_task_without_ttl_is_that_of_its_steps(mcp_tools: Tools, configure: Any) -> None:
    configure(MAX_TTL_MS=None, RETENTION_SECONDS=60)
    store = get_store()
    mcp_tools(name="careful")(_careful(lambda: "written"))
    ref = create(store, "careful", ttl_ms=None)
    run(store, ref)
    rewind(ref, 61)
    assert store.purge().purged == 1
    assert not TaskStep.objects.exists()
