"""
One's own task: its state, answers to its questions, and its end. There is no list.

The path carries the ``ref``; the capability travels in a header like every credential, so that no access log holds
it. Whatever is wrong with the two, the answer is the same: unknown, foreign, expired and mismatched cannot be told
apart.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ... import conf
from ...access import throttles
from ...access.authentication import Refusal, authenticate, authenticators
from ...protocol.codec import Json
from ...protocol.inputs import InvalidAnswer
from ...protocol.tasks import is_task_id
from ...rpc.caller import Caller
from ...rpc.requests import server_meta
from ...rpc.tasks import CANCELLED_BY_CLIENT, answer
from ...store import get_store
from ...store.snapshots import to_wire
from ...store.types import Present, RetentionLimitExceeded, TaskView, owner_key, ref_of
from ..origin import origin_problem
from ..reports import hide_capabilities
from .base import TASKS, Operation, Parameter, RestView, json_text
from .bodies import AnswersGiven, Empty
from .problems import NOT_AUTHENTICATED, PERMISSION_DENIED, Problem, invalid, no_task
from .serializers import AnswersTaken

TASK_ID_HEADER = Parameter("Mcp-Task-Id", "The id of the task, as the client was given it.", required=True)
_IF_NONE_MATCH = Parameter("If-None-Match", "The ETag that the client knows; 304 when it is still right.")
_REFUSALS = (400, 401, 403, 404, 429)


class OwnedView(RestView):
    """A task of the caller, who is authenticated as for MCP."""

    caller: Caller

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        hide_capabilities(request)
        super().setup(request, *args, **kwargs)

    def get_authenticators(self) -> list[BaseAuthentication]:
        return authenticators()

    def get_throttles(self) -> list[BaseThrottle]:
        return throttles.throttles()

    def perform_authentication(self, request: Request) -> None:
        """As for MCP, host and origin included."""
        http_request = request._request
        problem = origin_problem(http_request)
        if problem is not None:
            raise Problem(PERMISSION_DENIED, problem)
        try:
            self.caller = authenticate(http_request)
        except Refusal as refusal:
            challenge = {} if refusal.challenge is None else {"WWW-Authenticate": refusal.challenge}
            code = NOT_AUTHENTICATED if refusal.status == 401 else PERMISSION_DENIED
            raise Problem(code, refusal.reason, headers=challenge) from None
        nobody: Any = api_settings.UNAUTHENTICATED_USER
        user: Any = self.caller.user or (nobody() if nobody is not None else None)
        request.user = user

    @property
    def throttle_owner(self) -> str | None:
        return owner_key(self.caller.owner)

    @property
    def throttle_task(self) -> str | None:
        """Polls are counted for each task, over REST and MCP together."""
        return str(self.kwargs["ref"]) if self.throttle_scope == throttles.POLL_SCOPE else None

    def task_id(self, request: Request) -> str:
        """The capability, if it belongs to the path."""
        task_id = request.headers.get("Mcp-Task-Id", "")
        if not conf.get_settings().ENABLED or not is_task_id(task_id) or str(ref_of(task_id)) != self.kwargs["ref"]:
            raise no_task()
        return task_id

    def present(self, task_id: str, *, payload: bool = False) -> Present:
        found = get_store().resolve(task_id, self.caller.owner, payload=payload)
        if not isinstance(found, Present):
            raise no_task()
        return found

    def shown(self, task_id: str) -> HttpResponse:
        """The task as every transport shows it, with its revision as ETag and when to ask again."""
        snapshot = self.present(task_id, payload=True).snapshot
        assert snapshot is not None
        headers = {"ETag": f'"{snapshot.task.revision}"', **_next_poll(snapshot.task)}
        return json_text(to_wire(snapshot).detailed(task_id, server_meta()), headers=headers)


def _next_poll(task: TaskView) -> dict[str, str]:
    return {} if task.is_terminal else {"Retry-After": str(-(-task.poll_interval_ms // 1000))}


class OwnedTaskView(OwnedView):
    """``tasks/{ref}/``."""

    operations = {
        "GET": Operation(
            id="tasks_retrieve",
            tag=TASKS,
            scope=throttles.POLL_SCOPE,
            summary="The whole state of a task of one's own",
            answer=dict,
            headers=(TASK_ID_HEADER, _IF_NONE_MATCH),
            problems=_REFUSALS,
        )
    }

    def get(self, request: Request, ref: str) -> HttpResponseBase:
        response = self.shown(self.task_id(request))
        known = [etag.removeprefix("W/") for etag in parse_etags(request.headers.get("If-None-Match", ""))]
        if response["ETag"] not in known and "*" not in known:
            return response
        unchanged = HttpResponse(status=304, headers={**response.headers})
        del unchanged["Content-Type"]
        return unchanged


class AnswersView(OwnedView):
    """``tasks/{ref}/answers/``."""

    operations = {
        "POST": Operation(
            id="tasks_answer",
            tag=TASKS,
            scope=throttles.UPDATE_SCOPE,
            summary="Answer open questions; keys that are not open are ignored",
            answer=AnswersTaken,
            body=AnswersGiven,
            headers=(TASK_ID_HEADER,),
            problems=_REFUSALS,
        )
    }

    def post(self, request: Request, ref: str) -> Response:
        task_id = self.task_id(request)
        found = self.present(task_id)
        responses = _responses(request.data)
        try:
            applied = answer(found, responses)
        except (InvalidAnswer, RetentionLimitExceeded) as problem:
            raise invalid("inputResponses", str(problem)) from None
        if applied is None:
            self.present(task_id)  # a finished task takes none; one that expired meanwhile is not there
            return Response({"accepted": [], "ignored": list(responses), "outstanding": []})
        return Response(
            {"accepted": applied.accepted, "ignored": applied.ignored, "outstanding": applied.still_outstanding}
        )


def _responses(body: Json) -> dict[str, Json]:
    """Not by a serializer: answers are judged by their questions, and stored as they came."""
    if not isinstance(body, dict):
        raise invalid("", "The body must be an object.")
    unknown = [name for name in body if name != "inputResponses"]
    if unknown:
        raise invalid(unknown[0], "There is no such member.")
    if not isinstance(body.get("inputResponses"), dict):
        raise invalid("inputResponses", "This must be an object.")
    found: dict[str, Json] = body["inputResponses"]
    return found


class CancelView(OwnedView):
    """``tasks/{ref}/cancel/``."""

    operations = {
        "POST": Operation(
            id="tasks_cancel",
            tag=TASKS,
            scope=throttles.UPDATE_SCOPE,
            summary="End a task of one's own; a finished one does not change",
            answer=dict,
            headers=(TASK_ID_HEADER,),
            problems=_REFUSALS,
        )
    }

    def post(self, request: Request, ref: str) -> HttpResponse:
        task_id = self.task_id(request)
        found = self.present(task_id)
        Empty(data=request.data or {}).is_valid(raise_exception=True)
        if get_store().cancel_task(found.ref, CANCELLED_BY_CLIENT, actor="client") is None:
            raise no_task()
        return self.shown(task_id)
