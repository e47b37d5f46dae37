"""
Rates: DRF's throttles around MCP messages, which no DRF view sees, and the rates of operators.

Which class counts what is the project's choice (``THROTTLE_CLASSES``); a class of DRF finds what it looks for: a
request with the caller as its user, and a view with a ``throttle_scope``.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle, ScopedRateThrottle

from .. import conf
from ..protocol.codec import Json
from ..protocol.errors import INTERNAL_ERROR, EnvelopeError
from ..protocol.jsonrpc import readable_id
from ..protocol.subscriptions import LISTEN
from ..protocol.tasks import is_task_id
from ..rpc.caller import Caller
from ..store.types import owner_key, ref_of
from .authentication import BodilessRequest

CALL_SCOPE, POLL_SCOPE, UPDATE_SCOPE, LISTEN_SCOPE = "mcp_call", "mcp_poll", "mcp_update", "mcp_listen"
READ_SCOPE, WRITE_SCOPE = "mcp_operator_read", "mcp_operator_write"
LOOKUP_SCOPE, BULK_SCOPE = "mcp_operator_lookup", "mcp_operator_bulk"

#: What a scope counts; methods that are not here have none.
SCOPES = {
    "tools/call": CALL_SCOPE,
    "tasks/get": POLL_SCOPE,
    "tasks/update": UPDATE_SCOPE,
    "tasks/cancel": UPDATE_SCOPE,
    LISTEN: LISTEN_SCOPE,
}

#: Where the project's ``DEFAULT_THROTTLE_RATES`` say nothing. Polls: see ``_default_rate``.
DEFAULT_RATES = {
    CALL_SCOPE: "60/min",
    UPDATE_SCOPE: "60/min",
    LISTEN_SCOPE: "30/min",
    READ_SCOPE: "300/min",
    WRITE_SCOPE: "60/min",
    LOOKUP_SCOPE: "20/min",
    BULK_SCOPE: "6/min",
}


def _default_rate(scope: str) -> str | None:
    if scope == POLL_SCOPE:
        # Twice as often as clients are asked to.
        return f"{max(1, 120_000 // conf.get_settings().POLL_INTERVAL_MS)}/min"
    return DEFAULT_RATES.get(scope)


class ScopeThrottle(ScopedRateThrottle):
    """
    A rate for each owner and scope, polls for each task too; rates are those of the project, or ours.

    A rate of ``None`` in ``DEFAULT_THROTTLE_RATES`` lifts a limit. A scope that neither knows has none.
    """

    def get_rate(self) -> str | None:
        """Read when it is needed: DRF's own class keeps what the settings were at its import."""
        rates: dict[str, Any] = api_settings.DEFAULT_THROTTLE_RATES or {}
        scope = str(self.scope)
        return rates[scope] if scope in rates else _default_rate(scope)

    def get_cache_key(self, request: Any, view: Any) -> str:
        """Hashed: neither an address nor a key of an owner belongs in a shared cache."""
        owner = getattr(view, "throttle_owner", None)
        user = request.user
        if owner is None:
            is_known = user is not None and user.is_authenticated
            owner = f"user {user.pk}" if is_known else f"from {self.get_ident(request)}"
        told = repr((owner, getattr(view, "throttle_task", None)))
        return f"throttle_{self.scope}_{hashlib.sha256(told.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Subject:
    """Stands where throttles look for a view."""

    throttle_scope: str | None
    throttle_owner: str | None = None
    throttle_task: str | None = None


class Throttled(EnvelopeError):
    """429; in JSON-RPC -32603, with the seconds to wait in its data for a transport without headers."""

    def __init__(self, retry_after: int) -> None:
        message = f"Too many requests; try again in {retry_after} s"
        super().__init__(429, INTERNAL_ERROR, message, {"retryAfterSeconds": retry_after})
        self.retry_after = retry_after


def throttles() -> list[BaseThrottle]:
    """The configured classes, made anew for each request as DRF does."""
    return [cast("BaseThrottle", conf.load(path)()) for path in conf.get_settings().THROTTLE_CLASSES]


def class_problem(path: str) -> str | None:
    """What is wrong with an entry of ``THROTTLE_CLASSES``, as a sentence; None when it can be used."""
    try:
        loaded = conf.load(path)
    except ImproperlyConfigured as problem:
        return str(problem)
    if isinstance(loaded, type) and issubclass(loaded, BaseThrottle):
        return None
    return f"{path} is no DRF throttle class."


class Gate:
    """Counts one message of a caller. ``refused`` is why it was not let in, once it was asked."""

    def __init__(self, http_request: HttpRequest, caller: Caller) -> None:
        self._http_request, self._caller = http_request, caller
        self.refused: Throttled | None = None

    def __call__(self, body: Json) -> Throttled | None:
        """Whether this message is one too many; every throttle counts it. Notifications are dropped uncounted."""
        if readable_id(body) is None or not isinstance(body.get("method"), str):
            return None
        scope = SCOPES.get(body["method"])
        task = _task_of(body) if scope == POLL_SCOPE else None
        request: Any = BodilessRequest(self._http_request)
        nobody: Any = api_settings.UNAUTHENTICATED_USER
        request.user = self._caller.user or (nobody() if nobody is not None else None)
        self.refused = count(request, Subject(scope, owner_key(self._caller.owner), task))
        return self.refused


def gate(http_request: Callable[[], HttpRequest], caller: Caller) -> Gate | None:
    """The gate before a message; None where nothing is counted, and then nothing is made for it."""
    return Gate(http_request(), caller) if conf.get_settings().THROTTLE_CLASSES else None


def count(request: Any, subject: Any, using: list[BaseThrottle] | None = None) -> Throttled | None:
    """Ask every throttle, as DRF does; the longest wait counts."""
    waits = [
        throttle.wait()
        for throttle in (throttles() if using is None else using)
        if not throttle.allow_request(request, subject)
    ]
    if not waits:
        return None
    return Throttled(max(1, math.ceil(max((wait for wait in waits if wait is not None), default=1))))


def _task_of(body: Json) -> str:
    params = body.get("params")
    task_id = params.get("taskId") if isinstance(params, dict) else None
    return str(ref_of(task_id)) if isinstance(task_id, str) and is_task_id(task_id) else "none"
