"""Payloads and tracebacks, each behind a permission of its own: exact text, but for what is masked."""

from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from ...access.throttles import READ_SCOPE
from ...models import Task, TaskInput
from ...operators import audit
from ...operators.acting import actor_of
from ...operators.display import NotJson
from ...operators.masking import Path
from ...operators.policy import may_see
from ...operators.secrecy import NOWHERE, Masking, answer_paths
from ...operators.states import EXPIRED_STATE, state_of
from ...protocol.codec import dumps
from ...protocol.tasks import timestamp
from ...store.locking import database
from .base import OPERATOR, Operation, Parameter, json_text
from .operator import REFUSALS, OperatorView, task_of
from .problems import INVALID_FILTER, NOT_FOUND, Problem, invalid
from .serializers import TracebackShape, rendered

UNMASKED = Parameter("unmasked", "Nothing is masked; needs a permission of its own, and is logged.", choices=("1",))


class PayloadView(OperatorView):
    """``operator/tasks/{ref}/payload/…/``."""

    permission = "view_task_payload"
    what: str

    def get(self, request: Request, ref: str) -> HttpResponse:
        given = request.query_params.get("unmasked")
        if given not in (None, "1"):
            raise invalid("unmasked", "This must be 1, or left out.", code=INVALID_FILTER)
        if given is not None and not may_see(request.user, "secrets"):
            raise PermissionDenied
        column = f"{self.what}_json"
        task = task_of(request, ref, *([] if self.what == "inputs" else [column]))
        parts = None if state_of(task, task.now) is EXPIRED_STATE else self.parts(request, task, given is not None)
        try:
            text = None if parts is None else "".join(parts)
        except NotJson:
            raise Problem("internal_error", "What is stored is not JSON, so nothing of it can be shown.") from None
        if text is None:
            raise Problem(NOT_FOUND, "The task has no such payload, or no longer.")
        audit.note_download(
            task.pk,
            what=self.what,
            is_unmasked=given is not None,
            actor=actor_of(request.user),
            user=request.user,
        )
        return json_text(text, headers={"Content-Disposition": "attachment"})

    def parts(self, request: Request, task: Task, is_unmasked: bool) -> Iterator[str] | None:
        """The text in pieces; None where there is none."""
        text = getattr(task, f"{self.what}_json")
        return None if text is None else _shown(text, None if is_unmasked else Masking(request._request, task))


class InputsView(PayloadView):
    """``operator/tasks/{ref}/payload/inputs/``: every question ever asked, and its answer."""

    what = "inputs"

    def parts(self, request: Request, task: Task, is_unmasked: bool) -> Iterator[str] | None:
        found = list(TaskInput.objects.using(database()).filter(task_id=task.pk).order_by("id"))
        return _questions(found, None if is_unmasked else Masking(request._request, task)) if found else None


def _shown(text: str, masking: Masking | None, paths: frozenset[Path] = NOWHERE) -> Iterator[str]:
    if masking is None:
        return iter([text])
    return masking.chunks(text, paths)


def _questions(found: list[TaskInput], masking: Masking | None) -> Iterator[str]:
    yield "{"
    for index, row in enumerate(found):
        answered = "null" if row.answered_at is None else f'"{timestamp(row.answered_at)}"'
        yield "," if index else ""
        yield f'{dumps(row.key)}:{{"state":"{row.state}","askedAt":"{timestamp(row.asked_at)}","answeredAt":{answered}'
        yield ',"request":'
        yield from _shown(row.request_json, masking)
        if row.answer_json is not None:
            yield ',"answer":'
            yield from _shown(row.answer_json, masking, answer_paths(row))
        yield "}"
    yield "}"


def _view(what: str, base: type[PayloadView] = PayloadView) -> type[PayloadView]:
    operation = Operation(
        id=f"operator_tasks_payload_{what}",
        tag=OPERATOR,
        scope=READ_SCOPE,
        summary=f"The {what} of a task, masked",
        answer=dict,
        query=(UNMASKED,),
        problems=(404, *REFUSALS),
    )
    return type(f"{what.title()}PayloadView", (base,), {"what": what, "operations": {"GET": operation}})


#: One view for each payload.
PAYLOADS: dict[str, type[PayloadView]] = {
    **{what: _view(what) for what in ("arguments", "result", "error")},
    "inputs": _view("inputs", InputsView),
}


class TracebackView(OperatorView):
    """``operator/tasks/{ref}/traceback/``."""

    permission = "view_task_traceback"
    operations = {
        "GET": Operation(
            id="operator_tasks_traceback",
            tag=OPERATOR,
            scope=READ_SCOPE,
            summary="The traceback of a task that failed",
            answer=TracebackShape,
            problems=(404, *REFUSALS),
        )
    }

    def get(self, request: Request, ref: str) -> Response:
        task: Any = task_of(request, ref, "traceback")
        if not task.traceback or state_of(task, task.now) is EXPIRED_STATE:
            raise Problem(NOT_FOUND, "The task has no traceback, or no longer.")
        return Response(rendered(TracebackShape, {"traceback": task.traceback}))
