"""``tools/call``: answer now, ask, or make a task (server/tools; Tasks extension, "Task Creation")."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.utils import translation

from .. import conf, observing
from ..execution.calling import Asked, Became, Deferred, Failed, Finished, Stopped, call
from ..execution.settling import start_deferred
from ..protocol import headers as header_values
from ..protocol.capabilities import IDEMPOTENCY_KEY, NEEDS_TASKS, RELATED_TASK_KEY, declares_tasks
from ..protocol.codec import Json
from ..protocol.errors import (
    HEADER_MISMATCH,
    EnvelopeError,
    internal_error,
    invalid_params,
    missing_capability,
)
from ..store import get_store
from ..store.rules import changed_ttl_ms
from ..store.snapshots import to_wire
from ..store.types import Claim, CreatedTask, IdempotencyConflict, RetentionLimitExceeded, TaskLimitReached
from ..tools.cancellation import CancellationToken
from ..tools.context import Abilities, TaskContext
from ..tools.definition import Tool
from ..tools.results import NEUTRAL_ERROR, DeferredTask, error_result
from ..tools.schemas import InvalidArguments
from . import mrtr
from .discovery import visible_tool
from .methods import ours
from .progress import progress_reporter
from .requests import (
    Emit,
    Reply,
    Request,
    Response,
    Work,
    complete,
    failure,
    guarded,
    result,
    server_meta,
)

logger = logging.getLogger("mcp_tasks.rpc")

_TRACE_LENGTH = 512
_KEY_LENGTH = 255
CANNOT_ASK = "This tool has a question, which works with clients of MCP 2026-07-28 only."


@dataclass(slots=True)
class ToolCall:
    """A call whose tool is known and whose arguments are right."""

    request: Request
    tool: Tool
    arguments: dict[str, Json]
    values: dict[str, Any]
    answers: mrtr.Answers
    may_be_task: bool
    token: CancellationToken = field(default_factory=CancellationToken)
    #: Of the request's thread; the handler may run on another.
    locale: str | None = field(default_factory=translation.get_language)


@ours("tools/call")
def call_tool(request: Request) -> Response:
    """
    Check everything that can be checked, then decide.

    Nothing is stored for a call that is refused: unknown tool, missing capability, wrong arguments, a state that
    does not verify are all answered here, as the synchronous call would.
    """
    tool = visible_tool(request.params.get("name"), request.caller, legacy=request.is_legacy)
    arguments = request.params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise invalid_params("arguments must be an object")
    _check_param_headers(request, tool, arguments)
    declared = not request.is_legacy and declares_tasks(request.capabilities)
    may_be_task = declared and tool.task != "never" and conf.get_settings().ENABLED
    if tool.task == "required" and not may_be_task:
        raise missing_capability(NEEDS_TASKS, f"The tool {tool.name} needs the tasks extension")
    answers = mrtr.Answers() if request.is_legacy else mrtr.answers_of(request, strict=tool.strict_answers)
    try:
        values = tool.convert(arguments)
    except InvalidArguments as wrong:
        return complete(request, error_result(f"Invalid arguments: {wrong}"))
    made = ToolCall(request, tool, arguments, values, answers, may_be_task)
    if may_be_task and not tool.inline_first:
        return _created(made, _create(made))

    def work(emit: Emit) -> Reply:
        return guarded(request, lambda: _run_inline(made, emit))

    return Work(work, made.token, "progressToken" in request.meta, request.is_legacy)


def _check_param_headers(request: Request, tool: Tool, arguments: dict[str, Json]) -> None:
    """Arguments annotated with ``x-mcp-header`` must be mirrored exactly (streamable-http, SEP-2243)."""
    if request.headers is None or request.is_legacy:
        return
    for path, name in tool.headers:
        argument: Json = arguments
        for part in path:
            argument = argument.get(part) if isinstance(argument, dict) else None
        header = request.headers.get(f"mcp-param-{name.lower()}")
        if header is None and argument is None:
            continue
        try:
            matches = header is not None and argument is not None
            matches = matches and header_values.equals(argument, header_values.decode(header or ""))
        except header_values.InvalidHeader:
            matches = False
        if not matches:
            message = f"Header mismatch: Mcp-Param-{name} does not match the argument {'.'.join(path)}"
            raise EnvelopeError(400, HEADER_MISMATCH, message)


def _run_inline(made: ToolCall, emit: Emit) -> Reply:
    request, tool = made.request, made.tool
    context = TaskContext(
        token=made.token,
        abilities=Abilities(
            report=progress_reporter(request, emit),
            set_ttl=lambda ttl_ms: False,
            load_user=lambda: request.caller.user,
            may_become_task=made.may_be_task,
            strict_answers=tool.strict_answers,
        ),
        capabilities=mrtr.EVERYTHING if request.is_legacy else request.capabilities,
        owner=request.caller.identity,
        scopes=request.caller.scopes,
        meta=request.meta,
        recorded=made.answers.recorded,
        given=made.answers.given,
    )
    match call(tool, context, made.values, locale=made.locale):
        case Finished() as ending:
            return complete(request, _for_era(ending.result, request))
        case Failed() as ending:
            return failure(request.id, ending.error, legacy=request.is_legacy)
        case Asked() if request.is_legacy:
            return complete(request, error_result(CANNOT_ASK))
        case Asked() as ending:
            if ending.requests.keys() <= context.answers.keys():
                logger.error("a tool asks again what was answered", extra={"event": "bad_ask", "tool": tool.name})
                return failure(request.id, internal_error())
            return mrtr.input_required(request, ending.requests, context)
        case Became():
            return _made(made, lambda: _create(made))
        case Deferred() as ending:
            return _defer(made, ending.task)
        case Stopped():
            return complete(request, error_result(NEUTRAL_ERROR))


def _for_era(result: dict[str, Json], request: Request) -> dict[str, Json]:
    meta = result.get("_meta")
    if meta and RELATED_TASK_KEY in meta:
        result = {**result, "_meta": {key: value for key, value in meta.items() if key != RELATED_TASK_KEY}}
    if request.is_legacy and not isinstance(result.get("structuredContent", {}), dict):
        return {key: value for key, value in result.items() if key != "structuredContent"}
    return result


def _defer(made: ToolCall, task: DeferredTask) -> Reply:
    request, tool = made.request, made.tool
    if not made.may_be_task:
        if tool.task != "never" and conf.get_settings().ENABLED and not request.is_legacy:
            error = missing_capability(NEEDS_TASKS, f"The tool {tool.name} needs the tasks extension")
            return failure(request.id, error)
        logger.error(
            "a tool returned a DeferredTask where no task can be made",
            extra={"event": "tool_contract", "tool": tool.name},
        )
        return failure(request.id, internal_error(), legacy=request.is_legacy)

    if tool.legs.is_limited:
        return _made(made, lambda: _create(made))  # its job begins when there is room

    def create() -> CreatedTask:
        created = _create(made, deferred=task)
        if not created.existed:
            start_deferred(get_store(), Claim(created.ref, 1, tool.name, 1, tool.max_attempts), task)
        return created

    return _made(made, create)


def _made(made: ToolCall, create: Callable[[], CreatedTask]) -> Reply:
    """Create on the handler's thread, outside of the dispatcher and its mapping of errors."""
    return guarded(made.request, lambda: _created(made, create()))


