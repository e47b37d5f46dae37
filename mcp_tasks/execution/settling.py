"""How a leg ends: its outcome, its question, its next try or its job is written, with patience for the database."""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connections

from .. import conf, observing
from ..protocol.codec import JsonError
from ..protocol.errors import McpError, internal_error
from ..store.base import TaskStore
from ..store.types import Claim, InvalidTransition, Outcome, RetentionLimitExceeded
from ..tools.results import NEUTRAL_ERROR, DeferredTask, error_result
from .calling import Asked, Became, Deferred, Ending, Failed, Finished, Stopped, Transient
from .running import RunningLeg
from .threads import process_is_ending

logger = logging.getLogger("mcp_tasks.runner")

T = TypeVar("T")

#: How a leg ends, as observers and the log are told.
SETTLED, PARKED, HANDED_OVER, RELEASED = "settled", "parked", "handed_over", "released"
LEASE_LOST_END, REFUSED, RETRIED = "lease_lost", "refused", "retried"
ENDS = (SETTLED, PARKED, HANDED_OVER, RELEASED, LEASE_LOST_END, REFUSED, RETRIED)

#: The pause before the next try after a transient error: doubled each time, spread so that tries do not meet.
RETRY_SECONDS, RETRY_LIMIT_SECONDS = 2.0, 300.0

START_FAILED = internal_error("The task could not be started")


def settle(store: TaskStore, claim: Claim, running_leg: RunningLeg, ending: Ending | Transient) -> str:
    """Write how a leg ended, unless it came too late; returns it in one of the words above."""
    ref, leg = claim.ref, claim.leg
    outcome: Outcome
    if isinstance(ending, Transient):
        if store.retry(ref, leg, after_seconds=_pause_seconds(claim.attempts), why=ending.why):
            return RETRIED
        ending = ending.ending
    match ending:
        case Stopped() if running_leg.token.is_raised:
            store.let_go(ref, leg)  # an outcome or the expiry came from elsewhere
            return REFUSED
        case Finished():
            try:
                outcome = store.complete_task(ref, ending.result, leg=leg)
            except RetentionLimitExceeded as problem:
                logger.warning("a result was too large: %s", problem, extra={"event": "too_large", "ref": str(ref)})
                return SETTLED
            except JsonError as problem:
                outcome = _fail_contract(store, claim, problem)
        case Failed():
            outcome = _fail(store, claim, ending.error, traceback=ending.traceback)
        case Asked():
            try:
                outcome = store.require_input(ref, ending.requests, leg=leg, deadlines=ending.deadlines)
            except (InvalidTransition, RetentionLimitExceeded) as problem:
                logger.error("a tool asked what it may not: %s", problem, extra={"event": "bad_ask", "ref": str(ref)})
                ending = Failed(internal_error(f"The tool asked what it may not: {problem}"))
                outcome = _fail(store, claim, ending.error)
            except JsonError as problem:
                ending = Failed(internal_error())
                outcome = _fail_contract(store, claim, problem)
        case Deferred():
            outcome = _start_if_held(store, claim, ending.task)
        case Stopped() | Became():
            # Nobody told it to stop: a tool's own mistake, as any other exception.
            outcome = store.complete_task(ref, error_result(NEUTRAL_ERROR), leg=leg)
    if not outcome:
        logger.info(
            "what a leg wrote came too late",
            extra={"event": "late_result", "ref": str(ref), "why": outcome.why},
        )
        observing.happened("late_result", ref=ref, tool=claim.tool)
        store.let_go(ref, leg)
        return LEASE_LOST_END if outcome.why == "fenced" else REFUSED
    return PARKED if isinstance(ending, Asked) else HANDED_OVER if isinstance(ending, Deferred) else SETTLED


def _pause_seconds(attempts: int) -> float:
    pause = min(RETRY_SECONDS * 2.0 ** (attempts - 1), RETRY_LIMIT_SECONDS)
    return pause * random.uniform(0.75, 1.25)  # noqa: S311


def _fail(store: TaskStore, claim: Claim, error: McpError, *, traceback: str | None = None) -> Outcome:
    try:
        return store.fail_task(claim.ref, error, leg=claim.leg, traceback=traceback)
    except RetentionLimitExceeded as problem:
        logger.warning("an error was too large: %s", problem, extra={"event": "too_large", "ref": str(claim.ref)})
        return Outcome(True)
    except JsonError as problem:
        return _fail_contract(store, claim, problem, traceback=traceback)


def _fail_contract(store: TaskStore, claim: Claim, problem: JsonError, *, traceback: str | None = None) -> Outcome:
    """What a handler ended with has no JSON form as a whole, nested too deeply for example: no other run helps."""
    logger.error("a tool's end has no JSON form: %s", problem, extra={"event": "tool_contract", "ref": str(claim.ref)})
    return store.fail_task(claim.ref, internal_error(), leg=claim.leg, traceback=traceback)


def _start_if_held(store: TaskStore, claim: Claim, task: DeferredTask) -> Outcome:
    """Nothing is begun for a task that was cancelled meanwhile, or is another leg's by now."""
    held = store.heartbeat(claim.ref, claim.leg)
    return start_deferred(store, claim, task) if held else held


def start_deferred(store: TaskStore, claim: Claim, task: DeferredTask) -> Outcome:
    """
    Hand a task over to whoever does the work: ``start(ref)``, then no lease any more.

    A ``start`` that raises fails the task with a neutral text. It is called once, whatever becomes of the database.
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
        return insist(lambda: store.fail_task(ref, START_FAILED, leg=leg, kind="start_failed"))
    insist(lambda: store.hand_over(ref, leg))  # not applied: the job was quicker
    return Outcome(True)


def insist(operation: Callable[[], T]) -> T:
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
