"""One leg from claim to end: restore its context, call the handler, settle, park or let go."""

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from django.contrib.auth import get_user_model
from django.db import InterfaceError, OperationalError, connections

from .. import conf
from ..protocol.codec import Json, JsonError
from ..protocol.errors import McpError, internal_error
from ..store.base import TaskStore
from ..store.types import Claim, InvalidTransition, Outcome, ResumeContext, RetentionLimitExceeded
from ..tools.cancellation import LEASE_LOST, SHUTDOWN
from ..tools.context import Abilities, OwnerIdentity, RecordedAnswer, TaskContext
from ..tools.registry import Tool, registry
from ..tools.results import NEUTRAL_ERROR, DeferredTask, error_result
from ..tools.schemas import InvalidArguments
from .calling import Asked, Became, Deferred, Ending, Failed, Finished, Stopped, call
from .heartbeat import heartbeat
from .running import RunningLeg
from .threads import process_is_ending

logger = logging.getLogger("mcp_tasks.runner")

T = TypeVar("T")

START_FAILED = internal_error("The task could not be started")


class Watcher(Protocol):
    """What keeps a leg alive and writes its progress: the heartbeat, or a test's own thread."""

    def watch(self, store: TaskStore, leg: RunningLeg) -> None: ...

    def forget(self, leg: RunningLeg) -> None: ...

    def report(self, leg: RunningLeg, message: str | None, done: float | None, total: float | None) -> None: ...

    def flush(self, store: TaskStore, leg: RunningLeg) -> None: ...


def run_leg(store: TaskStore, claim: Claim, watcher: Watcher = heartbeat) -> None:
    """Run a claimed leg to its end. Whatever it writes is fenced; what came too late is dropped with one log line."""
    resume = store.resume_context(claim.ref, claim.leg)
    if resume is None:
        store.let_go(claim.ref, claim.leg)  # cancelled or expired between the claim and here
        return
    tool = registry.get(claim.tool)
    if tool is None or tool.problems:
        _insist(lambda: store.fail_task(claim.ref, _unavailable(claim.tool), leg=claim.leg))
        return
    leg = RunningLeg(claim.ref, claim.leg, resume.token.child())
    watcher.watch(store, leg)
    try:
        ending = _call(store, tool, resume, leg, watcher)
        if isinstance(ending, Asked):
            watcher.flush(store, leg)
        if not _abandoned(store, claim, leg, ending):
            _insist(lambda: _settle(store, claim, leg, ending))
    finally:
        watcher.forget(leg)


def _unavailable(name: str) -> McpError:
    return internal_error(f"The tool {name} is no longer available")


def _call(store: TaskStore, tool: Tool, resume: ResumeContext, leg: RunningLeg, watcher: Watcher) -> Ending:
    assert tool.signature is not None
    try:
        values = tool.signature.convert(resume.arguments)
    except InvalidArguments as problem:
        return Failed(internal_error(f"The tool no longer takes these arguments: {problem}"))
    return call(tool, _context(store, tool, resume, leg, watcher), values, locale=resume.context.get("locale"))


def _context(store: TaskStore, tool: Tool, resume: ResumeContext, leg: RunningLeg, watcher: Watcher) -> TaskContext:
    """The handler's context in a leg: the same principal as in the call, and every answer so far."""

    def report(message: str | None, done: float | None, total: float | None) -> None:
        watcher.report(leg, message, done, total)

    owner = None
    if resume.owner_key is not None:
        owner = OwnerIdentity(resume.owner_key, resume.owner_label or "")
    return TaskContext(
        token=leg.token,
        abilities=Abilities(
            report=report,
            set_ttl=lambda ttl_ms: store.set_ttl(resume.ref, ttl_ms, leg=resume.leg),
            load_user=lambda: load_user(resume.context.get("user")),
            strict_answers=tool.strict_answers,
        ),
        capabilities=resume.capabilities,
        owner=owner,
        scopes=frozenset(resume.context.get("scopes") or ()),
        meta=resume.meta,
        ref=resume.ref,
        leg=resume.leg,
        recorded={**_given_before(resume), **resume.answers},
        given=resume.context.get("given") or {},
    )


def _given_before(resume: ResumeContext) -> dict[str, RecordedAnswer]:
    """Answers of the synchronous rounds before the task was made."""
    return {key: RecordedAnswer(*pair) for key, pair in (resume.context.get("recorded") or {}).items()}


def load_user(key: Json) -> Any:
    """The user with this primary key, as it is now; None when there is none (any more)."""
    if key is None:
        return None
    return get_user_model()._default_manager.filter(pk=key).first()


