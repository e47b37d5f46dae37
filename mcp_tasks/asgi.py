"""``mount``: the endpoint before Django's handler, and the embedded runner, in a project's ``asgi.py``."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async

from .runners.base import get_runner
from .transports.http.checks import require_servable
from .transports.http.endpoint import Receive, Scope, Send, endpoint

#: Any ASGI application; frameworks disagree about the exact types of its arguments.
Application = Callable[[Any, Any, Any], Awaitable[None]]

DRAIN_SECONDS = 8.0


class Mounted:
    """An ASGI application: the MCP endpoint on one path, everything else handed on."""

    def __init__(self, django_app: Application, path: str) -> None:
        self._django_app = django_app
        self._path = "/" + path.strip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http" and self._is_ours(scope):
            await endpoint(scope, receive, send)
        elif scope["type"] == "websocket" and self._is_ours(scope):
            await receive()
            await send({"type": "websocket.close"})
        else:
            await self._django_app(scope, receive, send)

    def _is_ours(self, scope: Scope) -> bool:
        root: str = scope.get("root_path", "")
        path: str = scope["path"].removeprefix(root) if root else scope["path"]
        return path in (self._path, self._path + "/")


def mount(django_app: Application, path: str = "mcp") -> Mounted:
    """
    Serve MCP on ``path`` before Django's handler, and start the runner of this process.

    Answers the lifespan protocol of servers that have it (uvicorn) by itself, since Django's handler has none: at
    their end legs are drained for eight seconds. WebSockets on other paths go to ``django_app``. Raises
    ImproperlyConfigured naming every wrong setting and tool.
    """
    require_servable()
    get_runner().ensure_started()
    return Mounted(django_app, path)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await sync_to_async(get_runner().ensure_started, thread_sensitive=False)()
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await sync_to_async(get_runner().drain, thread_sensitive=False)(DRAIN_SECONDS)
            await send({"type": "lifespan.shutdown.complete"})
            return
