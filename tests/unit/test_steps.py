"""``ctx.step`` with nothing around it but a log in memory: once per name, exact JSON, and what a step may not do."""

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async

from mcp_tasks import InputRequired, TaskContext
from mcp_tasks.protocol.codec import digest, dumps
from mcp_tasks.tools.results import BecomeTask, Suspend
from mcp_tasks.tools.steps import RecordedStep, StepError

Make = Callable[..., TaskContext]
REF = UUID(int=7)


class Log:
    """Stands for the store: what earlier legs recorded, and what this one does."""

    def __init__(self, **earlier: RecordedStep) -> None:
        self.steps = dict(earlier)
        self.reads = 0
        self.checked: list[str] = []

    def recorded(self) -> dict[str, RecordedStep]:
        self.reads += 1
        return dict(self.steps)

    def check(self, name: str) -> None:
        self.checked.append(name)

    def record(self, name: str, step: RecordedStep) -> RecordedStep:
        return self.steps.setdefault(name, step)


class Counted:
    """A function that knows how often it was called."""

    def __init__(self, result: Any = "done") -> None:
        self.result, self.calls = result, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.result

    async def later(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return self(*args, **kwargs)


def recorded(result: Any, *args: Any, **kwargs: Any) -> RecordedStep:
    return RecordedStep(digest([args, kwargs]), dumps(result))


@pytest.fixture
def leg(make_context: Make) -> Callable[..., TaskContext]:
    """A context of a leg with this log."""

    def make(log: Log, number: int = 2) -> TaskContext:
        return make_context({"steps": log}, ref=REF, leg=number)

    return make


# -- once -----------------------------------------------------------------------------------------------------------


def test_a_step_is_called_with_its_arguments_and_recorded(leg: Any) -> None:
    log = Log()
    assert leg(log).step("add", lambda a, b, name: [a + b, name], 1, b=2, name="x") == [3, "x"]
    assert log.steps == {"add": recorded([3, "x"], 1, b=2, name="x")}


def test_a_recorded_step_is_not_called_again(leg: Any) -> None:
    log, charge = Log(charge=recorded({"id": 5}, 9)), Counted()
    assert leg(log).step("charge", charge, 9) == {"id": 5}
    assert (charge.calls, log.checked) == (0, [])


def test_the_log_is_read_once_and_only_where_there_is_a_step(leg: Any) -> None:
    log = Log(a=recorded(1))
    context = leg(log)
    assert log.reads == 0
    assert [context.step("a", Counted()), context.step("b", Counted(2)), context.step("a", Counted())] == [1, 2, 1]
    assert log.reads == 1


def test_threads_that_ask_for_the_log_at_once_forget_no_step(leg: Any) -> None:
    second, done = threading.Event(), threading.Event()

    class Slow(Log):
        def recorded(self) -> dict[str, RecordedStep]:
            found = super().recorded()
            if self.reads == 1:
                second.wait(0.3)
            else:
                second.set()
                done.wait(5)  # what it found is old by then
            return found

    charge = Counted()
    context = leg(Slow())
    threads = [threading.Thread(target=context.step, args=(name, charge)) for name in ("a", "b")]
    threads[0].start()
    time.sleep(0.05)
    threads[1].start()
    threads[0].join(5)
    done.set()
    threads[1].join(5)
    assert (context.step("a", charge), charge.calls) == ("done", 2)


def test_within_a_run_the_second_call_of_a_step_returns_what_the_first_did(make_context: Make, leg: Any) -> None:
    for context in (make_context(), leg(Log())):
        charge = Counted({"id": [1]})
        first = context.step("charge", charge, 1)
        first["id"].append("changed by the handler")
        assert context.step("charge", charge, 1) == {"id": [1]}
        assert charge.calls == 1


def test_inline_every_run_calls_the_function(make_context: Make) -> None:
    charge = Counted()
    assert [make_context().step("charge", charge) for _ in range(2)] == ["done", "done"]
    assert charge.calls == 2


def test_what_raises_is_not_recorded_and_may_be_tried_again(leg: Any) -> None:
    log = Log()
    context, outcomes = leg(log), iter([ValueError("no luck"), "done"])

    def flaky() -> Any:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(ValueError, match="no luck"):
        context.step("flaky", flaky)
    assert log.steps == {}
    assert context.step("flaky", flaky) == "done"


def test_what_was_recorded_by_a_lost_write_of_the_same_leg_counts(leg: Any) -> None:
    log = Log()
    context = leg(log)
    context.step("other", Counted())  # the log has been read
    log.steps["charge"] = recorded("first")
    assert context.step("charge", Counted("second")) == "first"


# -- JSON -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "seen"),
    [
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
        (None, None),
        ("\x00\ud800", "\x00\ud800"),
        (2**70, 2**70),
        (-0.0, -0.0),
    ],
)
def test_the_first_leg_sees_what_later_ones_will(make_context: Make, leg: Any, returned: Any, seen: Any) -> None:
    log = Log()
    for context in (make_context(), leg(log), leg(log)):
        result = context.step("s", Counted(returned))
        assert (result, type(result)) == (seen, type(seen))


@pytest.mark.parametrize(
    "value", [object(), float("nan"), {"a": {1}}, functools.reduce(lambda v, _: [v], range(101), 0)]
)
def test_a_result_without_json_form_is_refused_by_name(make_context: Make, leg: Any, value: Any) -> None:
    log = Log()
    for context in (make_context(), leg(log)):
        with pytest.raises(StepError, match="'charge' returned what has no JSON form"):
            context.step("charge", Counted(value))
    assert log.steps == {}


