"""What a handler may return or raise, and how a return value becomes a CallToolResult (server/tools, "Tool Result")."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

import mcp_types
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ..protocol.capabilities import RELATED_TASK_KEY
from ..protocol.codec import Json, JsonError, dumps, loads

if TYPE_CHECKING:
    from .definition import Tool

_BLOCKS = (
    mcp_types.TextContent,
    mcp_types.ImageContent,
    mcp_types.AudioContent,
    mcp_types.ResourceLink,
    mcp_types.EmbeddedResource,
)

#: Shown instead of an exception's own text, which may hold secrets.
NEUTRAL_ERROR = "The tool failed because of an internal error."


class ToolError(Exception):
    """The tool failed in a way that the model may read and correct: a result with ``isError`` and this text."""


class NobodyAnswered(ToolError):
    """
    No answer to these questions came before their deadline, and they are of a kind that has no answer "cancel".

    Left alone it is a result with ``isError``, as any ToolError.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"Nobody answered in time: {', '.join(keys)}")
        self.keys = tuple(keys)


class InputRequired:
    """
    Returned by a handler instead of calling ``ctx.ask``: the questions, in the wire's ``inputRequests`` shape.

    ``deadline_seconds`` as for ``ctx.ask``.
    """

    def __init__(self, requests: Mapping[str, Json], *, deadline_seconds: float | None = None) -> None:
        self.requests = requests
        self.deadline_seconds = deadline_seconds


class Suspend(BaseException):
    """Ends a leg because it asked. Derived from BaseException so that ``except Exception`` lets it pass."""

    def __init__(self, requests: dict[str, dict[str, Json]], deadline_seconds: float | None = None) -> None:
        super().__init__("the handler waits for input")
        self.requests = requests
        self.deadlines = {} if deadline_seconds is None else dict.fromkeys(requests, deadline_seconds)


class BecomeTask(BaseException):
    """Ends an inline run because the tool decided to be a task from here on."""


class OutputMismatch(Exception):
    """A tool returned what its own output schema forbids: a fault of the server, -32603."""


class InvalidDeferredTask(Exception):
    """A DeferredTask with an unknown attribute or a wrong type: a fault of the server, -32603."""


class DeferredTask:
    """
    Returned by a quick tool: "this is a task now, somebody else does the work".

    ``start(ref)`` is called once the row is committed, and again only after a crash in between, so it must be
    idempotent by ``ref``. Optional: ``ttl_ms`` and ``poll_interval_ms`` (milliseconds), ``status_message``,
    ``meta`` (a JSON object, shown in every view of the task). They are checked when the value arrives: what
    is wrong is a logged -32603 and makes no task.
    """

    def __init__(self, start: Callable[[UUID], object], **attributes: Any) -> None:
        self.start = start
        self.attributes = attributes

    def check(self) -> None:
        """Raise InvalidDeferredTask naming the attribute that is wrong."""
        if not callable(self.start) or inspect.iscoroutinefunction(self.start):
            self._refuse("start must be callable with the task's ref, and not a coroutine function")
        wanted: dict[str, tuple[type, ...]] = {
            "ttl_ms": (int, type(None)),
            "poll_interval_ms": (int,),
            "status_message": (str,),
            "meta": (dict,),
        }
        for name, value in self.attributes.items():
            if name not in wanted:
                self._refuse(f"{name} is no attribute of a DeferredTask")
            if not isinstance(value, wanted[name]) or isinstance(value, bool):
                self._refuse(f"{name} has a wrong type: {type(value).__name__}")
            if isinstance(value, int) and value <= 0:
                self._refuse(f"{name} must be positive")
            try:
                dumps(value)
            except JsonError as problem:
                self._refuse(f"{name} has no JSON form: {problem}")

    @staticmethod
    def _refuse(message: str) -> NoReturn:
        raise InvalidDeferredTask(message)


def error_result(text: str) -> dict[str, Json]:
    """A CallToolResult that says the tool failed."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}


def to_result(value: Any, tool: "Tool") -> dict[str, Json]:
    """
    A handler's return value as a CallToolResult.

    Text and content blocks become ``content``; objects (dict, pydantic model, dataclass) become
    ``structuredContent`` and are repeated as JSON text. With an output schema everything is structured and
    must satisfy it, else OutputMismatch.
    """
    if isinstance(value, mcp_types.CallToolResult):
        result = _from_model(value)
    elif isinstance(value, _BLOCKS):
        result = {"content": [_dump(value)]}
    elif isinstance(value, (list, tuple)) and value and all(isinstance(item, _BLOCKS) for item in value):
        result = {"content": [_dump(item) for item in value]}
    elif value is None and tool.output_validator is None:
        result = {"content": []}
    else:
        plain = _plain(value)
        text = plain if isinstance(plain, str) else dumps(plain)
        result = {"content": [{"type": "text", "text": text}]}
        if isinstance(plain, dict) or tool.output_validator is not None:
            result["structuredContent"] = plain
    if tool.output_validator is not None and not result.get("isError"):
        _check_output(result, tool)
    return {**result, "resultType": "complete"}


def _check_output(result: dict[str, Json], tool: "Tool") -> None:
    if "structuredContent" not in result:
        raise OutputMismatch(f"{tool.name} has an output schema but returned no structured content")
    assert tool.output_validator is not None
    problem = next(tool.output_validator.iter_errors(result["structuredContent"]), None)
    if problem is not None:
        raise OutputMismatch(f"{tool.name} violates its output schema: {problem.validator} at {list(problem.path)}")


def _from_model(value: mcp_types.CallToolResult) -> dict[str, Json]:
    result = _dump(value)
    result.pop("resultType", None)
    if result.get("isError") is False:
        del result["isError"]
    if "structured_content" in value.model_fields_set:
        result["structuredContent"] = _plain(value.structured_content)  # null is a value here, absence is not
    meta = result.get("_meta")
    if isinstance(meta, dict):
        meta.pop(RELATED_TASK_KEY, None)
        if not meta:
            del result["_meta"]
    return result


def _dump(model: BaseModel) -> dict[str, Json]:
    return model.model_dump(by_alias=True, exclude_none=True, mode="json")


def _plain(value: Any) -> Json:
    """Plain JSON of any value that pydantic knows; what is plain already never meets it (it refuses surrogates)."""
    try:
        return loads(dumps(value))
    except JsonError:
        return loads(dumps(to_jsonable_python(value, by_alias=True)))