def _abandoned(store: TaskStore, claim: Claim, leg: RunningLeg, ending: Ending) -> bool:
    """
    Whether this leg has no outcome, because its process stops.

    What a handler does after it was told of the stop, or that its lease may be lost, is no result of its work.
    Where it may be run again, it is given back at once; the rest is left to its lease.
    """
    raised = isinstance(ending, Finished) and ending.raised
    if process_is_ending() and (raised or isinstance(ending, (Failed, Stopped))):
        return True
    if leg.token.reason not in (SHUTDOWN, LEASE_LOST) or not leg.token.observed or isinstance(ending, Asked):
        return False
    if leg.token.reason == SHUTDOWN and claim.max_attempts > 1:
        released = _insist(lambda: store.release(claim.ref, claim.leg))
        if not released:
            store.let_go(claim.ref, claim.leg)  # the client cancelled meanwhile
    logger.info("a leg stopped before its end", extra={"event": "leg_stopped", "ref": str(claim.ref)})
    return True


def _settle(store: TaskStore, claim: Claim, running_leg: RunningLeg, ending: Ending) -> None:
    ref, leg = claim.ref, claim.leg
    outcome: Outcome
    match ending:
        case Stopped() if running_leg.token.is_raised:
            store.let_go(ref, leg)  # an outcome or the expiry came from elsewhere
            return
        case Finished():
            try:
                outcome = store.complete_task(ref, ending.result, leg=leg)
            except RetentionLimitExceeded as problem:
                logger.warning("a result was too large: %s", problem, extra={"event": "too_large", "ref": str(ref)})
                return
        case Failed():
            outcome = _fail(store, claim, ending.error, traceback=ending.traceback)
        case Asked():
            try:
                outcome = store.require_input(ref, ending.requests, leg=leg)
            except (InvalidTransition, RetentionLimitExceeded) as problem:
                logger.error("a tool asked what it may not: %s", problem, extra={"event": "bad_ask", "ref": str(ref)})
                outcome = _fail(store, claim, internal_error(f"The tool asked what it may not: {problem}"))
        case Deferred():
            outcome = start_deferred(store, claim, ending.task)
        case Stopped() | Became():
            # Nobody told it to stop: a tool's own mistake, as any other exception.
            outcome = store.complete_task(ref, error_result(NEUTRAL_ERROR), leg=leg)
    if not outcome:
        logger.info(
            "what a leg wrote came too late",
            extra={"event": "late_result", "ref": str(ref), "why": outcome.why},
        )
        store.let_go(ref, leg)


def _fail(store: TaskStore, claim: Claim, error: McpError, *, traceback: str | None = None) -> Outcome:
    try:
        return store.fail_task(claim.ref, error, leg=claim.leg, traceback=traceback)
    except RetentionLimitExceeded as problem:
        logger.warning("an error was too large: %s", problem, extra={"event": "too_large", "ref": str(claim.ref)})
        return Outcome(True)
    except JsonError as problem:
        logger.error("an error has no JSON form: %s", problem, extra={"event": "tool_contract", "ref": str(claim.ref)})
        return store.fail_task(claim.ref, internal_error(), leg=claim.leg, traceback=traceback)


def start_deferred(store: TaskStore, claim: Claim, task: DeferredTask) -> Outcome:
    """
    Hand a task over to whoever does the work: ``start(ref)``, then no lease any more.

    A ``start`` that raises fails the task with a neutral text. Not applied: the job was quicker.
    """
    ref, leg, attributes = claim.ref, claim.leg, task.attributes
    if "meta" in attributes:
        try:
            store.set_task_meta(ref, attributes["meta"], leg=leg)
        except (RetentionLimitExceeded, JsonError) as problem:
            logger.error("a deferred task has no usable meta: %s", problem, extra={"event": "tool_contract"})
            return store.fail_task(ref, START_FAILED, leg=leg, kind="start_failed")
    if "status_message" in attributes:
        store.set_status(ref, attributes["status_message"], leg=leg)
    if "ttl_ms" in attributes:
        store.set_ttl(ref, attributes["ttl_ms"], leg=leg)
    try:
        task.start(ref)
    except Exception:
        logger.exception("a deferred task could not be started", extra={"event": "start_failed", "ref": str(ref)})
        return store.fail_task(ref, START_FAILED, leg=leg, kind="start_failed")
    store.hand_over(ref, leg)
    return Outcome(True)


def _insist(operation: Callable[[], T]) -> T:
    """
    Settle against a database that is away for a moment: the work is done, so its outcome is worth the lease.

    Every operation is fenced and applies at most once, so a commit of unknown fate may be repeated.
    """
    deadline = time.monotonic() + conf.get_settings().LEASE_SECONDS
    pause = 0.25
    while True:
        try:
            return operation()
        except (OperationalError, InterfaceError):
            if time.monotonic() + pause > deadline or process_is_ending():
                raise
            logger.warning("the database is away; an outcome waits", extra={"event": "settle_waits"})
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
            time.sleep(pause)
            pause = min(pause * 2, 5.0)
