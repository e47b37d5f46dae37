"""
The ladder before the JSON: host, origin, method, credential, size, content type, accept; and the plain answers.

Both adapters walk it through ``receive``. Everything here works on a Django request, real or made by hand.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core.exceptions import DisallowedHost, ImproperlyConfigured
from django.http import HttpRequest

from ... import conf
from ...access.authentication import Refusal, authenticate, class_problem
from ...access.owners import function_problem
from ...protocol.errors import INTERNAL_ERROR, INVALID_REQUEST, McpError
from ...protocol.jsonrpc import error_text
from ...rpc.dispatch import serve
from ...rpc.requests import Response
from ...runners.base import get_runner
from ...store import get_store
from ...tools.registry import registry
from .negotiation import JSON, Accepted, accepted, is_json

logger = logging.getLogger("mcp_tasks.rpc")

#: On every answer. Task states must never be served from a cache.
COMMON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer of the HTTP layer: status, a JSON-RPC error without id, further headers."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> str:
        code = INTERNAL_ERROR if self.status >= 500 else INVALID_REQUEST
        return error_text(None, McpError(code, self.message))


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was answered, or whose handler is still to run, with what its client can read."""

    response: Response
    accepted: Accepted


TOO_BUSY = Refused(503, "Too many calls are running; try again in a moment", {"Retry-After": "1"})


def require_servable() -> None:
    """Raise ImproperlyConfigured naming every wrong setting and tool: a half-right server answers nothing."""
    settings = conf.get_settings()
    registry.require_valid()
    get_store()
    get_runner()
    wrong = [conf.lease_problem(), function_problem(), *map(class_problem, settings.AUTHENTICATION_CLASSES)]
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
    refused = _check_origin(request)
    if refused is not None:
        return refused
    if request.method != "POST":
        return Refused(405, "Send messages with POST", {"Allow": "POST"})
    get_runner().ensure_started()
    try:
        caller = authenticate(request)
    except Refusal as refusal:
        challenge = {} if refusal.challenge is None else {"WWW-Authenticate": refusal.challenge}
        return Refused(refusal.status, refusal.reason, challenge)
    except Exception:
        logger.exception("a caller could not be authenticated", extra={"event": "internal_error"})
        return Refused(500, "Internal error")
    if body is None:
        return Refused(413, f"The body is larger than {body_limit()} bytes")
    if not is_json(headers.get("content-type")):
        return Refused(415, f"The content type must be {JSON}")
    readable = accepted(headers.get("accept"))
    if not readable.json and not readable.stream:
        return Refused(406, "Accept must allow application/json or text/event-stream")
    return Received(serve(body, caller, headers), readable)


def _check_origin(request: HttpRequest) -> Refused | None:
    """
    Host against ``ALLOWED_HOSTS``, then Origin against that host or the allowlist (streamable-http, "Security").

    Equal Host and Origin alone protect nothing: under DNS rebinding both are the attacker's.
    """
    try:
        host = request.get_host()
    except DisallowedHost:
        return Refused(403, "This host is not served here; see ALLOWED_HOSTS")
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    if origin in conf.get_settings().ALLOWED_ORIGINS or _same_origin(origin, request.scheme or "http", host):
        return None
    return Refused(403, "This origin is not allowed")


def _same_origin(origin: str, scheme: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    default = {"http": ":80", "https": ":443"}
    mine = host.lower().removesuffix(default.get(scheme, ""))
    return parts.scheme in default and parts.netloc.lower().removesuffix(default[parts.scheme]) == mine
