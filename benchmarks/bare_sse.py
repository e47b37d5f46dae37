"""The least that an ASGI application can do to tell many: no protocol, no checks, no database."""

import asyncio
from typing import Any

_listeners: set["asyncio.Queue[bytes]"] = set()
_STREAM = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
_DONE = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}


async def application(scope: Any, receive: Any, send: Any) -> None:
    """``/listen`` is a stream; whatever is posted to ``/fire`` is an event on each of them."""
    if scope["type"] != "http":
        raise RuntimeError("only HTTP")
    body = (await receive()).get("body", b"")
    if scope["path"] == "/fire":
        for queue in list(_listeners):
            queue.put_nowait(body)
        await send(_DONE)
        await send({"type": "http.response.body", "body": b"ok"})
        return
    mine: asyncio.Queue[bytes] = asyncio.Queue()
    _listeners.add(mine)
    try:
        await send(_STREAM)
        await send({"type": "http.response.body", "body": b": here\n\n", "more_body": True})
        while True:
            event = b"event: message\ndata: " + await mine.get() + b"\n\n"
            await send({"type": "http.response.body", "body": event, "more_body": True})
    finally:
        _listeners.discard(mine)