@pytest.mark.parametrize("value", [object(), float("inf"), b"x"])
def test_arguments_without_json_form_are_refused_before_the_call(make_context: Make, value: Any) -> None:
    charge = Counted()
    with pytest.raises(StepError, match="'charge' has arguments without JSON form"):
        make_context().step("charge", charge, value)
    with pytest.raises(StepError, match="'charge' has arguments without JSON form"):
        make_context().step("charge", charge, amount=value)
    assert charge.calls == 0


@pytest.mark.parametrize("name", ["", "two words", "näme", "x" * 129, None, 7])
def test_a_wrong_name_is_refused_before_the_call(make_context: Make, name: Any) -> None:
    charge = Counted()
    with pytest.raises(StepError, match="is no name of a step"):
        make_context().step(name, charge)
    assert charge.calls == 0


def test_the_same_name_with_other_arguments_is_refused_before_the_call(make_context: Make, leg: Any) -> None:
    charge = Counted()
    inline = make_context()
    inline.step("charge", Counted(), 1)
    for context in (inline, leg(Log(charge=recorded("done", 1)))):
        for arguments in ((2,), (), (1, 1), (True,), ("1",)):
            with pytest.raises(StepError, match="'charge' was recorded with other arguments"):
                context.step("charge", charge, *arguments)
        with pytest.raises(StepError):
            context.step("charge", charge, 1, extra=None)
    assert charge.calls == 0


def test_arguments_are_the_same_whatever_the_order_of_keys(leg: Any) -> None:
    context = leg(Log(charge=recorded("done", {"a": 1, "b": [2]}, x=1, y=2)))
    assert context.step("charge", Counted("again"), {"b": (2,), "a": 1}, y=2, x=1) == "done"


# -- what may not be inside of a step -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inside",
    [
        lambda ctx: ctx.elicit("sure", "Sure?", {"type": "object", "properties": {}}),
        lambda ctx: ctx.roots(),
        lambda ctx: ctx.become_task(),
        lambda ctx: InputRequired({"roots": {"method": "roots/list"}}),
    ],
    ids=["elicit", "roots", "become_task", "InputRequired"],
)
def test_a_step_neither_asks_nor_becomes_a_task(make_context: Make, inside: Callable[[TaskContext], Any]) -> None:
    context = make_context({"may_become_task": True})
    with pytest.raises(StepError, match="'charge'"):
        context.step("charge", lambda: inside(context))
    with pytest.raises(Suspend):
        context.roots()  # the handler itself may
    with pytest.raises(BecomeTask):
        context.become_task()


def test_a_step_may_have_steps_of_its_own(leg: Any) -> None:
    log, inner = Log(), Counted(1)

    def outer() -> Any:
        return [context.step("inner", inner), "outer"]

    context = leg(log)
    assert context.step("outer", outer) == [1, "outer"]
    assert list(log.steps) == ["inner", "outer"]


def test_a_step_does_not_run_inside_of_itself(make_context: Make) -> None:
    context = make_context()
    with pytest.raises(StepError, match="'again' runs already"):
        context.step("again", lambda: context.step("again", Counted()))
    assert context.step("again", Counted()) == "done"


# -- coroutines -----------------------------------------------------------------------------------------------------


def test_in_an_async_handler_a_step_is_awaited_whatever_its_function_is(make_context: Make, leg: Any) -> None:
    async def handler(context: TaskContext) -> list[Any]:
        return [
            await context.step("async", Counted((1,)).later, 1),
            await context.step("sync", Counted((2,)), 2),
            await context.step("returns-a-coroutine", lambda: Counted((3,)).later()),
            await context.step("async", Counted().later, 1),
        ]

    log = Log()
    for context in (make_context(), leg(log)):
        assert asyncio.run(handler(context)) == [[1], [2], [3], [1]]
    assert list(log.steps) == ["async", "sync", "returns-a-coroutine"]


def test_an_async_step_is_refused_and_recorded_like_any_other(leg: Any) -> None:
    log, charge = Log(charge=recorded("done", 1)), Counted()

    async def handler(name: str, *arguments: Any) -> Any:
        return await leg(log).step(name, charge.later, *arguments)

    assert asyncio.run(handler("charge", 1)) == "done"
    with pytest.raises(StepError, match="other arguments"):
        asyncio.run(handler("charge", 2))
    assert charge.calls == 0


def test_in_a_plain_handler_a_coroutine_function_is_run_to_its_end(make_context: Make) -> None:
    assert make_context().step("later", Counted((1,)).later) == [1]


def test_parallel_steps_are_kept_apart_and_a_name_runs_once_at_a_time(make_context: Make) -> None:
    context = make_context()

    async def asking(name: str) -> Any:
        return await context.step(name, asyncio.sleep, 0.01, name)

    async def handler() -> Any:
        both = await asyncio.gather(asking("a"), asking("b"))
        with pytest.raises(StepError, match="'c' runs already"):
            await asyncio.gather(asking("c"), asking("c"))
        return both

    assert asyncio.run(handler()) == ["a", "b"]


def test_a_question_beside_a_step_is_no_question_inside_of_it(make_context: Make) -> None:
    context = make_context()

    async def handler() -> None:
        step = asyncio.ensure_future(context.step("slow", asyncio.sleep, 0.01))
        await asyncio.sleep(0)
        try:
            context.roots()
        finally:
            await step

    with pytest.raises(Suspend):
        asyncio.run(handler())


def test_a_question_inside_of_an_async_step_is_refused(make_context: Make) -> None:
    context = make_context()

    async def asks() -> Any:
        return await sync_to_async(context.roots)()

    async def handler() -> Any:
        return await context.step("asks", asks)

    with pytest.raises(StepError, match="'asks' asks a question"):
        asyncio.run(handler())
