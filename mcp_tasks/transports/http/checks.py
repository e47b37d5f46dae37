"""
The ladder before the JSON: host, origin, method, credential, size, content type, accept; and the plain answers.

Both adapters walk it through ``receive``. Everything here works on a Django request, real or made by hand.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from ... import conf
from ...access.authentication import Refusal, authenticate, class_problem
from ...access.credentials import Credential
from ...access.owners import function_problem
from ...access.throttles import class_problem as throttle_problem
from ...access.throttles import gate
from ...notifications.layers import layer_problem
from ...notifications.places import places
from ...notifications.publisher import notifier_problem
from ...protocol.errors import INTERNAL_ERROR, INVALID_REQUEST, McpError
from ...protocol.jsonrpc import error_text
from ...rpc.caller import Caller
from ...rpc.dispatch import serve
from ...rpc.requests import Listen, Reply, Response, failure
from ...runners.base import get_runner
from ...store import get_store
from ...store.types import owner_key
from ...tools.registry import registry
from ..origin import origin_problem
from .negotiation import JSON, Accepted, accepted, is_json

logger = logging.getLogger("mcp_tasks.rpc")

T = TypeVar("T")

#: On every answer. Task states must never be served from a cache.
COMMON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer of the HTTP layer: status, a JSON-RPC error (without id, unless ``text`` has it), further headers."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None

    @property
    def body(self) -> str:
        if self.text is not None:
            return self.text
        code = INTERNAL_ERROR if self.status >= 500 else INVALID_REQUEST
        return error_text(None, McpError(code, self.message))


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was answered, or whose handler is still to run, with what its client can read."""

    response: Response
    accepted: Accepted
    #: Of a stream that stays open, to be looked at again.
    credential: Credential | None = None


TOO_BUSY = Refused(503, "Too many calls are running; try again in a moment", {"Retry-After": "1"})


def require_servable() -> None:
    """Raise ImproperlyConfigured naming every wrong setting and tool: a half-right server answers nothing."""
    settings = conf.get_settings()
    registry.require_valid()
    get_store()
    get_runner()
    wrong = [conf.lease_problem(), function_problem(), *map(class_problem, settings.AUTHENTICATION_CLASSES)]
    wrong += [layer_problem(), *map(notifier_problem, settings.NOTIFIERS)]
    wrong += map(throttle_problem, settings.THROTTLE_CLASSES)
    if any(wrong):
        raise ImproperlyConfigured(" ".join(filter(None, wrong)))


def body_limit() -> int | None:
    """How many bytes of a body are read, else 413; Django's own limit counts too where a project sets it."""
    limits = [conf.get_settings().LIMITS.REQUEST_BYTES]
    if django_settings.is_overridden("DATA_UPLOAD_MAX_MEMORY_SIZE"):  # type: ignore[misc]
        limits.append(django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    return min((limit for limit in limits if limit is not None), default=None)


def receive(request: HttpRequest, body: bytes | None, headers: Mapping[str, str]) -> Received | Refused:
    """
    Walk the ladder and dispatch, on a thread that owns its database connection.

    ``body`` is None when it was larger than allowed; ``headers`` have lower-case names.
    """
    problem = origin_problem(request)
    if problem is not None:
        return Refused(403, problem)
    if request.method != "POST":
        return Refused(405, "Send messages with POST", {"Allow": "POST"})
    get_runner().ensure_started()
    caller = _asked(lambda: authenticate(request))
    if isinstance(caller, Refused):
        return caller
    if body is None:
        return Refused(413, f"The body is larger than {body_limit()} bytes")
    if not is_json(headers.get("content-type")):
        return Refused(415, f"The content type must be {JSON}")
    readable = accepted(headers.get("accept"))
    if not readable.json and not readable.stream:
        return Refused(406, "Accept must allow application/json or text/event-stream")
    # Only these servers have an event loop, on which a stream costs no thread.
    pushes = isinstance(request, ASGIRequest)
    counting = gate(lambda: request, caller)
    response = serve(body, caller, headers, pushes=pushes, admit=counting)
    if counting is not None and counting.refused is not None:
        assert isinstance(response, Reply)
        wait = {"Retry-After": str(counting.refused.retry_after)}
        return Refused(429, counting.refused.message, wait, response.body)
    if isinstance(response, Listen):
        return _listening(request, caller, response, readable)
    return Received(response, readable)


def _asked(who: Callable[[], T]) -> T | Refused:
    """What authentication says, its refusals and failures as answers."""
    try:
        return who()
    except Refusal as refusal:
        challenge = {} if refusal.challenge is None else {"WWW-Authenticate": refusal.challenge}
        return Refused(refusal.status, refusal.reason, challenge)
    except Exception:
        logger.exception("a caller could not be authenticated", extra={"event": "internal_error"})
        return Refused(500, "Internal error")


def _listening(request: HttpRequest, caller: Caller, response: Listen, readable: Accepted) -> Received | Refused:
    """The rest of the ladder for a stream: it must be readable, and there must be a place for it."""
    if not readable.stream:
        return Refused(406, "Accept must allow text/event-stream to listen")
    try:
        response.subscription.hold(places.take(owner_key(caller.owner)))
    except McpError as too_many:
        return Received(failure(response.subscription.id, too_many), readable)
    assert isinstance(request, ASGIRequest)
    credential = Credential(request, caller)
    if request.resolver_match is not None:  # it came through Django's handler
        refused = _asked(lambda: credential.require_repeatable(request))
        if refused is not None:
            response.subscription.close()
            return refused
    return Received(response, readable, credential)
