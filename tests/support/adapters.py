"""The ways into the server without a socket: the Django view under WSGI and ASGI, and the ASGI endpoint."""

import asyncio
from collections.abc import Mapping
from typing import Any

from django.core.handlers.asgi import ASGIHandler

from mcp_tasks.testing.client import HttpAnswer, McpClient
from mcp_tasks.transports.http.endpoint import endpoint

ADAPTERS = ("view-wsgi", "view-asgi", "endpoint")


def make_client(adapter: str, **options: Any) -> McpClient:
    """A client through one adapter."""
    if adapter == "view-wsgi":
        return McpClient.django(**options)
    application = endpoint if adapter == "endpoint" else ASGIHandler()

    def post(body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        return call(application, body, headers)

    return McpClient(post, **options)


def scope_of(headers: Mapping[str, str], *, method: str = "POST", path: str = "/mcp", size: int = 0) -> dict[str, Any]:
    """An HTTP scope as servers make it."""
    pairs = {"host": "testserver", "content-length": str(size), **{k.lower(): v for k, v in headers.items()}}
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


def call(application: Any, body: bytes, headers: Mapping[str, str], *, method: str = "POST") -> HttpAnswer:
    """One request to an ASGI application, on an event loop of its own."""
    return asyncio.run(_call(application, body, headers, method))


async def _call(application: Any, body: bytes, headers: Mapping[str, str], method: str) -> HttpAnswer:
    sent: list[Any] = []
    messages: asyncio.Queue[Any] = asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": body, "more_body": False})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = scope_of(headers, method=method, size=len(body))
    await asyncio.wait_for(application(scope, messages.get, send), 30)
    start = next(message for message in sent if message["type"] == "http.response.start")
    names = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    content = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
    return HttpAnswer(start["status"], names, content)
