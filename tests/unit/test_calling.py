"""Calling a handler, sync or async: every way it can end has a name, and nothing of it is left in the thread."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import mcp_types
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection, connections
from django.utils import timezone, translation

from mcp_tasks import DeferredTask, InputRequired, McpError, NobodyAnswered, TaskContext, ToolError
from mcp_tasks.execution.calling import (
    Asked,
    Became,
    Deferred,
    Ending,
    Failed,
    Finished,
    Stopped,
    call,
    call_method,
    run,
)
from mcp_tasks.protocol.errors import INTERNAL_ERROR
from mcp_tasks.tools.cancellation import CANCELLED, TaskCancelled
from mcp_tasks.tools.context import RecordedAnswer
from mcp_tasks.tools.definition import build
from mcp_tasks.tools.results import NEUTRAL_ERROR, BecomeTask, Suspend, error_result

Make = Callable[..., TaskContext]
Function = Callable[..., Any]

ROOTS = {"method": "roots/list"}
SECRET = "password=hunter2"
FORM = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "m", "requestedSchema": {"type": "object", "properties": {}}},
}


@pytest.fixture
def ending_of(make_context: Make) -> Callable[..., Ending]:
    """How a function ends as a tool, with a context for whoever wants one."""

    def run_it(
        function: Function, *, context: TaskContext | None = None, locale: str | None = None, **values: Any
    ) -> Ending:
        tool = build(function, name="example")
        assert tool.problems == []
        return call(tool, context or make_context(), values, locale=locale)

    return run_it


def text(said: str) -> Finished:
    return Finished({"content": [{"type": "text", "text": said}], "resultType": "complete"})


NEUTRAL = Finished(error_result(NEUTRAL_ERROR), raised=True)


def raising(error: BaseException, style: str) -> Function:
    """A handler that raises this: sync, async, in a group of tasks, or in what a sync function returned."""

    def sync() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(coroutine())

    def returned() -> Any:
        return coroutine()

    return {"sync": sync, "async": coroutine, "group": group, "returned": returned}[style]


STYLES = ["sync", "async", "group", "returned"]


# -- results --------------------------------------------------------------------------------------------------------


def test_a_sync_handler_finishes(ending_of: Callable[..., Ending]) -> None:
    def greet(name: str, times: int = 1) -> str:
        return f"Hello {name}" * times

    assert ending_of(greet, name="Ada", times=2) == text("Hello AdaHello Ada")


def test_an_async_handler_finishes(ending_of: Callable[..., Ending]) -> None:
    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"Hello {name}"

    assert ending_of(greet, name="Ada") == text("Hello Ada")


def test_what_a_sync_handler_returns_may_be_awaited(ending_of: Callable[..., Ending]) -> None:
    async def later(name: str) -> str:
        return f"Hello {name}"

    def greet(name: str) -> Any:
        return later(name)

    class Awaitable:
        def __await__(self) -> Iterator[Any]:
            return later("Bob").__await__()

    def greet_bob() -> Any:
        return Awaitable()

    assert ending_of(greet, name="Ada") == text("Hello Ada")
    assert ending_of(greet_bob) == text("Hello Bob")


@pytest.mark.parametrize("style", ["sync", "async"])
@pytest.mark.parametrize(
    "name", ["self", "args", "kwargs", "function", "value", "values", "tool", "context", "awaitable"]
)
def test_a_parameter_may_be_called_like_one_of_ours(ending_of: Callable[..., Ending], style: str, name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"{'async ' if style == 'async' else ''}def function({name}: int): return {name}", space)
    tool = build(space["function"], name="example")
    assert call(tool, None, {name: 5}) == text("5")


@pytest.mark.parametrize("style", ["sync", "async"])
def test_the_context_comes_under_the_name_that_the_function_gave_it(make_context: Make, style: str) -> None:
    context = make_context()
    seen: list[TaskContext] = []

    def sync(x: int, c: TaskContext) -> None:
        seen.append(c)

    async def coroutine(x: int, *, c: TaskContext | None = None) -> None:
        assert c is not None
        seen.append(c)

    tool = build(sync if style == "sync" else coroutine, name="example")
    call(tool, context, {"x": 1})
    assert seen == [context]


def test_a_client_cannot_put_something_in_the_place_of_the_context(make_context: Make) -> None:
    def handler(ctx: TaskContext, **rest: Any) -> str:
        return type(ctx).__name__

    assert call(build(handler), make_context(), {"ctx": {"owner": "me"}}) == text("TaskContext")


def test_a_result_that_says_it_failed_was_not_raised(ending_of: Callable[..., Ending]) -> None:
    def handler() -> Any:
        return mcp_types.CallToolResult(content=[], is_error=True)

    ending = ending_of(handler)
    assert isinstance(ending, Finished)
    assert ending.result["isError"] is True
    assert ending.raised is False


# -- exceptions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_a_tool_error_is_a_result_with_its_text(ending_of: Callable[..., Ending], style: str) -> None:
    ending = ending_of(raising(ToolError("No such region: é\ud800"), style))
    assert ending == Finished(error_result("No such region: é\ud800"), raised=True)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("data", [None, 0, {"field": "region"}])
def test_a_protocol_error_is_kept_whole(ending_of: Callable[..., Ending], style: str, data: Any) -> None:
    error = McpError(-32602, "no such region", data)
    ending = ending_of(raising(error, style))
    assert ending == Failed(error)
    assert ending.error is error


@pytest.mark.parametrize("data", [object(), {"a": {1}}, float("nan"), [float("inf")]])
def test_a_protocol_error_that_cannot_be_sent_is_a_mistake_of_the_tool(
    ending_of: Callable[..., Ending], data: Any
) -> None:
    ending = ending_of(raising(McpError(-32602, "no such region", data), "sync"))
    assert isinstance(ending, Failed)
    assert ending.error.payload() == {"code": INTERNAL_ERROR, "message": "Internal error"}
    assert "no such region" in (ending.traceback or "")


ORDINARY: list[BaseException] = [
    RuntimeError(SECRET),
    ValueError(SECRET),
    KeyError(SECRET),
    TypeError(SECRET),
    RecursionError(SECRET),
    MemoryError(SECRET),
    TimeoutError(SECRET),
    StopIteration(SECRET),
    StopAsyncIteration(SECRET),
    AssertionError(SECRET),
    ExceptionGroup(SECRET, [ValueError(SECRET)]),
    SystemExit(SECRET),
    KeyboardInterrupt(SECRET),
    GeneratorExit(SECRET),
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("error", ORDINARY, ids=[type(error).__name__ for error in ORDINARY])
def test_any_other_exception_is_a_result_with_a_neutral_text(
    ending_of: Callable[..., Ending], caplog: pytest.LogCaptureFixture, error: BaseException, style: str
) -> None:
    ending = ending_of(raising(error, style))
    assert ending == NEUTRAL
    assert "hunter2" not in str(ending)
    [record] = [record for record in caplog.records if record.name == "mcp_tasks.runner"]
    assert record.levelno == logging.ERROR
    assert record.tool == "example"
    assert "hunter2" in caplog.text  # an operator can read it


@pytest.mark.parametrize("style", ["sync", "async", "returned"])
def test_a_handler_that_cancels_itself_failed(ending_of: Callable[..., Ending], style: str) -> None:
    assert ending_of(raising(asyncio.CancelledError(SECRET), style)) == NEUTRAL


def test_a_thread_lives_on_after_any_exception(ending_of: Callable[..., Ending]) -> None:
    def work() -> list[Ending]:
        return [ending_of(raising(error, style)) for error in ORDINARY for style in STYLES]

    with ThreadPoolExecutor(1) as pool:
        assert set(map(str, pool.submit(work).result(30))) == {str(NEUTRAL)}


def test_a_wrong_call_of_the_function_is_an_exception_like_others(ending_of: Callable[..., Ending]) -> None:
    def handler(x: int = 1) -> None: ...

    assert ending_of(handler, y=2) == NEUTRAL


@pytest.mark.parametrize("style", STYLES)
def test_a_handler_that_obeys_its_token_stopped(
    make_context: Make, ending_of: Callable[..., Ending], style: str
) -> None:
    assert ending_of(raising(TaskCancelled(CANCELLED), style)) == Stopped()


def test_a_stop_passes_a_handler_that_catches_exceptions(make_context: Make, ending_of: Callable[..., Ending]) -> None:
    context = make_context()
    context.token.raise_(CANCELLED)

    def careless(ctx: TaskContext) -> str:
        try:
            ctx.token.raise_if_cancelled()
        except Exception:
            return "caught"
        return "went on"

    assert ending_of(careless, context=context) == Stopped()


# -- mistakes of the tool -------------------------------------------------------------------------------------------


def bad_ask(ctx: TaskContext) -> None:
    ctx.ask({"k": {"method": "tools/call"}})


def bad_return() -> Any:
    return InputRequired({})


def bad_output() -> Any:
    return {"x": SECRET}


def no_json() -> Any:
    return {"x": float("nan")}


def bad_attribute() -> Any:
    return DeferredTask(print, priority=5)


def bad_type() -> Any:
    return DeferredTask(print, ttl_ms="soon")


def bad_meta() -> Any:
    return DeferredTask(print, meta={"a": object()})


def bad_start() -> Any:
    return DeferredTask("start")


@pytest.mark.parametrize(
    "function",
    [bad_ask, bad_return, bad_output, no_json, bad_attribute, bad_type, bad_meta, bad_start],
    ids=lambda function: function.__name__,
)
def test_a_broken_contract_is_logged_and_an_internal_error(
    make_context: Make, caplog: pytest.LogCaptureFixture, function: Function
) -> None:
    output = {"type": "object", "properties": {"x": {"type": "integer"}}} if function is bad_output else None
    ending = call(build(function, name="example", output_schema=output), make_context(), {})
    assert isinstance(ending, Failed)
    assert ending.error.payload() == {"code": INTERNAL_ERROR, "message": "Internal error"}
    assert ending.traceback is not None
    assert ending.traceback.startswith("Traceback")
    [record] = [record for record in caplog.records if record.name == "mcp_tasks.runner"]
    assert (record.event, record.tool) == ("tool_contract", "example")


def test_a_return_value_that_pydantic_does_not_know_is_no_result(ending_of: Callable[..., Ending]) -> None:
    assert ending_of(lambda: object()) == NEUTRAL


# -- questions ------------------------------------------------------------------------------------------------------


def test_a_question_is_asked_from_sync_and_async_alike(ending_of: Callable[..., Ending]) -> None:
    def sync(ctx: TaskContext) -> None:
        ctx.roots("k")

    async def coroutine(ctx: TaskContext) -> None:
        ctx.roots("k")

    async def in_a_thread(ctx: TaskContext) -> None:
        await asyncio.to_thread(ctx.roots, "k")

    async def in_the_thread_of_the_orm(ctx: TaskContext) -> None:
        await sync_to_async(ctx.roots)("k")

    for function in (sync, coroutine, in_a_thread, in_the_thread_of_the_orm):
        assert ending_of(function) == Asked({"k": ROOTS})


def test_questions_of_a_group_of_tasks_are_merged(ending_of: Callable[..., Ending]) -> None:
    async def one(ctx: TaskContext, key: str) -> None:
        ctx.roots(key)

    async def handler(ctx: TaskContext) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one(ctx, "a"))
            tasks.create_task(one(ctx, "b"))

    assert ending_of(handler) == Asked({"a": ROOTS, "b": ROOTS})


def test_questions_of_groups_in_groups_are_merged(ending_of: Callable[..., Ending]) -> None:
    def suspend(key: str) -> Suspend:
        return Suspend({key: ROOTS})

    def handler() -> None:
        inner = BaseExceptionGroup("inner", [suspend("b"), BaseExceptionGroup("innermost", [suspend("c")])])
        raise BaseExceptionGroup("outer", [suspend("a"), inner])

    assert ending_of(handler) == Asked({"a": ROOTS, "b": ROOTS, "c": ROOTS})


def test_questions_of_a_group_keep_their_deadlines(ending_of: Callable[..., Ending]) -> None:
    async def handler(ctx: TaskContext) -> None:
        async def asks(key: str, seconds: float | None) -> None:
            ctx.roots(key, deadline_seconds=seconds)

        async with asyncio.TaskGroup() as tasks:
            for key, seconds in (("a", 1), ("b", None), ("c", 2.5)):
                tasks.create_task(asks(key, seconds))

    assert ending_of(handler) == Asked({"a": ROOTS, "b": ROOTS, "c": ROOTS}, {"a": 1, "c": 2.5})


def test_a_returned_question_may_have_a_deadline(ending_of: Callable[..., Ending]) -> None:
    assert ending_of(lambda: InputRequired({"k": ROOTS}, deadline_seconds=9)) == Asked({"k": ROOTS}, {"k": 9})
    ending = ending_of(lambda: InputRequired({"k": ROOTS}, deadline_seconds=-9))
    assert isinstance(ending, Failed)
    assert ending.error.code == INTERNAL_ERROR


def test_nobody_having_answered_is_a_result_that_a_model_can_read(ending_of: Callable[..., Ending]) -> None:
    assert ending_of(raising(NobodyAnswered(["a", "b"]), "sync")) == Finished(
        error_result("Nobody answered in time: a, b"), raised=True
    )


def group_of(*errors: BaseException) -> Function:
    def handler() -> None:
        raise BaseExceptionGroup("several", list(errors))

    return handler


@pytest.mark.parametrize(
    ("errors", "ending"),
    [
        ([Suspend({"k": ROOTS}), ToolError("no luck")], Finished(error_result("no luck"), raised=True)),
        ([Suspend({"k": ROOTS}), RuntimeError(SECRET)], NEUTRAL),
        ([TaskCancelled(CANCELLED), RuntimeError(SECRET)], NEUTRAL),
        ([BecomeTask(), ToolError("no luck")], Finished(error_result("no luck"), raised=True)),
        ([Suspend({"k": ROOTS}), TaskCancelled(CANCELLED)], Stopped()),
        ([BecomeTask(), TaskCancelled(CANCELLED)], Stopped()),
        ([Suspend({"k": ROOTS}), BecomeTask()], Became()),
        ([ToolError("first"), ToolError("second")], Finished(error_result("first"), raised=True)),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_in_a_group_a_real_error_counts_then_a_stop_then_a_task(
    ending_of: Callable[..., Ending], errors: list[BaseException], ending: Ending, turned: bool
) -> None:
    if turned and all(isinstance(error, ToolError) for error in errors):
        return
    assert ending_of(group_of(*reversed(errors) if turned else errors)) == ending


def test_a_protocol_error_in_a_group_is_kept_whole(ending_of: Callable[..., Ending]) -> None:
    error = McpError(5, "m", [1])
    assert ending_of(group_of(Suspend({"k": ROOTS}), error)) == Failed(error)


def test_questions_may_be_returned(ending_of: Callable[..., Ending]) -> None:
    assert ending_of(lambda: InputRequired({"k": ROOTS})) == Asked({"k": ROOTS})


def test_returned_questions_that_are_answered_are_not_asked_again(
    make_context: Make, ending_of: Callable[..., Ending]
) -> None:
    context = make_context(given={"a": {"roots": []}})
    assert ending_of(lambda: InputRequired({"a": ROOTS, "b": FORM}), context=context) == Asked({"b": FORM})


def test_a_function_whose_returned_questions_are_all_answered_runs_again(
    make_context: Make, ending_of: Callable[..., Ending]
) -> None:
    runs: list[int] = []

    async def handler(ctx: TaskContext) -> Any:
        runs.append(len(ctx.answers))
        if "a" not in ctx.answers:
            return InputRequired({"a": ROOTS})
        if "b" not in ctx.answers:
            return InputRequired({"a": ROOTS, "b": ROOTS})
        return len(ctx.answers)

    context = make_context(given={"a": {"roots": []}, "b": {"roots": []}, "unasked": {}})
    assert ending_of(handler, context=context) == text("2")
    assert runs == [0, 1, 2]


def test_a_function_that_asks_for_ever_what_it_knows_is_not_run_for_ever(
    make_context: Make, ending_of: Callable[..., Ending]
) -> None:
    runs: list[int] = []

    def handler() -> Any:
        runs.append(1)
        return InputRequired({"a": ROOTS})

    context = make_context(given={"a": {"roots": []}})
    assert ending_of(handler, context=context) == Asked({"a": ROOTS})  # whoever gets it refuses it by name
    assert len(runs) == 2


def test_returned_questions_need_what_the_client_declared(make_context: Make, ending_of: Callable[..., Ending]) -> None:
    ending = ending_of(lambda: InputRequired({"a": ROOTS}), context=make_context(capabilities={}))
    assert isinstance(ending, Failed)
    assert ending.error.code == -32021


def test_an_answered_question_does_not_end_the_run(make_context: Make, ending_of: Callable[..., Ending]) -> None:
    async def handler(ctx: TaskContext) -> str:
        return str(len(ctx.roots()["roots"]))

    assert ending_of(handler, context=make_context(given={"roots": {"roots": []}})) == text("0")


def test_another_question_under_a_spent_key_is_passed_on(make_context: Make, ending_of: Callable[..., Ending]) -> None:
    context = make_context(recorded={"k": RecordedAnswer({"roots": []}, "the hash of another question")})
    assert ending_of(lambda ctx: ctx.roots("k"), context=context) == Asked({"k": ROOTS})


# -- tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["sync", "async"])
def test_an_inline_run_becomes_a_task(make_context: Make, ending_of: Callable[..., Ending], style: str) -> None:
    def sync(ctx: TaskContext) -> str:
        ctx.become_task()
        return "inline"

    async def coroutine(ctx: TaskContext) -> str:
        ctx.become_task()
        return "inline"

    handler = sync if style == "sync" else coroutine
    assert ending_of(handler, context=make_context({"may_become_task": True})) == Became()
    assert ending_of(handler) == text("inline")


def test_work_may_be_deferred(ending_of: Callable[..., Ending]) -> None:
    def start(ref: UUID) -> None: ...

    ending = ending_of(lambda: DeferredTask(start, ttl_ms=5000, meta={"a": 1}))
    assert isinstance(ending, Deferred)
    assert ending.task.start is start
    assert ending.task.attributes == {"ttl_ms": 5000, "meta": {"a": 1}}


# -- nothing is left ------------------------------------------------------------------------------------------------

visitor: contextvars.ContextVar[str] = contextvars.ContextVar("visitor", default="nobody")


def look() -> tuple[str, str | None, str]:
    return visitor.get(), translation.get_language(), timezone.get_current_timezone_name()


def litter() -> None:
    visitor.set("somebody")
    translation.activate("de")
    timezone.activate("Asia/Tokyo")


@pytest.mark.parametrize("style", ["sync", "async"])
def test_nothing_of_a_call_is_left_in_its_thread(settings: Any, style: str) -> None:
    settings.USE_I18N, settings.LANGUAGE_CODE, settings.TIME_ZONE = True, "en-us", "UTC"

    async def litter_async() -> None:
        litter()

    async def look_async() -> Any:
        return look()

    before = look()
    assert before == ("nobody", "en-us", "UTC")
    run(litter if style == "sync" else litter_async, {}, None)
    assert look() == before
    assert run(look if style == "sync" else look_async, {}, None) == before


@pytest.mark.parametrize("style", ["sync", "async"])
def test_nothing_of_its_caller_reaches_a_handler(settings: Any, style: str) -> None:
    settings.USE_I18N, settings.LANGUAGE_CODE, settings.TIME_ZONE = True, "en-us", "UTC"

    async def look_async() -> Any:
        return look()

    def caller() -> Any:
        litter()
        return run(look if style == "sync" else look_async, {}, None), look()

    inside, outside = contextvars.copy_context().run(caller)
    assert inside == ("nobody", "en-us", "UTC")
    assert outside == ("somebody", "de", "Asia/Tokyo")


@pytest.mark.parametrize("style", ["sync", "async"])
def test_a_handler_speaks_the_language_of_its_call(settings: Any, ending_of: Callable[..., Ending], style: str) -> None:
    settings.USE_I18N, settings.LANGUAGE_CODE = True, "en-us"

    def sync() -> str:
        return str(translation.get_language())

    async def coroutine() -> str:
        return str(translation.get_language())

    async def in_the_thread_of_the_orm() -> str:
        return str(await sync_to_async(translation.get_language)())

    for handler in (sync,) if style == "sync" else (coroutine, in_the_thread_of_the_orm):
        assert ending_of(handler, locale="fr") == text("fr")
        assert ending_of(handler) == text("en-us")
        assert translation.get_language() == "en-us"


def test_a_handler_that_raises_leaves_nothing_either(settings: Any, ending_of: Callable[..., Ending]) -> None:
    settings.USE_I18N, settings.LANGUAGE_CODE = True, "en-us"

    def handler() -> None:
        litter()
        raise RuntimeError

    ending_of(handler, locale="fr")
    assert look()[:2] == ("nobody", "en-us")


def test_an_async_handler_leaves_no_event_loop_running(ending_of: Callable[..., Ending]) -> None:
    async def handler() -> None:
        asyncio.get_running_loop().create_task(asyncio.sleep(0))

    ending_of(handler)
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    assert ending_of(handler) == Finished({"content": [], "resultType": "complete"})


# -- the thread of the ORM ------------------------------------------------------------------------------------------


def test_sync_code_of_an_async_handler_runs_on_the_handlers_own_thread() -> None:
    meet = threading.Barrier(3)

    def sync_part() -> int:
        meet.wait(20)  # all at once, or never
        return threading.get_ident()

    async def handler() -> int:
        return await sync_to_async(sync_part)()

    def work(_: int) -> tuple[int, int]:
        return threading.get_ident(), run(handler, {}, None)

    with ThreadPoolExecutor(3) as pool:
        pairs = list(pool.map(work, range(3)))
    assert all(own == ran_on for own, ran_on in pairs)
    assert len({own for own, _ in pairs}) == 3


@pytest.mark.django_db(transaction=True)
def test_the_orm_in_async_handlers_uses_the_connection_of_each_handlers_thread() -> None:
    meet = threading.Barrier(3)

    async def handler(name: str) -> tuple[int, bool]:
        await User.objects.acreate(username=name)
        await sync_to_async(meet.wait)(20)
        return await sync_to_async(id)(await sync_to_async(lambda: connection.connection)()), (
            await User.objects.filter(username=name).aexists()
        )

    def work(name: str) -> tuple[int, bool, int]:
        try:
            used, found = run(handler, {"name": name}, None)
            return used, found, id(connection.connection)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(work, ("ada", "bob", "eve")))
    assert all(used == own and found for used, found, own in results)
    assert User.objects.count() == 3


# -- methods of a host project --------------------------------------------------------------------------------------


def test_a_method_returns_its_object_as_it_is(make_context: Make) -> None:
    context = make_context()

    def sync(params: dict[str, Any], context: TaskContext) -> Any:
        return {"echo": params, "isError": None}

    async def coroutine(params: dict[str, Any], context: TaskContext) -> Any:
        return {"echo": params, "isError": None}

    for function in (sync, coroutine):
        ending = call_method("prompts/get", function, {"name": "x"}, context)
        assert ending == Finished({"echo": {"name": "x"}, "isError": None})


def test_a_method_asks_by_raising_or_returning(make_context: Make) -> None:
    def raises(params: Any, context: TaskContext) -> Any:
        return context.roots("k")

    def returns(params: Any, context: TaskContext) -> Any:
        return InputRequired({"k": ROOTS})

    for function in (raises, returns):
        assert call_method("prompts/get", function, {}, make_context()) == Asked({"k": ROOTS})


@pytest.mark.parametrize("value", [None, "text", 5, [], mcp_types.TextContent(type="text", text="t")])
def test_a_method_that_returns_no_object_failed(make_context: Make, value: Any) -> None:
    ending = call_method("prompts/get", lambda params, context: value, {}, make_context())
    assert isinstance(ending, Finished)
    assert ending.raised


def test_a_method_speaks_the_language_of_its_call(settings: Any, make_context: Make) -> None:
    settings.USE_I18N = True
    ending = call_method(
        "prompts/get", lambda params, context: {"l": translation.get_language()}, {}, make_context(), locale="fr"
    )
    assert ending == Finished({"l": "fr"})


def test_errors_of_a_method_are_kept_whole(make_context: Make) -> None:
    error = McpError(-32602, "Unknown prompt", {"name": "x"})

    def function(params: Any, context: TaskContext) -> Any:
        raise error

    assert call_method("prompts/get", function, {}, make_context()) == Failed(error)
