"""
The worker API: code of the host project drives a task by its ``ref``, from anywhere with Django.

For a task that a ``DeferredTask`` handed over, an own Celery task, a cron job. Nothing here is owner-scoped, and
nothing is fenced: the guard is "live and not expired", and the first outcome wins.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async

from .protocol.codec import Json
from .protocol.errors import McpError
from .protocol.inputs import InvalidInputRequest, check_requests
from .store import get_store
from .store.types import InvalidTransition, Outcome, TaskSnapshot
from .tools.registry import registry
from .tools.results import ToolError, error_result, to_result


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task as server code sees it: the snapshot, and every answer so far by key."""

    snapshot: TaskSnapshot
    answers: dict[str, Json]

    @property
    def status(self) -> str:
        return self.snapshot.task.status


def status(ref: UUID) -> TaskStatus | None:
    """The whole task with its answers; None when it is unknown or expired."""
    snapshot = get_store().get_task_result(ref)
    return None if snapshot is None else TaskStatus(snapshot, get_store().input_responses(ref))


def cancelled(ref: UUID) -> bool:
    """Whether the task was cancelled; False when it is unknown."""
    task = get_store().get_task(ref)
    return task is not None and task.cancel_requested_at is not None


def progress(
    ref: UUID, message: str | None = None, *, done: float | None = None, total: float | None = None
) -> Outcome:
    """Tell how far the work is."""
    return get_store().set_status(ref, message, done=done, total=total)


def complete(ref: UUID, result: Any, *, status_message: str | None = None) -> Outcome:
    """
    Settle with a result: whatever a tool may return, as text, object, content blocks or CallToolResult; a ToolError
    becomes a result with ``isError``, for what the model should read and correct.

    False when an outcome came first. Raises RetentionLimitExceeded after the task was failed for its size.
    """
    task = get_store().get_task(ref)
    if task is None:
        return Outcome(False, "gone")
    tool = registry.get(task.tool)
    if tool is None:
        return fail(ref, f"The tool {task.tool} is no longer available")
    made = error_result(str(result)) if isinstance(result, ToolError) else to_result(result, tool)
    return get_store().complete_task(ref, made, status_message=status_message)


def fail(ref: UUID, error: McpError | str, *, status_message: str | None = None) -> Outcome:
    """
    Settle with a JSON-RPC error, kept whole; a text becomes -32603.

    For a failure that the model should read and correct: ``complete(ref, ToolError("…"))``.
    """
    if isinstance(error, str):
        error = McpError(-32603, error)
    return get_store().fail_task(ref, error, status_message=status_message)


def require_input(ref: UUID, requests: dict[str, Json], *, status_message: str | None = None) -> Outcome:
    """
    Ask the client: replaces the whole outstanding set.

    Raises InvalidTransition for an empty map, a malformed question, or a spent key, naming it; then nothing
    has changed.
    """
    try:
        checked = check_requests(requests)
    except InvalidInputRequest as problem:
        raise InvalidTransition(str(problem)) from None
    return get_store().require_input(ref, checked, status_message)


def set_ttl(ref: UUID, ttl_ms: int | None) -> bool:
    """Another time to live in milliseconds from creation, at most ``MAX_TTL_MS``; False when the task is gone."""
    return get_store().set_ttl(ref, ttl_ms)


def wait(ref: UUID, timeout: float | None = None) -> TaskSnapshot | None:
    """Block until the task is terminal; None when it is gone. Raises TimeoutError after ``timeout`` seconds."""
    return get_store().wait_for_completion(ref, timeout)


async def await_completion(ref: UUID, timeout: float | None = None) -> TaskSnapshot | None:
    """``wait`` in a coroutine, without a thread."""
    return await get_store().await_for_completion(ref, timeout)


astatus = sync_to_async(status)
acancelled = sync_to_async(cancelled)
aprogress = sync_to_async(progress)
acomplete = sync_to_async(complete)
afail = sync_to_async(fail)
arequire_input = sync_to_async(require_input)
aset_ttl = sync_to_async(set_ttl)

__all__ = [
    "TaskStatus",
    "acancelled",
    "acomplete",
    "afail",
    "aprogress",
    "arequire_input",
    "aset_ttl",
    "astatus",
    "await_completion",
    "cancelled",
    "complete",
    "fail",
    "progress",
    "require_input",
    "set_ttl",
    "status",
    "wait",
]
