"""
The ASGI endpoint, routed before Django's handler.

Django's handler starts a thread for every request; here requests run on a few threads that keep their database
connections, and handlers of tools on others. What middleware would have given is explicit in ``checks``.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from ...access.credentials import Credential
from ...execution.threads import Busy
from ...notifications.subscription import Subscription
from ...rpc.requests import Listen, Reply, Work
from .. import stopping
from ..lanes import lanes, on_thread
from ..listening import KEEP_ALIVE_SECONDS, Revoked, last_message, listen
from ..stopping import hear_signals
from .checks import COMMON_HEADERS, TOO_BUSY, Refused, body_limit, receive
from .negotiation import EVENT_STREAM, JSON, Accepted
from .streams import (
    KEEP_ALIVE,
    STREAM_HEADERS,
    Feed,
    abandon,
    event,
    events,
    sent_as_event,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Disconnected(Exception):
    """The client left before its request or our answer was complete."""


async def endpoint(scope: Scope, receive_message: Receive, send: Send) -> None:
    """Serve one HTTP request."""
    try:
        body = await _read(scope, receive_message)
    except Disconnected:
        return
    out = Response(send)
    try:
        request = ASGIRequest(dict(scope), BytesIO(b""))
    except UnicodeDecodeError:
        await out.refuse(Refused(400, "The query string is not UTF-8"))
        return
    headers = _headers(scope)
    # From here on, not from the answer on: a client may leave while its task is made.
    gone = asyncio.ensure_future(_until_gone(receive_message))
    try:
        try:
            received = await on_thread(lanes, lambda: receive(request, body, headers))
        except Busy:
            received = TOO_BUSY
        if isinstance(received, Refused):
            await out.refuse(received)
        elif isinstance(received.response, Listen):
            assert received.credential is not None
            del request, headers, body  # an open stream holds nothing that it does not need
            await _listen(received.response.subscription, received.credential, out, gone)
        elif isinstance(received.response, Work):
            await _work(received.response, received.accepted, out, gone)
        elif gone.done() and received.response.created is not None:
            abandon(received.response)
        else:
            await out.reply(received.response, received.accepted)
    except Disconnected:
        return
    finally:
        gone.cancel()


async def _read(scope: Scope, receive_message: Receive) -> bytes | None:
    """The whole body; None once it is larger than allowed, without reading the rest."""
    limit = body_limit()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive_message()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        if limit is not None and size > limit:
            return None
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _headers(scope: Scope) -> dict[str, str]:
    """Lower-case names; a repeated header is joined by commas, as WSGI has it, and so matches nothing."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


async def _until_gone(receive_message: Receive) -> None:
    while (await receive_message())["type"] != "http.disconnect":
        pass


async def _work(work: Work, accepted: Accepted, out: "Response", gone: "asyncio.Future[None]") -> None:
    """Wait for a handler; its notifications open the stream, a client that leaves raises its token."""
    streams = work.emits and accepted.stream
    feed = Feed(work)
    try:
        feed.start()
    except Busy:
        await out.refuse(TOO_BUSY)
        return
    item: str | Reply | None = None
    try:
        while not isinstance(item, Reply):
            item = await feed.get_unless(gone, KEEP_ALIVE_SECONDS)
            if gone.done() and not isinstance(item, Reply):
                return
            if streams and not isinstance(item, Reply):
                await out.stream(KEEP_ALIVE if item is None else event(item))
    finally:
        if not isinstance(item, Reply) or gone.done():
            feed.leave()
    if gone.done():
        abandon(item)
        return
    await out.reply(item, accepted)


async def _listen(
    subscription: Subscription, credential: Credential, out: "Response", gone: "asyncio.Future[None]"
) -> None:
    """Send what a subscription has to say until the client leaves or the server ends it."""
    hear_signals()
    gone.add_done_callback(lambda _: subscription.end())
    try:
        async with aclosing(listen(subscription, credential)) as messages:
            async for frames in messages:
                if gone.done():
                    return
                await out.stream(events(frames, subscription.id_text) if frames else KEEP_ALIVE)
    except Revoked:
        pass
    except asyncio.CancelledError:
        if stopping.is_stopping() and not gone.done():  # daphne cancels what it serves, in the same moment
            await out.stream(event(last_message(subscription)), more=False)
            await asyncio.sleep(stopping.FLUSH_SECONDS)
        raise
    if not gone.done():
        await out.stream(event(last_message(subscription)), more=False)
        if stopping.is_stopping():
            await asyncio.sleep(stopping.FLUSH_SECONDS)


class Response:
    """Writes one HTTP response: whole, or as a stream that was opened on the way."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._streaming = False

    async def reply(self, reply: Reply, accepted: Accepted) -> None:
        """The finished answer; on an open stream its last event. A task that it names dies with it."""
        try:
            await self._reply(reply, accepted)
        except Disconnected:
            abandon(reply)
            raise

    async def _reply(self, reply: Reply, accepted: Accepted) -> None:
        if self._streaming:
            await self._body(event(reply.body or ""), more=False)
        elif reply.body is None:
            await self._whole(reply.status, b"", {})
        elif sent_as_event(reply, accepted):
            await self._whole(reply.status, event(reply.body), {"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        else:
            await self._whole(reply.status, reply.body.encode(), {"Content-Type": JSON})

    async def refuse(self, refused: Refused) -> None:
        """An answer of the HTTP layer."""
        await self._whole(refused.status, refused.body.encode(), {"Content-Type": JSON, **refused.headers})

    async def stream(self, body: bytes, *, more: bool = True) -> None:
        """A part of a stream, opened by the first: from then on the status is 200."""
        if not self._streaming:
            self._streaming = True
            await self._start(200, {"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        await self._body(body, more=more)

    async def _whole(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        await self._start(status, {**headers, "Content-Length": str(len(body))})
        await self._body(body, more=False)

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        pairs = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in {**COMMON_HEADERS, **headers}.items()]
        await self._emit({"type": "http.response.start", "status": status, "headers": pairs})

    async def _body(self, body: bytes, *, more: bool) -> None:
        await self._emit({"type": "http.response.body", "body": body, "more_body": more})

    async def _emit(self, message: dict[str, Any]) -> None:
        try:
            await self._send(message)
        except OSError:  # how a server may say that nobody listens
            raise Disconnected from None
