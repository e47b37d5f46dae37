"""Call a handler, sync or async, and name how it ended. Knows no store and no transport."""

import contextvars
import inspect
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.utils import translation

from .. import observing
from ..connections import left_as_found
from ..protocol.codec import Json, JsonError, dumps
from ..protocol.errors import McpError, internal_error
from ..protocol.inputs import InvalidInputRequest, check_deadline, check_requests
from ..tools.cancellation import TaskCancelled
from ..tools.context import TaskContext
from ..tools.definition import Tool
from ..tools.results import (
    NEUTRAL_ERROR,
    BecomeTask,
    DeferredTask,
    InputRequired,
    InvalidDeferredTask,
    OutputMismatch,
    Suspend,
    ToolError,
    error_result,
    to_result,
)
from ..tools.steps import StepError

logger = logging.getLogger("mcp_tasks.runner")


@dataclass(frozen=True, slots=True)
class Finished:
    """A result. ``raised`` when it stands for an exception, whose traceback is for operators."""

    result: dict[str, Json]
    raised: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """A JSON-RPC error."""

    error: McpError
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The handler waits for answers. ``deadlines``: seconds by key; a question without one waits on."""

    requests: dict[str, dict[str, Json]]
    deadlines: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Became:
    """An inline run wants to go on as a task."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """Somebody else will do the work."""

    task: DeferredTask


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler obeyed its token."""


Ending = Finished | Failed | Asked | Became | Deferred | Stopped


@dataclass(frozen=True, slots=True)
class Transient:
    """The handler raised what its tool calls transient: it may be run again, else the ending stands."""

    ending: Ending
    #: The name of the exception's class, for the timeline.
    why: str


def call(tool: Tool, context: TaskContext, values: dict[str, Any], *, locale: str | None = None) -> Ending:
    """
    Run a tool's function with converted arguments, in a context of its own, and say how it ended.

    Never raises. What an exception says reaches the log, never the wire, unless it is a ToolError or McpError.
    """
    return _ending(lambda: _called(tool, context, values, locale), tool.name)


def try_call(
    tool: Tool, context: TaskContext, values: dict[str, Any], *, locale: str | None = None
) -> Ending | Transient:
    """The same in a leg that may be started again: what the tool names in ``retry_on`` is told apart."""
    try:
        return _called(tool, context, values, locale)
    except BaseException as raised:
        meant = _meant(raised)
        if not isinstance(meant, tool.legs.transient):
            return _named(meant, tool.name)
        logger.warning(
            "a tool met what it calls transient", exc_info=meant, extra={"event": "tool_retried", "tool": tool.name}
        )
        return Transient(_named(meant, tool.name, is_known=True), type(meant).__name__)


def _called(tool: Tool, context: TaskContext, values: dict[str, Any], locale: str | None) -> Ending:
    assert tool.signature is not None
    if tool.signature.context_name is not None:
        values = {**values, tool.signature.context_name: context}
    with left_as_found(tool.name):
        value = _answered(lambda: run(tool.function, values, locale), context)
    return value if isinstance(value, Asked) else _to_ending(value, tool)


def call_method(
    name: str,
    function: Callable[..., Any],
    params: dict[str, Json],
    context: TaskContext,
    *,
    locale: str | None = None,
) -> Ending:
    """The same for a further MCP method of a host project, whose result is an object as it is."""

    def work() -> Ending:
        with left_as_found(name):
            value = _answered(lambda: run(partial(function, params, context), {}, locale), context)
        if isinstance(value, Asked):
            return value
        if not isinstance(value, dict):
            raise TypeError(f"a method returns an object, not {type(value).__name__}")
        return Finished(value)

    return _ending(work, name)


def run(function: Callable[..., Any], values: dict[str, Any], locale: str | None) -> Any:
    """Call a function in an empty context: nothing of the previous task of this thread is left in it."""
    arrive = observing.carry()

    def inside() -> Any:
        arrive()
        if locale is not None:
            translation.activate(locale)  # for this context only
        value = function(**values)
        return async_to_sync(_await)(value) if inspect.isawaitable(value) else value

    return contextvars.Context().run(inside)


async def _await(value: Any) -> Any:
    return await value


def _to_ending(value: Any, tool: Tool) -> Ending:
    if isinstance(value, DeferredTask):
        value.check()
        return Deferred(value)
    return Finished(to_result(value, tool))


def _answered(call_function: Callable[[], Any], context: TaskContext) -> Any:
    """
    What a function returns, or Asked in place of an InputRequired that still needs answers.

    Where all its answers came with the call, it runs again from the top and finds them. Questions whose answers
    it had already are a mistake, which whoever gets them names, so that it does not go round for ever.
    """
    while True:
        value = call_function()
        if not isinstance(value, InputRequired):
            return value
        check_deadline(value.deadline_seconds)
        questions, known = check_requests(value.requests), set(context.recorded)
        missing = context.unanswered(questions)
        if missing or set(context.recorded) == known:
            asked = Suspend(missing or questions, value.deadline_seconds)
            return Asked(asked.requests, asked.deadlines)


def _ending(work: Callable[[], Ending], name: str) -> Ending:
    try:
        return work()
    except BaseException as raised:
        return _named(_meant(raised), name)


def _meant(raised: BaseException) -> BaseException:
    """The exception that counts: a TaskGroup wraps what its tasks raised, and their questions belong together."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised
    leaves = list(_leaves(raised))
    signals = (Suspend, BecomeTask, TaskCancelled)
    ordinary = [leaf for leaf in leaves if not isinstance(leaf, signals)]
    if ordinary:
        return ordinary[0]
    for kind in (TaskCancelled, BecomeTask):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    merged = Suspend({})
    for leaf in leaves:
        if isinstance(leaf, Suspend):
            merged.requests.update(leaf.requests)
            merged.deadlines.update(leaf.deadlines)
    return merged


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for raised in group.exceptions:
        if isinstance(raised, BaseExceptionGroup):
            yield from _leaves(raised)
        else:
            yield raised


def _named(raised: BaseException, name: str, *, is_known: bool = False) -> Ending:
    """The ending that an exception means; one that is not ``is_known`` yet is logged."""
    match raised:
        case Suspend():
            return Asked(raised.requests, raised.deadlines)
        case BecomeTask():
            return Became()
        case TaskCancelled():
            return Stopped()
        case ToolError():
            return Finished(error_result(str(raised)), raised=True)
        case McpError() if _is_sendable(raised):
            return Failed(raised)
        case McpError() | InvalidInputRequest() | OutputMismatch() | InvalidDeferredTask() | JsonError() | StepError():
            logger.error("a tool broke its contract", exc_info=raised, extra={"event": "tool_contract", "tool": name})
            return Failed(internal_error(), _text(raised))
    if not is_known:
        logger.error("a tool raised", exc_info=raised, extra={"event": "tool_raised", "tool": name})
    return Finished(error_result(NEUTRAL_ERROR), raised=True)


def _is_sendable(error: McpError) -> bool:
    try:
        dumps(error.payload())
    except JsonError:
        return False
    return True


def _text(raised: BaseException) -> str:
    return "".join(traceback.format_exception(raised))
