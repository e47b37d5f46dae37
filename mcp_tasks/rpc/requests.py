"""A request on its way through the methods, and the forms of an answer to it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

from .. import conf
from ..notifications.subscription import Subscription
from ..protocol.capabilities import LEGACY, MODERN, SERVER_INFO_KEY
from ..protocol.codec import Json, dumps
from ..protocol.errors import McpError, http_status_of, internal_error
from ..protocol.jsonrpc import RequestId, error_text, result_text
from ..tools.cancellation import CancellationToken
from .caller import Caller

logger = logging.getLogger("mcp_tasks.rpc")

#: Sends a notification (its JSON text) on the response stream of the request.
Emit = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that passed the checks of the envelope. ``headers`` is None where the transport has none."""

    id: RequestId
    method: str
    params: dict[str, Json]
    caller: Caller
    version: str = MODERN
    meta: dict[str, Json] = field(default_factory=dict)
    capabilities: dict[str, Json] = field(default_factory=dict)
    headers: Mapping[str, str] | None = None
    #: Whether the transport can send what nobody has just asked for.
    pushes: bool = False

    @property
    def is_legacy(self) -> bool:
        """Whether it came from a client of the era before 2026-07-28."""
        return self.version == LEGACY


@dataclass(frozen=True, slots=True)
class Reply:
    """
    A finished answer: HTTP status and JSON text, or None for an empty body.

    ``created`` names a task that nobody knows of until this reply arrives: a client that is gone by then
    cannot want it. ``code`` is that of an error.
    """

    status: int
    body: str | None
    created: UUID | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """
    An answer that a handler must produce, on a thread that serves nothing else meanwhile.

    ``run`` never raises. ``token`` is raised when the client goes away, unless ``outlives_client``: in the older
    era a lost connection is no cancellation. ``emits``: it may send notifications first, so the transport may
    want to stream.
    """

    run: Callable[[Emit], Reply]
    token: CancellationToken
    emits: bool
    outlives_client: bool = False


@dataclass(frozen=True, slots=True)
class Listen:
    """An answer that is a stream: whoever sends it starts the subscription, and closes it in any case."""

    subscription: Subscription


Response = Reply | Work | Listen


@lru_cache(maxsize=1)
def server_meta() -> str:
    """The ``_meta`` of every result, as JSON text."""
    return dumps({SERVER_INFO_KEY: server_info()})


def server_info() -> dict[str, Json]:
    """The Implementation object of this server."""
    server = conf.get_settings().SERVER
    info: dict[str, Json] = {"name": server.NAME, "version": server.VERSION}
    if server.TITLE is not None:
        info["title"] = server.TITLE
    return info


conf.on_reset(server_meta.cache_clear)


def result(request: Request, text: str, *, created: UUID | None = None) -> Reply:
    """A reply with the JSON text of a result."""
    return Reply(200, result_text(request.id, text), created)


def complete(request: Request, members: dict[str, Json]) -> Reply:
    """A reply with a result object: ``resultType`` and the server's name are added where the era has them."""
    if request.is_legacy:
        return result(request, dumps({key: value for key, value in members.items() if key != "resultType"}))
    meta = {**(members.get("_meta") or {}), SERVER_INFO_KEY: server_info()}
    return result(request, dumps({"resultType": "complete", **members, "_meta": meta}))


def failure(request_id: RequestId | None, error: McpError, *, legacy: bool = False) -> Reply:
    """An error reply. Under the older era 400 and 404 say other things, so a method's error is a 200 there."""
    return Reply(200 if legacy else http_status_of(error), error_text(request_id, error), code=error.code)


def guarded(request: Request, work: Callable[[], Reply]) -> Reply:
    """The reply of ``work``, or of what it raised; for work that runs outside of the dispatcher."""
    try:
        return work()
    except McpError as error:
        return failure(request.id, error, legacy=request.is_legacy)
    except Exception:
        logger.exception("a request failed", extra={"event": "internal_error", "method": request.method[:64]})
        return failure(request.id, internal_error(), legacy=request.is_legacy)