def _create(made: ToolCall, *, deferred: DeferredTask | None = None) -> CreatedTask:
    """Store the task, durably, before anybody hears of it. Raises McpError for a limit or a conflict."""
    request, tool = made.request, made.tool
    attributes = {} if deferred is None else dict(deferred.attributes)
    if "ttl_ms" in attributes:
        attributes["ttl_ms"] = changed_ttl_ms(attributes["ttl_ms"])  # at most MAX_TTL_MS, as from a leg
    trace = observing.trace() or request.meta.get("traceparent")
    try:
        created = get_store().create_task(
            tool.name,
            made.arguments,
            owner=request.caller.owner,
            ttl_ms=attributes.get("ttl_ms", tool.resolved_ttl_ms()),
            idempotency_key=_idempotency_key(request),
            method=request.method,
            poll_interval_ms=attributes.get("poll_interval_ms", tool.resolved_poll_interval_ms()),
            max_attempts=tool.max_attempts,
            priority=tool.legs.priority,
            trace_context=trace if isinstance(trace, str) and len(trace) <= _TRACE_LENGTH else None,
            status_message=attributes.get("status_message"),
            meta=attributes.get("meta"),
            deferred=deferred is not None,
            context={
                "user": request.caller.user_key,
                "scopes": sorted(request.caller.scopes),
                "capabilities": request.capabilities,
                "meta": request.meta,
                "locale": made.locale,
                "recorded": {key: [item.answer, item.request_hash] for key, item in made.answers.recorded.items()},
                "given": made.answers.given,
            },
        )
    except TaskLimitReached:
        raise internal_error("task limit reached") from None
    except (IdempotencyConflict, RetentionLimitExceeded) as problem:
        raise invalid_params(str(problem)) from None
    except ValueError as problem:
        # What the client sent was checked before: this is a time to live that the tool may not give.
        logger.error(
            "a tool asked for a task that cannot be made: %s",
            problem,
            extra={"event": "tool_contract", "tool": tool.name},
        )
        raise internal_error() from None
    if not created.existed:
        transport = "websocket" if request.headers is None else "http"
        observing.happened("created", ref=created.ref, tool=tool.name, transport=transport)
    return created


def _created(made: ToolCall, created: CreatedTask) -> Reply:
    text = to_wire(created.snapshot).create_result(created.task_id, server_meta())
    # Under an idempotency key, which only an owner can use, the client will ask again: a lost reply loses nothing.
    keyed = made.request.meta.get(IDEMPOTENCY_KEY) is not None and made.request.caller.owner is not None
    orphan = None if keyed else created.ref
    return result(made.request, text, created=orphan)


def _idempotency_key(request: Request) -> str | None:
    key = request.meta.get(IDEMPOTENCY_KEY)
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= _KEY_LENGTH:
        raise invalid_params(f"{IDEMPOTENCY_KEY} must be a string of 1 to {_KEY_LENGTH} characters")
    return key
