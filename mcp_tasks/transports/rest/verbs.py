"""
What operators do to one task.

A repeat of what was done already is 200, so that a request whose answer was lost may be sent again. With ``revision``
it is recognised by the timeline: the same operator did the same to the task as it was then.
"""

from datetime import timedelta
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from ...access.throttles import WRITE_SCOPE
from ...lifecycle import DONE, PARKED, QUEUED
from ...models import Task, TaskEvent
from ...operators import audit
from ...operators.acting import Order, WrongRequest, act, actor_of
from ...operators.policy import VERBS, Verb, refusal
from ...operators.states import EXPIRED_STATE, state_of
from ...protocol.tasks import CANCELLED, FAILED
from ...store.locking import database
from . import bodies
from .base import OPERATOR, Operation, Parameter
from .fields import Strict
from .operator import REFUSALS, OperatorView, task_of
from .problems import ALREADY_FINISHED, NOT_APPLICABLE, PERMISSION_DENIED, REVISION_CONFLICT, Problem, invalid, no_task
from .serializers import TaskDetail
from .shapes import PATHS
from .tasks import TaskDetailView, detail_of

#: How the timeline calls what a verb does.
KINDS = {"cancel": "cancelled", "fail": "failed", "extend": "ttl", "requeue": "requeued", "dismiss": "dismissed"}


class VerbView(OperatorView):
    """``operator/tasks/{ref}/VERB/``."""

    verb: str

    def post(self, request: Request, ref: str) -> Response:
        verb, task = VERBS[self.verb], task_of(request, ref)
        order = _order(verb, self.operations["POST"].body, request.data)
        if do(request, task, verb, order):
            audit.enter(request.user, [task], verb, order.reason)
        return Response(detail_of(request, task_of(request, ref)))


def do(request: Request, task: Any, verb: Verb, order: Order) -> bool:
    """
    Do it; False when it was done already.

    Raises the problem that says why not: looked for before, and again where the task changed in between.
    """
    is_kept = refusal(request._request, verb, task) is not None
    problem = None if is_kept else _problem(request, task, verb, order)
    if problem is None:
        try:
            outcome = act(request._request, task, order)
        except PermissionError as refused:
            raise Problem(PERMISSION_DENIED, str(refused)) from None
        except WrongRequest as wrong:
            raise invalid(wrong.field, str(wrong)) from None
        if outcome:
            return True
        problem = _problem(request, task_of(request, str(task.pk)), verb, order) or _lost(outcome.why)
    if problem is _DONE:
        return False
    raise problem


#: Not raised: what was ordered is so already.
_DONE = Problem("invalid", "")


def _problem(request: Request, task: Any, verb: Verb, order: Order) -> Problem | None:
    """Why the order does not fit the task as it is; None when it does."""
    if state_of(task, task.now) is EXPIRED_STATE:
        return no_task()
    if _is_so_already(task, verb, order) or _was_done(request, task, verb, order):
        return _DONE
    if task.phase == DONE and verb.name != "delete":
        detail = "The task is finished and can no longer change: its client may have read the outcome."
        return Problem(ALREADY_FINISHED, detail, task_status=task.status)
    if order.revision is not None and order.revision != task.revision:
        detail = "The task has changed since it was looked at. Nothing was done."
        return Problem(REVISION_CONFLICT, detail, revision=task.revision)
    if not verb.applies(task, task.now):
        detail = f"This is not possible while the task is {state_of(task, task.now).name}."
        return Problem(NOT_APPLICABLE, detail, state=state_of(task, task.now).name)
    return None


def _lost(why: str) -> Problem:
    """The task looks as if it could be done, and yet it could not: it is changing right now."""
    code = REVISION_CONFLICT if why == "changed" else NOT_APPLICABLE
    return Problem(code, "The task was changing at that moment. Nothing was done; look again.")


def _is_so_already(task: Task, verb: Verb, order: Order) -> bool:
    match verb.name:
        case "cancel":
            return task.phase == DONE and task.status == CANCELLED
        case "fail":
            return task.phase == DONE and task.status == FAILED
        case "requeue":
            return task.phase == QUEUED
        case "extend":
            least = timedelta(milliseconds=1)
            return bool(task.phase != DONE and task.expires_at and abs(task.expires_at - order.expires_at) < least)  # type: ignore[operator]
        case "dismiss":
            return bool(task.phase != PARKED and _events(task, verb).exists())
    return False


def _was_done(request: Request, task: Task, verb: Verb, order: Order) -> bool:
    if order.revision is None or order.revision > task.revision or verb.name not in KINDS:
        return False
    mine = _events(task, verb).filter(actor=actor_of(request.user))
    return bool(mine.filter(revision__in=(order.revision, order.revision + 1)).exists())


def _events(task: Task, verb: Verb) -> Any:
    return TaskEvent.objects.using(database()).filter(task_id=task.pk, kind=KINDS[verb.name])


def _order(verb: Verb, body: Any, data: Any) -> Order:
    read: Strict = body(data=data)
    read.is_valid(raise_exception=True)
    return Order(verb=verb.name, **read.validated_data)


def _view(name: str, body: type[Strict], summary: str) -> type[VerbView]:
    operation = Operation(
        id=f"operator_tasks_{PATHS[name].replace('-', '_')}",
        tag=OPERATOR,
        scope=WRITE_SCOPE,
        summary=summary,
        answer=TaskDetail,
        body=body,
        problems=(404, 409, *REFUSALS),
    )
    members = {"verb": name, "permission": VERBS[name].permission, "operations": {"POST": operation}}
    return type(f"{name.title()}View", (VerbView,), members)


#: One view for each verb, by its name in addresses.
VIEWS: dict[str, type[VerbView]] = {
    PATHS[name]: _view(name, body, summary)
    for name, body, summary in (
        ("cancel", bodies.SettlingOrder, "Cancel a task and tell its worker to stop"),
        ("fail", bodies.SettlingOrder, "Mark a task that is stuck as failed"),
        ("extend", bodies.ExtendingOrder, "Keep a task longer"),
        ("requeue", bodies.Order, "Queue a stalled task again, for one more try"),
        ("dismiss", bodies.Order, "Tell the tool that its questions to a human were cancelled"),
    )
}


class TaskView(TaskDetailView):
    """``operator/tasks/{ref}/`` with deletion, which needs its own permission."""

    operations = {
        **TaskDetailView.operations,
        "DELETE": Operation(
            id="operator_tasks_destroy",
            tag=OPERATOR,
            scope=WRITE_SCOPE,
            summary="Remove a finished task before its time",
            answer=None,
            status=204,
            query=(
                Parameter(
                    "reason", "Why: 3 to 500 characters. It is in the address, so servers may log it.", required=True
                ),
                Parameter("revision", "The revision that was looked at.", kind=int),
            ),
            problems=(404, 409, *REFUSALS),
        ),
    }

    @property
    def permission(self) -> str:  # type: ignore[override]
        return VERBS["delete"].permission if self.request.method == "DELETE" else "view_task"

    def delete(self, request: Request, ref: str) -> Response:
        verb, task = VERBS["delete"], task_of(request, ref)
        order = _order(verb, bodies.DeletionOrder, request.query_params.dict())
        do(request, task, verb, order)
        audit.enter(request.user, [task], verb, order.reason)
        return Response(status=204)
