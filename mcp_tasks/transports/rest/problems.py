"""Every error as ``application/problem+json`` (RFC 9457), with a ``code`` that programs read."""

import logging
import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.http import Http404, UnreadablePostError
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.settings import api_settings

from ...store.types import Unsupported

logger = logging.getLogger("mcp_tasks.rpc")

PROBLEM_JSON = "application/problem+json"

NOT_FOUND, PERMISSION_DENIED, NOT_AUTHENTICATED = "not_found", "permission_denied", "not_authenticated"
ALREADY_FINISHED, REVISION_CONFLICT, NOT_APPLICABLE = "already_finished", "revision_conflict", "not_applicable"
INVALID, INVALID_FILTER, THROTTLED = "invalid", "invalid_filter", "throttled"

#: All codes and the status of each.
STATUSES: dict[str, int] = {
    INVALID: 400,
    INVALID_FILTER: 400,
    NOT_AUTHENTICATED: 401,
    PERMISSION_DENIED: 403,
    NOT_FOUND: 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    ALREADY_FINISHED: 409,
    REVISION_CONFLICT: 409,
    NOT_APPLICABLE: 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    THROTTLED: 429,
    "internal_error": 500,
}

#: The one sentence of every task that is not there for the caller, for whatever reason.
NO_TASK = "There is no such task, or no longer."


class Problem(Exception):
    """An error with a code of ``STATUSES``. ``errors`` name fields; further members go into the body as they are."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Iterable[tuple[str, str]] = (),
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.members = code, detail, members
        self.http_status = STATUSES[code] if status is None else status
        self.errors = [{"field": field, "detail": text} for field, text in errors]
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The members in their fixed order."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.http_status).phrase,
            "status": self.http_status,
            "code": self.code,
            "detail": self.detail,
            "errors": self.errors,
            **self.members,
        }


def no_task() -> Problem:
    """404, the same bytes whatever the reason."""
    return Problem(NOT_FOUND, NO_TASK)


def invalid(field: str, detail: str, *, code: str = INVALID) -> Problem:
    """400 for one field."""
    return Problem(code, "The request is not valid.", errors=[(field, detail)])


def handler(raised: Exception, context: dict[str, Any]) -> Response:
    """The exception handler of all our views; what nobody expected is logged, and says nothing of the inside."""
    problem = _problem_of(raised)
    if problem is None:
        logger.error("a REST request failed", exc_info=raised, extra={"event": "internal_error"})
        problem = Problem("internal_error", "The server failed; its log says why.")
    return Response(problem.body(), problem.http_status, headers=problem.headers, content_type=PROBLEM_JSON)


def _problem_of(raised: Exception) -> Problem | None:
    match raised:
        case Problem():
            return raised
        case Http404() | exceptions.NotFound():
            return no_task()
        case Unsupported():
            return Problem(NOT_APPLICABLE, "The store of this site cannot do that.")
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            challenge = getattr(raised, "auth_header", None)
            headers = {} if challenge is None else {"WWW-Authenticate": challenge}
            return Problem(NOT_AUTHENTICATED, str(raised.detail), status=raised.status_code, headers=headers)
        case exceptions.PermissionDenied() | DjangoPermissionDenied():
            detail = getattr(raised, "detail", "You do not have the permission for this.")
            return Problem(PERMISSION_DENIED, str(detail))
        case exceptions.Throttled():
            seconds = max(1, math.ceil(getattr(raised, "wait", None) or 1))
            return Problem(THROTTLED, "Too many requests.", headers={"Retry-After": str(seconds)})
        case exceptions.ValidationError():
            return Problem(INVALID, "The request is not valid.", errors=_errors(raised.detail, ""))
        case UnreadablePostError():
            return Problem(INVALID, "The body could not be read.")
        case exceptions.ParseError():
            return Problem(INVALID, str(raised.detail))
        case exceptions.MethodNotAllowed() | exceptions.NotAcceptable() | exceptions.UnsupportedMediaType():
            code = {405: "method_not_allowed", 406: "not_acceptable", 415: "unsupported_media_type"}
            return Problem(code[raised.status_code], str(raised.detail))
    return None


def _errors(detail: Any, field: str) -> Iterable[tuple[str, str]]:
    """DRF's nested errors, one by one with the path of each."""
    if isinstance(detail, dict):
        for name, inner in detail.items():
            own = "" if name == api_settings.NON_FIELD_ERRORS_KEY else str(name)
            yield from _errors(inner, ".".join(filter(None, (field, own))))
    elif isinstance(detail, list):
        for inner in detail:
            yield from _errors(inner, field)
    else:
        yield field, str(detail)
