"""The ways into the server without a socket: the Django view under WSGI and ASGI, and the ASGI endpoint."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.handlers.asgi import ASGIHandler

from mcp_tasks.testing.client import HttpAnswer, McpClient
from mcp_tasks.transports.http.endpoint import endpoint

ADAPTERS = ("view-wsgi", "view-asgi", "endpoint")


def make_client(adapter: str, **options: Any) -> McpClient:
    """A client through one adapter."""
    wire = Wire(adapter)
    return McpClient(lambda body, headers: wire.send(body, headers), **options)


@dataclass(frozen=True, slots=True)
class Wire:
    """Sends HTTP requests as they are, through one adapter: nothing is added that a client would have said."""

    adapter: str

    def send(
        self,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        secure: bool = False,
        path: str = "/mcp",
    ) -> HttpAnswer:
        """One request with its length declared; the answer whole."""
        if self.adapter == "view-wsgi":
            return _send_wsgi(body, headers or {}, method, secure=secure, path=path)
        path, _, query = path.partition("?")
        scope = scope_of({"Content-Length": str(len(body)), **(headers or {})}, method=method, path=path)
        scope["query_string"] = query.encode("latin-1")
        if secure:
            scope |= {"scheme": "https", "server": ("testserver", 443)}
        return exchange(self.application, scope, [body])

    def stream(self, chunks: Sequence[bytes], headers: Mapping[str, str]) -> HttpAnswer:
        """One request in chunks whose length nobody declares; WSGI has no such thing."""
        return exchange(self.application, scope_of(headers), chunks)

    @property
    def application(self) -> Any:
        return endpoint if self.adapter == "endpoint" else ASGIHandler()


def _send_wsgi(body: bytes, headers: Mapping[str, str], method: str, *, secure: bool, path: str) -> HttpAnswer:
    from django.test import Client  # Django's test machinery needs settings

    names = {name.lower(): value for name, value in headers.items()}
    content_type = names.pop("content-type", "")
    response: Any = Client(enforce_csrf_checks=True).generic(
        method, path, body, content_type, secure=secure, headers=names, CONTENT_TYPE=content_type
    )
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return HttpAnswer(response.status_code, {k.lower(): v for k, v in response.items()}, content)


def scope_of(headers: Mapping[str, str], *, method: str = "POST", path: str = "/mcp") -> dict[str, Any]:
    """An HTTP scope as servers make it."""
    pairs = {"host": "testserver", **{name.lower(): value for name, value in headers.items()}}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs.items()],
        "client": ("127.0.0.1", 5000),
        "server": ("testserver", 80),
    }


def exchange(application: Any, scope: dict[str, Any], chunks: Sequence[bytes]) -> HttpAnswer:
    """One request to an ASGI application, on an event loop of its own."""
    return asyncio.run(converse(application, scope, chunks))


async def converse(
    application: Any,
    scope: dict[str, Any],
    chunks: Sequence[bytes],
    *,
    leaves: asyncio.Event | None = None,
    hears: asyncio.Event | None = None,
) -> HttpAnswer:
    """
    The same on the caller's loop. The client disconnects when ``leaves`` is set; status 0: nothing came back.

    ``hears`` is set with the first part of a body.
    """
    sent: list[Any] = []
    parts = list(chunks)

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if hears is not None and message.get("body"):
            hears.set()

    await asyncio.wait_for(application(scope, receive, send), 30)
    start = next((message for message in sent if message["type"] == "http.response.start"), None)
    if start is None:
        return HttpAnswer(0, {}, b"")
    names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
    content = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
    return HttpAnswer(start["status"], names, content)
