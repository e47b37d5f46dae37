"""Subscriptions over HTTP that tests open, and what they look for on them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler

from mcp_tasks.protocol.codec import Json
from mcp_tasks.transports.http.endpoint import endpoint
from tests.support.push import LoopThread, Stream

from .requests import Draft, draft

STREAMING = ("view-asgi", "endpoint")
SUBSCRIPTION_ID, SERVER_INFO = "io.modelcontextprotocol/subscriptionId", "io.modelcontextprotocol/serverInfo"
ACKNOWLEDGED, TASKS = "notifications/subscriptions/acknowledged", "notifications/tasks"


def application_of(adapter: str) -> Any:
    return endpoint if adapter == "endpoint" else ASGIHandler()


def listen_draft(notifications: Any, *, token: str | None = None, request_id: Json = "L-1") -> Draft:
    """A request to listen, right in everything else."""
    request = draft("subscriptions/listen", {"notifications": notifications}, request_id=request_id)
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


class Listening:
    """Opens subscriptions through one adapter."""

    def __init__(self, server: LoopThread, adapter: str, token: Callable[[str], str]) -> None:
        self._server, self._adapter, self._token = server, adapter, token

    def send(self, request: Draft) -> Stream:
        """A request as it is."""
        return Stream(self._server, application_of(self._adapter), request.headers, request.text)

    def open(self, name: str | None = "alice", *, request_id: Json = "L-1", **notifications: Any) -> Stream:
        """A stream of this user, before its first message."""
        token = None if name is None else self._token(name)
        return self.send(listen_draft(notifications, token=token, request_id=request_id))

    def to(self, *task_ids: str, name: str | None = "alice", request_id: Json = "L-1") -> Stream:
        """A stream that listens to these tasks, after its acknowledgement and the present state of each."""
        stream = self.open(name, request_id=request_id, taskIds=[*task_ids])
        assert stream.next()["params"]["notifications"] == ({"taskIds": [*task_ids]} if task_ids else {})
        seen = {stream.next()["params"]["taskId"] for _ in task_ids}
        assert seen == set(task_ids)
        return stream


@pytest.fixture(params=STREAMING)
def streaming(request: pytest.FixtureRequest) -> str:
    """Each way into the server that can push."""
    return str(request.param)


@pytest.fixture
def listening(server: LoopThread, streaming: str, token: Callable[[str], str]) -> Listening:
    return Listening(server, streaming, token)


def status_of(message: Any) -> Any:
    """What a task notification says of the status; the method of anything else."""
    return message["params"]["status"] if message.get("method") == TASKS else message.get("method")
