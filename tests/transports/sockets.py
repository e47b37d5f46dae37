"""WebSockets that tests open through ``mount``, and the requests on them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mcp_tasks.asgi import mount
from mcp_tasks.protocol.codec import Json
from mcp_tasks.testing.client import ALL_CAPABILITIES, HttpAnswer, McpClient
from tests.support.push import LoopThread, Socket

ORIGIN = "http://testserver"
CANCELLED = "notifications/cancelled"


async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
    """The project's own application, which no test of a socket may reach."""
    raise AssertionError(f"{scope['type']} on {scope['path']} is not ours")


def message(method: str, params: dict[str, Json] | None = None, *, request_id: Json = 1, **meta: Json) -> Any:
    """A request that declares everything."""
    client = McpClient(lambda body, headers: HttpAnswer(0, {}, b""), capabilities=ALL_CAPABILITIES)
    return {**client.envelope(method, params, **meta), "id": request_id}


def listen_to(notifications: Any, *, request_id: Json = "L-1") -> Any:
    return message("subscriptions/listen", {"notifications": notifications}, request_id=request_id)


def call(name: str, arguments: dict[str, Json] | None = None, *, request_id: Json = 1, **meta: Json) -> Any:
    return message("tools/call", {"name": name, "arguments": arguments or {}}, request_id=request_id, **meta)


def cancel(request_id: Json) -> Any:
    """The client does not want the answer of this request."""
    return {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": request_id}}


class Sockets:
    """Opens sockets of one server."""

    def __init__(self, server: LoopThread, token: Callable[[str], str]) -> None:
        self._server, self._token = server, token
        self.application = mount(elsewhere)

    def upgrade(self, headers: dict[str, str] | None = None, **options: Any) -> Socket:
        """An upgrade as it is."""
        return Socket(self._server, self.application, headers, **options)

    def open(self, name: str | None = "alice") -> Socket:
        """An open socket of this user, who has a token in the header."""
        headers = {} if name is None else {"Authorization": f"Bearer {self._token(name)}"}
        socket = self.upgrade(headers)
        socket.accepted()
        return socket

    def listening(self, *task_ids: str, socket: Socket | None = None, request_id: Json = "L-1") -> Socket:
        """A socket that listens to these tasks, after acknowledgement and present states."""
        socket = socket or self.open()
        socket.send(listen_to({"taskIds": [*task_ids]}, request_id=request_id))
        assert socket.next()["params"]["notifications"] == {"taskIds": [*task_ids]}
        assert {socket.next()["params"]["taskId"] for _ in task_ids} == set(task_ids)
        return socket


@pytest.fixture
def sockets(server: LoopThread, token: Callable[[str], str]) -> Sockets:
    return Sockets(server, token)


def session_of(name: str) -> str:
    """The key of a session in which this user is logged in."""
    browser = Client()
    browser.force_login(User.objects.get_or_create(username=name)[0])
    return browser.cookies["sessionid"].value
