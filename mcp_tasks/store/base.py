"""
The interface of a task store.

Server code names a task by ``ref``; only ``create_task`` and ``resolve`` know the client's id. Methods are
synchronous; those of server code have an ``a…`` twin that runs the whole method on a thread. Writing methods of a
leg take its number and are fenced by it; without it the guard is "live and not expired" and the first outcome wins.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from uuid import UUID

from ..protocol.codec import Json
from ..protocol.errors import McpError
from ..tools.steps import RecordedStep
from . import waiting
from .twins import twin, waiting_twin
from .types import (
    DEFAULT_TTL,
    NO_LIMITS,
    AppliedResponses,
    Claim,
    CreatedTask,
    Expired,
    Missing,
    Outcome,
    Owner,
    Present,
    Requests,
    ResumeContext,
    RunningLimit,
    SweepReport,
    TaskSnapshot,
    TaskView,
    TtlMs,
    Unsupported,
)
from .verbs import OperatorVerbs

#: Called with key, question and answer of an outstanding key; raises InvalidAnswer to refuse the whole request.
AnswerCheck = Callable[[str, dict[str, Json], Json], None]


class TaskStore(OperatorVerbs, ABC):
    """
    What every store promises.

    Terminal states are immutable, and a late transition is answered "not applied", never an exception. An
    expired task reads as absent whether or not it was reclaimed. The ttl runs from creation. A terminal state
    clears the open questions.
    """

    # -- creation ---------------------------------------------------------------------------------------------

    @abstractmethod
    def create_task(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        owner: Owner | None = None,
        ttl_ms: TtlMs = DEFAULT_TTL,
        idempotency_key: str | None = None,
        method: str = "tools/call",
        poll_interval_ms: int | None = None,
        max_attempts: int = 1,
        priority: int = 0,
        context: dict[str, Json] | None = None,
        trace_context: str | None = None,
        status_message: str | None = None,
        meta: dict[str, Json] | None = None,
        deferred: bool = False,
        durable: bool = True,
    ) -> CreatedTask:
        """
        Store a task and queue its first leg; durable before it returns.

        ``ttl_ms`` is in milliseconds from now; None only where ``MAX_TTL_MS`` is None. ``idempotency_key``: the
        same owner gets the same task again; ignored without an owner. ``deferred``: somebody else will do the
        work; the row is running under a short lease that ``hand_over`` ends. ``durable=False`` lets an outer
        transaction of the caller commit the task together with its own rows.

        Raises TaskLimitReached, IdempotencyConflict, RetentionLimitExceeded; ValueError for a wrong ttl.
        """

    @abstractmethod
    def discard_task(self, ref: UUID) -> bool:
        """Remove a task that never started; False when it has, or is gone."""

    @abstractmethod
    def hand_over(self, ref: UUID, leg: int) -> Outcome:
        """End the lease of a leg whose work somebody else does now; the row stays running."""

    # -- reading ----------------------------------------------------------------------------------------------

    @abstractmethod
    def resolve(self, task_id: str, owner: Owner | None, *, payload: bool = False) -> Present | Expired | Missing:
        """What a client's id is to this owner: one atomic read. ``payload`` adds the whole snapshot."""

    @abstractmethod
    def task_presence(self, ref: UUID) -> Present | Expired | Missing:
        """The same by ref, for server code; not owner-scoped."""

    @abstractmethod
    def get_task_result(self, ref: UUID) -> TaskSnapshot | None:
        """One consistent snapshot: task, result, error; None when unknown or expired."""

    def task_owner(self, ref: UUID) -> tuple[bool, str | None]:
        """Whether the task is known, and its owner's key (None for anonymous)."""
        presence = self.task_presence(ref)
        return (False, None) if isinstance(presence, Missing) else (True, presence.owner_key)

    def get_task(self, ref: UUID) -> TaskView | None:
        """The task without its payloads; None when unknown or expired."""
        snapshot = self.get_task_result(ref)
        return None if snapshot is None else snapshot.task

    # Many at once, for who watches many. A store that can do better than one by one overrides these.

    def owned_refs(self, task_ids: Sequence[str], owner: Owner | None) -> dict[str, UUID]:
        """Those of a client's ids that name present tasks of this owner, with their refs, in the client's order."""
        found = {task_id: self.resolve(task_id, owner) for task_id in task_ids}
        return {task_id: present.ref for task_id, present in found.items() if isinstance(present, Present)}

    def snapshots(self, refs: Collection[UUID]) -> dict[UUID, TaskSnapshot]:
        """The snapshots of the present ones among these tasks; each is consistent in itself."""
        found = {ref: self.get_task_result(ref) for ref in refs}
        return {ref: snapshot for ref, snapshot in found.items() if snapshot is not None}

    def revisions(self, refs: Collection[UUID]) -> dict[UUID, int]:
        """The revisions of the present ones among these tasks."""
        found = {ref: self.get_task(ref) for ref in refs}
        return {ref: task.revision for ref, task in found.items() if task is not None}

    @abstractmethod
    def list_tasks(self, *, status: str | None = None) -> Iterator[TaskView]:
        """Every present task, in batches. For operators and server code, never reachable by a client."""

    def wait_for_completion(self, ref: UUID, timeout: float | None = None) -> TaskSnapshot | None:
        """
        Block until the task is terminal and return its snapshot; at once if it already is.

        None when it is unknown, or expires meanwhile. TimeoutError after ``timeout`` seconds. Holds no
        database connection while it sleeps.
        """
        return waiting.wait(self, ref, timeout)

    def before_sleep(self) -> None:
        """Let go of what a sleeping thread must not hold."""

    # -- questions --------------------------------------------------------------------------------------------

    @abstractmethod
    def require_input(
        self,
        ref: UUID,
        requests: Requests,
        message: str | None = None,
        *,
        leg: int | None = None,
        live: bool = False,
        deadlines: Mapping[str, float] | None = None,
    ) -> Outcome:
        """
        Replace the whole outstanding set by these questions, atomically.

        With ``leg`` the task is parked and the leg is over; ``live`` keeps it running. A dropped key is
        superseded, an equal outstanding one is carried forward. ``deadlines``: seconds from now by key, after
        which the janitor answers "cancel". Raises InvalidTransition naming a spent key or an empty map,
        RetentionLimitExceeded beyond the limits; then nothing was written.
        """

    @abstractmethod
    def outstanding_input_requests(self, ref: UUID) -> Requests | None:
        """The open questions; empty when none; None when unknown or expired."""

    @abstractmethod
    def apply_input_responses(
        self, ref: UUID, responses: Mapping[str, Json], check: AnswerCheck | None = None
    ) -> AppliedResponses | None:
        """
        Store answers to outstanding keys; the last one queues the next leg. Other keys are ignored.

        ``check`` sees only outstanding keys, before anything is written; what it raises leaves nothing
        stored. None when the task is unknown, expired or terminal.
        """

    @abstractmethod
    def input_responses(self, ref: UUID) -> dict[str, Json]:
        """Every answer so far, over all rounds."""

    @abstractmethod
    def resume_context(self, ref: UUID, leg: int | None = None) -> ResumeContext | None:
        """What a leg works with; None when the fence refuses it, or without ``leg`` when the task is not live."""

    @abstractmethod
    def recorded_steps(self, ref: UUID) -> dict[str, RecordedStep]:
        """Every step that legs of the task have recorded, by name; empty when unknown or expired."""

    @abstractmethod
    def record_step(self, ref: UUID, leg: int, name: str, args_hash: str, result: Json) -> Outcome:
        """
        Record what a step of a leg returned; "unchanged" for one that was recorded before, whatever it returned.

        Raises InvalidTransition for a malformed name or other arguments, RetentionLimitExceeded.
        """

    # -- transitions ------------------------------------------------------------------------------------------

    @abstractmethod
    def set_status(
        self,
        ref: UUID,
        message: str | None,
        *,
        done: float | None = None,
        total: float | None = None,
        leg: int | None = None,
    ) -> Outcome:
        """Progress text and numbers of a live task; can never reach a terminal status."""

    @abstractmethod
    def set_task_meta(self, ref: UUID, meta: dict[str, Json], *, leg: int | None = None) -> Outcome:
        """Protocol ``_meta`` shown in every view of a live task."""

    @abstractmethod
    def set_ttl(self, ref: UUID, ttl_ms: int | None, *, leg: int | None = None) -> bool:
        """Another ttl, measured from creation; one below the task's age expires it at once. False when absent."""

    @abstractmethod
    def complete_task(
        self,
        ref: UUID,
        result: dict[str, Json],
        *,
        leg: int | None = None,
        status_message: str | None = None,
        durable: bool = True,
    ) -> Outcome:
        """
        Store the result, unless an outcome came first or the leg was fenced out; ``isError: true`` completes too.

        Too large a result raises RetentionLimitExceeded *after* the task was settled as a content-free failure.
        """

    @abstractmethod
    def fail_task(
        self,
        ref: UUID,
        error: McpError,
        *,
        leg: int | None = None,
        status_message: str | None = None,
        traceback: str | None = None,
        durable: bool = True,
        kind: str = "failed",
    ) -> Outcome:
        """Store a JSON-RPC error whole: code, message and data. ``traceback`` is for operators, never on the wire."""

    @abstractmethod
    def cancel_task(self, ref: UUID, reason: str | None = None, *, actor: str = "server") -> TaskView | None:
        """Settle ``cancelled`` unless terminal, and raise the token in any case; None when unknown or expired."""

    # -- legs -------------------------------------------------------------------------------------------------

    @abstractmethod
    def claim(
        self,
        ref: UUID | None = None,
        *,
        tools: tuple[str, ...] | None = None,
        limits: Mapping[str, RunningLimit] = NO_LIMITS,
        oldest_first: bool = False,
        holder: str = "",
    ) -> Claim | None:
        """
        Hand out the next leg of a queued task (of one task by ``ref``); None when there is nothing to do.

        The oldest of the highest priority, or with ``oldest_first`` of all. ``limits`` by tool are held exactly among
        callers that pass the same; a tool without room is passed over.
        """

    @abstractmethod
    def heartbeat(self, ref: UUID, leg: int) -> Outcome:
        """Renew the lease of a leg. Not applied: the reason says why the leg must stop."""

    @abstractmethod
    def end_leg(self, ref: UUID, leg: int) -> Outcome:
        """End a leg that asked while running: parked, or queued again when it was answered meanwhile."""

    @abstractmethod
    def release(self, ref: UUID, leg: int, *, unstarted_seconds: float | None = None) -> Outcome:
        """
        Give a leg back uncounted, because its process stops; only for tasks that may be re-run.

        ``unstarted_seconds``: its handler was never called, so that any task may be given back; nobody claims it for
        so long.
        """

    @abstractmethod
    def retry(self, ref: UUID, leg: int, *, after_seconds: float, why: str | None = None) -> Outcome:
        """Queue a leg again after a transient error, unless its attempts are used up. ``why``: for the timeline."""

    @abstractmethod
    def let_go(self, ref: UUID, leg: int) -> Outcome:
        """Note that the handler has ended after an outcome came from elsewhere."""

    # -- janitor ----------------------------------------------------------------------------------------------

    @abstractmethod
    def recover(self) -> SweepReport:
        """Take back legs whose lease lapsed: parked, queued again, or failed when the attempts are used up."""

    @abstractmethod
    def redeliver(self) -> SweepReport:
        """Ring the doorbell again for tasks that have been queued for long."""

    @abstractmethod
    def answer_overdue(self) -> SweepReport:
        """Answer "cancel" to questions whose deadline is over."""

    @abstractmethod
    def expire(self) -> SweepReport:
        """Turn tasks past their ttl into tombstones without payload."""

    @abstractmethod
    def purge(self) -> SweepReport:
        """Delete tombstones and finished tasks whose retention is over."""

    def roll_up(self) -> SweepReport:
        """Count the hours that are over; a store that keeps no counts does nothing."""
        return SweepReport()

    def tidy(self) -> SweepReport:
        """Remove counts and processes that nobody asks for any more."""
        return SweepReport()

    def stamp(self, report: SweepReport) -> None:
        """Note that the janitor ran, so that operators see when it did last."""

    def note_process(
        self, name: str, kind: str, *, slots: int, busy: int, tools: str, only: Sequence[str] | None = None
    ) -> None:
        """Note that a process that runs legs is alive, and what it knows; ``only``: it takes tasks of these tools."""

    def is_outdated(self, name: str, tools: str) -> bool:
        """Whether a process that began later than this one lives, and knows other tools: a deployment is under way."""
        return False

    def forget_process(self, name: str) -> None:
        """Note that a process has ended in good order."""

    def outlook(self) -> SweepReport:
        """What one pass of the janitor would do now; nothing is written."""
        raise Unsupported("this store cannot tell what is due")

    def cleanup_expired(self) -> SweepReport:
        """Reclaim; only an optimisation, since reads treat expired as absent before it."""
        report = self.expire()
        report.add(self.purge())
        return report

    await_for_completion = waiting_twin(wait_for_completion)
    acreate_task = twin(create_task)
    adiscard_task = twin(discard_task)
    aresolve = twin(resolve)
    atask_presence = twin(task_presence)
    atask_owner = twin(task_owner)
    aget_task = twin(get_task)
    aget_task_result = twin(get_task_result)
    arequire_input = twin(require_input)
    aoutstanding_input_requests = twin(outstanding_input_requests)
    aapply_input_responses = twin(apply_input_responses)
    ainput_responses = twin(input_responses)
    aresume_context = twin(resume_context)
    aset_status = twin(set_status)
    aset_task_meta = twin(set_task_meta)
    aset_ttl = twin(set_ttl)
    acomplete_task = twin(complete_task)
    afail_task = twin(fail_task)
    acancel_task = twin(cancel_task)
    acleanup_expired = twin(cleanup_expired)
