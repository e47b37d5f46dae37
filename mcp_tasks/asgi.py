"""``mount`` in a project's ``asgi.py``: MCP before Django's handler, over HTTP and WebSocket, and the runner."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async

from .runners.base import get_runner
from .transports.http.checks import require_servable
from .transports.http.endpoint import Receive, Scope, Send, endpoint
from .transports.stopping import hear_signals
from .transports.websocket import operators
from .transports.websocket.consumers import McpConsumer

#: Any ASGI application; frameworks disagree about the exact types of its arguments.
Application = Callable[[Any, Any, Any], Awaitable[None]]

DRAIN_SECONDS = 8.0


class Mounted:
    """MCP on one path, over HTTP and over WebSocket, the socket of the admin below it; all else is handed on."""

    def __init__(self, django_app: Application, path: str) -> None:
        self._django_app = django_app
        self._path = "/" + path.strip("/")
        self._sockets: dict[str, Application] = {
            self._path: McpConsumer.as_asgi(),
            f"{self._path.rstrip('/')}/operators": operators.OperatorConsumer.as_asgi(),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        path = _path(scope)
        if scope["type"] == "http" and path == self._path:
            await endpoint(scope, receive, send)
        elif scope["type"] == "websocket" and path in self._sockets:
            await self._sockets[path](scope, receive, send)
        else:
            await self._django_app(scope, receive, send)


def _path(scope: Scope) -> str:
    """Below the root of the site, with or without a slash at its end."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path.removesuffix("/") or "/"


def mount(django_app: Application, path: str = "mcp") -> Mounted:
    """
    Serve MCP on ``path`` before Django's handler, and start the runner of this process.

    Answers the lifespan protocol of servers that have it (uvicorn) by itself, since Django's handler has none: at
    their end legs are drained for eight seconds. A second WebSocket, ``operators`` below the path, tells open pages of
    the admin when to look. WebSockets on other paths go to ``django_app``. Raises ImproperlyConfigured naming every
    wrong setting and tool.
    """
    require_servable()
    get_runner().ensure_started()
    mounted = Mounted(django_app, path)
    operators.mounted_at(f"{path.strip('/')}/operators")
    return mounted


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            hear_signals()
            await sync_to_async(get_runner().ensure_started, thread_sensitive=False)()
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await sync_to_async(get_runner().drain, thread_sensitive=False)(DRAIN_SECONDS)
            await send({"type": "lifespan.shutdown.complete"})
            return
