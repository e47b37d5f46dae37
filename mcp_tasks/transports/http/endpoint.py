"""
The ASGI endpoint, routed before Django's handler.

Django's handler starts a thread for every request; here requests run on a few threads that keep their database
connections, and handlers of tools on others. What middleware would have given is explicit in ``checks``.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from io import BytesIO
from typing import Any, TypeVar

from django.core.handlers.asgi import ASGIRequest

from ...execution.threads import Busy, DaemonPool
from ...rpc.requests import Reply, Work
from .checks import COMMON_HEADERS, TOO_BUSY, Refused, body_limit, receive
from .negotiation import EVENT_STREAM, JSON, Accepted
from .streams import (
    KEEP_ALIVE,
    KEEP_ALIVE_SECONDS,
    STREAM_HEADERS,
    Feed,
    abandon,
    event,
    sent_as_event,
)

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: Threads that serve requests, and how many requests may wait for one of them.
LANES, LANE_BACKLOG = 4, 512
lanes = DaemonPool("mcp-tasks-lane", LANES, backlog=LANE_BACKLOG, persistent=True)


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


async def on_thread(pool: DaemonPool, work: Callable[[], T]) -> T:
    """Run on a thread of a pool; raises Busy, and what the work raises."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def job() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop has ended, and with it the request

    pool.submit(job)
    return await future


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
            item = await _next(feed, gone)
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


async def _next(feed: Feed, gone: "asyncio.Future[None]") -> str | Reply | None:
    waiting = asyncio.ensure_future(feed.get_async(KEEP_ALIVE_SECONDS))
    both: set[asyncio.Future[Any]] = {waiting, gone}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        await asyncio.wait({waiting})
    return None if waiting.cancelled() else waiting.result()


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
            await self._whole(reply.status, "", {})
        elif sent_as_event(reply, accepted):
            await self._whole(reply.status, event(reply.body), {"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        else:
            await self._whole(reply.status, reply.body, {"Content-Type": JSON})

    async def refuse(self, refused: Refused) -> None:
        """An answer of the HTTP layer."""
        await self._whole(refused.status, refused.body, {"Content-Type": JSON, **refused.headers})

    async def stream(self, text: str) -> None:
        """A part of a stream, opened by the first: from then on the status is 200."""
        if not self._streaming:
            self._streaming = True
            await self._start(200, {"Content-Type": EVENT_STREAM, **STREAM_HEADERS})
        await self._body(text, more=True)

    async def _whole(self, status: int, text: str, headers: dict[str, str]) -> None:
        body = text.encode()
        await self._start(status, {**headers, "Content-Length": str(len(body))})
        await self._emit({"type": "http.response.body", "body": body, "more_body": False})

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        pairs = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in {**COMMON_HEADERS, **headers}.items()]
        await self._emit({"type": "http.response.start", "status": status, "headers": pairs})

    async def _body(self, text: str, *, more: bool) -> None:
        await self._emit({"type": "http.response.body", "body": text.encode(), "more_body": more})

    async def _emit(self, message: dict[str, Any]) -> None:
        try:
            await self._send(message)
        except OSError:  # how a server may say that nobody listens
            raise Disconnected from None
