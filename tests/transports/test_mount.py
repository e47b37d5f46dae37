"""The endpoint before Django's handler: which paths are its own, and what it does beside HTTP."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_tasks.asgi import mount
from mcp_tasks.runners.base import get_runner
from mcp_tasks.transports import stopping
from tests.support.adapters import converse, scope_of

from .requests import draft

pytestmark = pytest.mark.usefixtures("open_to_all", "own_signals")


async def django_app(scope: Any, receive: Any, send: Any) -> None:
    """Stands for the project: says which path it was given."""
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def status(path: str, *, mounted_at: str = "mcp", root_path: str = "") -> int:
    request = draft()
    scope = {**scope_of(request.headers, path=path), "root_path": root_path}
    return asyncio.run(converse(mount(django_app, path=mounted_at), scope, [request.text])).status


@pytest.mark.parametrize(
    ("mounted_at", "path", "expected"),
    [
        ("mcp", "/mcp", 200),
        ("mcp", "/mcp/", 200),
        ("/api/mcp/", "/api/mcp", 200),
        ("api/mcp", "/api/mcp/", 200),
        ("mcp", "/", 418),
        ("mcp", "/mcp/x", 418),
        ("mcp", "/mcp//", 418),
        ("mcp", "/MCP", 418),
        ("mcp", "/mcpx", 418),
        ("mcp", "/api/mcp", 418),
    ],
)
def test_only_the_path_itself_is_served_and_the_rest_handed_on(mounted_at: str, path: str, expected: int) -> None:
    assert status(path, mounted_at=mounted_at) == expected


def test_the_path_counts_from_where_the_server_mounts_the_application() -> None:
    assert status("/site/mcp", root_path="/site") == 200
    assert status("/site/other", root_path="/site") == 418


def test_what_is_configured_wrongly_is_not_mounted(configure: Callable[..., None]) -> None:
    configure(POLL_INTERVAL=5)
    with pytest.raises(ImproperlyConfigured, match="POLL_INTERVAL"):
        mount(django_app)


def test_a_tool_that_is_defined_wrongly_stops_what_serves(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="sometimes")
    def broken() -> str:
        return ""

    with pytest.raises(ImproperlyConfigured, match="Tool broken"):
        mount(django_app)


def test_a_server_with_a_lifespan_starts_the_runner_and_drains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    mounted = mount(django_app)
    monkeypatch.setattr(type(get_runner()), "ensure_started", lambda self: seen.append("started"))
    monkeypatch.setattr(type(get_runner()), "drain", lambda self, seconds: seen.append("drained"))
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        seen.append(message["type"])

    asyncio.run(mounted({"type": "lifespan"}, receive, send))
    assert seen == ["started", "lifespan.startup.complete", "drained", "lifespan.shutdown.complete"]


def test_a_server_with_a_lifespan_is_heard_before_its_first_stream() -> None:
    """Of a signal that comes while the first stream is on its way nobody else would know."""
    heard: list[int] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        if message["type"] == "lifespan.startup.complete":
            os.kill(os.getpid(), signal.SIGTERM)

    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    asyncio.run(mount(django_app)({"type": "lifespan"}, receive, send))
    assert stopping.is_stopping()
    assert heard == [signal.SIGTERM]
