"""A host project's methods: run on threads of their own like any handler, with a context that can ask and report."""

import logging

from django.utils import translation

from ..execution.calling import Asked, Failed, Finished, call_method
from ..protocol.errors import internal_error
from ..tools.cancellation import CancellationToken
from ..tools.context import Abilities, TaskContext
from . import mrtr
from .methods import Method
from .progress import progress_reporter
from .requests import Emit, Reply, Request, Work, complete, failure, guarded

logger = logging.getLogger("mcp_tasks.rpc")

CANNOT_ASK = "This method has a question, which works with clients of MCP 2026-07-28 only."


def run_method(method: Method, request: Request) -> Work:
    """A host project's method, on a thread of its own like any handler."""
    token, locale = CancellationToken(), translation.get_language()

    def work(emit: Emit) -> Reply:
        return guarded(request, lambda: _run(method, request, token, locale, emit))

    return Work(work, token, "progressToken" in request.meta, request.is_legacy)


def _run(method: Method, request: Request, token: CancellationToken, locale: str | None, emit: Emit) -> Reply:
    assert method.function is not None
    asks = method.traits.asks and not request.is_legacy
    answers = mrtr.answers_of(request) if asks else mrtr.Answers()
    context = TaskContext(
        token=token,
        abilities=Abilities(
            report=progress_reporter(request, emit),
            set_ttl=lambda ttl_ms: False,
            load_user=lambda: request.caller.user,
        ),
        capabilities=mrtr.EVERYTHING if request.is_legacy else request.capabilities,
        owner=request.caller.identity,
        scopes=request.caller.scopes,
        meta=request.meta,
        recorded=answers.recorded,
        given=answers.given,
    )
    ending = call_method(method.name, method.function, request.params, context, locale=locale)
    if isinstance(ending, Finished) and not ending.raised:
        hints = {"ttlMs": 0, "cacheScope": "private"} if method.traits.cacheable and not request.is_legacy else {}
        return complete(request, {**hints, **ending.result})
    if isinstance(ending, Failed):
        return failure(request.id, ending.error, legacy=request.is_legacy)
    if isinstance(ending, Asked) and method.traits.asks:
        if request.is_legacy:
            return failure(request.id, internal_error(CANNOT_ASK), legacy=True)
        if not ending.requests.keys() <= context.answers.keys():
            return mrtr.input_required(request, ending.requests, context)
    logger.error("a method ended in a way it may not", extra={"event": "method_contract", "method": method.name})
    return failure(request.id, internal_error(), legacy=request.is_legacy)
