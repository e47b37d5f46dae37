"""
The Django view: any URLconf, WSGI or ASGI.

It costs what Django's handler and the project's middleware cost; ``mcp_tasks.asgi.mount`` is the fast way.
"""

from functools import lru_cache
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.http.request import UnreadablePostError
from django.views.decorators.csrf import csrf_exempt

from ... import conf
from ...connections import outside_transactions
from ...execution.threads import Busy
from ...rpc.requests import Listen, Reply, Work
from ..listening import KEEP_ALIVE_SECONDS
from ..reports import hide_capabilities
from .checks import COMMON_HEADERS, TOO_BUSY, Refused, body_limit, receive, require_servable
from .negotiation import EVENT_STREAM, JSON, Accepted
from .streams import STREAM_HEADERS, AsyncEvents, Events, Feed, Listening, event, sent_as_event, unheard


@lru_cache(maxsize=1)
def _require_servable() -> None:
    require_servable()


conf.on_reset(_require_servable.cache_clear)


@csrf_exempt  # the Origin check and the JSON content type take its place; DRF's session class asks for it itself
@outside_transactions  # an acknowledgement must not be rolled back behind the client
def mcp(request: HttpRequest) -> HttpResponseBase:
    """The MCP endpoint. Raises ImproperlyConfigured when a setting or a tool is wrong."""
    hide_capabilities(request)
    _require_servable()
    try:
        body = _read(request)
    except UnreadablePostError:
        return _refusal(Refused(400, "The body could not be read"))
    received = receive(request, body, {name.lower(): value for name, value in request.headers.items()})
    if isinstance(received, Refused):
        return _refusal(received)
    if isinstance(received.response, Listen):
        assert received.credential is not None
        return _stream(Listening(received.response.subscription, received.credential))
    if isinstance(received.response, Work):
        return _work(request, received.response, received.accepted)
    return _reply(received.response, received.accepted)


def _read(request: HttpRequest) -> bytes | None:
    limit = body_limit()
    if limit is None:
        return request.read()
    declared = str(request.META.get("CONTENT_LENGTH") or "")
    if declared.isdecimal() and int(declared) > limit:
        return None
    body = request.read(limit + 1)
    return None if len(body) > limit else body


def _work(request: HttpRequest, work: Work, accepted: Accepted) -> HttpResponseBase:
    if not (work.emits and accepted.stream):
        # The request has its own thread here; a handler on another would free nothing.
        return _reply(work.run(unheard), accepted)
    feed = Feed(work)
    try:
        feed.start()
    except Busy:
        return _refusal(TOO_BUSY)
    first = feed.get(KEEP_ALIVE_SECONDS)
    if isinstance(first, Reply):
        return _reply(first, accepted)
    if isinstance(request, ASGIRequest):
        return _stream(AsyncEvents(feed, first))
    return _stream(iter(Events(feed, first)))


def _stream(body: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(body, content_type=EVENT_STREAM, headers={**COMMON_HEADERS, **STREAM_HEADERS})


def _reply(reply: Reply, accepted: Accepted) -> HttpResponse:
    if reply.body is None:
        empty = HttpResponse(status=reply.status, headers=COMMON_HEADERS)
        del empty["Content-Type"]
        return empty
    if sent_as_event(reply, accepted):
        headers = {**COMMON_HEADERS, **STREAM_HEADERS}
        return HttpResponse(event(reply.body), status=reply.status, content_type=EVENT_STREAM, headers=headers)
    return HttpResponse(reply.body, status=reply.status, content_type=JSON, headers=COMMON_HEADERS)


def _refusal(refused: Refused) -> HttpResponse:
    headers = {**COMMON_HEADERS, **refused.headers}
    return HttpResponse(refused.body, status=refused.status, content_type=JSON, headers=headers)
