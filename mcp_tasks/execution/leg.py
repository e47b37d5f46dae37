"""One leg from claim to end: restore its context, call the handler, settle, park or let go."""

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from django.contrib.auth import get_user_model

from .. import observing
from ..connections import sessions_of_its_own
from ..protocol.codec import Json
from ..protocol.errors import McpError, internal_error
from ..store.base import TaskStore
from ..store.processes import own_name, tools_hash
from ..store.types import Claim, ResumeContext
from ..tools.cancellation import LEASE_LOST, SHUTDOWN
from ..tools.context import Abilities, OwnerIdentity, RecordedAnswer, TaskContext
from ..tools.definition import Tool
from ..tools.registry import registry
from ..tools.schemas import InvalidArguments
from .calling import Asked, Ending, Failed, Finished, Stopped, Transient, call, try_call
from .heartbeat import heartbeat
from .overdue import timed_out
from .running import RunningLeg
from .settling import LEASE_LOST_END, REFUSED, RELEASED, SETTLED, insist, settle
from .steps import LegSteps
from .threads import process_is_ending

logger = logging.getLogger("mcp_tasks.runner")

#: How long nobody takes a task whose tool a process did not know: the newer process looks meanwhile.
GIVEN_BACK_SECONDS = 1.0


class Watcher(Protocol):
    """What keeps a leg alive and writes its progress: the heartbeat, or a test's own thread."""

    def watch(self, store: TaskStore, leg: RunningLeg) -> None: ...

    def forget(self, leg: RunningLeg) -> None: ...

    def report(self, leg: RunningLeg, message: str | None, done: float | None, total: float | None) -> None: ...

    def flush(self, store: TaskStore, leg: RunningLeg) -> None: ...


def run_leg(
    store: TaskStore, claim: Claim, watcher: Watcher = heartbeat, *, abandon: Callable[[], None] | None = None
) -> None:
    """
    Run a claimed leg to its end. Whatever it writes is fenced; what came too late is dropped with one log line.

    ``abandon`` is called, on another thread, when the handler does not stop though it was told to: nobody needs to
    wait any more, though this call has not returned.
    """
    facts = {"ref": claim.ref, "tool": claim.tool, "leg": claim.leg, "tries": claim.attempts}
    with observing.begin("leg", **facts, end=LEASE_LOST_END) as seen:
        seen.note(end=_run(store, claim, watcher, abandon))
        trace_id = observing.trace_id()
    if logger.isEnabledFor(logging.DEBUG):
        fields = {"ref": str(claim.ref), "tool": claim.tool, "leg": claim.leg, "attempts": claim.attempts}
        ended = {"code": seen.facts["end"], "duration_ms": round(seen.facts["seconds"] * 1000), "trace_id": trace_id}
        logger.debug("a leg ended", extra={"event": "leg_ended", **fields, **ended})


def _run(store: TaskStore, claim: Claim, watcher: Watcher, abandon: Callable[[], None] | None) -> str:
    """Returns how it ended, in one of the words above."""
    claimed_at = time.monotonic()
    # Its lease is worth the patience: of a tool with one try the task would fail though nothing was called.
    resume = insist(lambda: store.resume_context(claim.ref, claim.leg))
    if resume is None:
        store.let_go(claim.ref, claim.leg)  # cancelled or expired between the claim and here
        return REFUSED
    tool = registry.get(claim.tool)
    if tool is None or tool.problems:
        return _turn_away(store, claim)
    timeout_seconds = tool.legs.timeout_seconds
    leg = RunningLeg(
        claim.ref,
        claim.leg,
        resume.token.child(),
        claimed_at=claimed_at,
        timeout_seconds=timeout_seconds,
        abandon=abandon,
    )
    try:
        watcher.watch(store, leg)
        ending = _call(store, tool, resume, leg, watcher)
        leg.has_returned = True
        if leg.is_overdue and timeout_seconds is not None and _is_no_result(ending):
            ending = Failed(timed_out(timeout_seconds))
        if isinstance(ending, Asked):
            watcher.flush(store, leg)
        if _abandoned(store, claim, leg, ending):
            return RELEASED if leg.token.reason == SHUTDOWN and claim.max_attempts > 1 else LEASE_LOST_END
        return insist(lambda: settle(store, claim, leg, ending))
    finally:
        watcher.forget(leg)


def _turn_away(store: TaskStore, claim: Claim) -> str:
    """A tool that is not known here: the old process of a deployment leaves it to a newer one, any other fails it."""
    if store.is_outdated(own_name(), tools_hash([tool.name for tool in registry])):
        insist(lambda: store.release(claim.ref, claim.leg, unstarted_seconds=GIVEN_BACK_SECONDS))
        return RELEASED
    failed = insist(lambda: store.fail_task(claim.ref, _unavailable(claim.tool), leg=claim.leg))
    return SETTLED if failed else REFUSED


def _unavailable(name: str) -> McpError:
    return internal_error(f"The tool {name} is no longer available")


def _is_no_result(ending: Ending | Transient) -> bool:
    return isinstance(ending, (Stopped, Failed, Transient)) or (isinstance(ending, Finished) and ending.raised)


def _call(store: TaskStore, tool: Tool, resume: ResumeContext, leg: RunningLeg, watcher: Watcher) -> Ending | Transient:
    try:
        values = tool.convert(resume.arguments)
    except InvalidArguments as problem:
        return Failed(internal_error(f"The tool no longer takes these arguments: {problem}"))
    run = try_call if resume.attempts < resume.max_attempts else call
    context = _context(store, tool, resume, leg, watcher)
    with sessions_of_its_own():
        return run(tool, context, values, locale=resume.context.get("locale"))


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
            steps=LegSteps(store, resume.ref, resume.leg, leg.token, insist),
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


def _abandoned(store: TaskStore, claim: Claim, leg: RunningLeg, ending: Ending | Transient) -> bool:
    """
    Whether this leg has no outcome, because its process stops.

    What a handler does after it was told of the stop, or that its lease may be lost, is no result of its work.
    Where it may be run again, it is given back at once; the rest is left to its lease.
    """
    if process_is_ending() and _is_no_result(ending):
        return True
    if (
        leg.is_overdue
        or leg.token.reason not in (SHUTDOWN, LEASE_LOST)
        or not leg.token.observed
        or isinstance(ending, Asked)
    ):
        return False
    if leg.token.reason == SHUTDOWN and claim.max_attempts > 1:
        released = insist(lambda: store.release(claim.ref, claim.leg))
        if not released:
            store.let_go(claim.ref, claim.leg)  # the client cancelled meanwhile
    logger.info("a leg stopped before its end", extra={"event": "leg_stopped", "ref": str(claim.ref)})
    return True
