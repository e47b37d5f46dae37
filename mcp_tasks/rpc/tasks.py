"""``tasks/get``, ``tasks/update``, ``tasks/cancel``: each owner-scoped; a foreign task is exactly a missing one."""

from functools import partial

from .. import observing
from ..protocol.codec import Json
from ..protocol.errors import McpError, invalid_params
from ..protocol.inputs import InvalidAnswer, check_answer
from ..protocol.tasks import responses_of, task_id_of
from ..store import get_store
from ..store.snapshots import to_wire
from ..store.types import AppliedResponses, Expired, Missing, Present, RetentionLimitExceeded
from ..tools.registry import registry
from .methods import ours
from .requests import Reply, Request, complete, result, server_meta

CANCELLED_BY_CLIENT = "Cancelled at the client's request"


def _absent(found: Expired | Missing) -> McpError:
    return invalid_params("Task has expired" if isinstance(found, Expired) else "Task not found")


def answer(found: Present, responses: dict[str, Json]) -> AppliedResponses | None:
    """
    Store the answers of a task's owner, as every way in does; None where the task takes none any more.

    Keys that are not outstanding are ignored. Raises InvalidAnswer or RetentionLimitExceeded where an outstanding
    one has a wrong answer: nothing is stored then, and all questions stay open.
    """
    tool = registry.get(found.tool)
    check = partial(check_answer, strict=tool is None or tool.strict_answers)
    return get_store().apply_input_responses(found.ref, responses, check)


def _present(task_id: str, request: Request, *, payload: bool = False) -> Present:
    found = get_store().resolve(task_id, request.caller.owner, payload=payload)
    if not isinstance(found, Present):
        raise _absent(found)
    return found


@ours("tasks/get")
def get(request: Request) -> Reply:
    """The whole state in one consistent read; stored payloads are spliced in unparsed."""
    task_id = task_id_of(request.params)
    found = _present(task_id, request, payload=True)
    assert found.snapshot is not None
    observing.happened("poll", ref=found.ref, interval_ms=found.snapshot.task.poll_interval_ms)
    return result(request, to_wire(found.snapshot).detailed(task_id, server_meta()))


@ours("tasks/update")
def update(request: Request) -> Reply:
    """The acknowledgement is sent after the commit: the next poll shows the answers."""
    task_id, responses = task_id_of(request.params), responses_of(request.params)
    found = _present(task_id, request)
    try:
        applied = answer(found, responses)
    except (InvalidAnswer, RetentionLimitExceeded) as problem:
        raise invalid_params(str(problem)) from None
    if applied is None:
        _present(task_id, request)  # terminal is acknowledged; expired meanwhile is not
    return complete(request, {})


@ours("tasks/cancel")
def cancel(request: Request) -> Reply:
    """Settle at once, whoever works on it; a finished task gets the same acknowledgement and does not change."""
    task_id = task_id_of(request.params)
    found = _present(task_id, request)
    if get_store().cancel_task(found.ref, CANCELLED_BY_CLIENT, actor="client") is None:
        raise _absent(get_store().resolve(task_id, request.caller.owner))  # type: ignore[arg-type]
    return complete(request, {})
