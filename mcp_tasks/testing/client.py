"""
A small MCP client of revision 2026-07-28, for tests: over HTTP, or straight into Django.

It sends what a published client sends, header by header, and hides nothing: what comes back is plain JSON.
"""

import http.client
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from ..protocol.capabilities import CAPABILITIES_KEY, MODERN, TASKS, VERSION_KEY
from ..protocol.codec import Json, dumps, loads
from ..protocol.errors import McpError
from ..protocol.headers import encode
from ..protocol.tasks import TERMINAL

#: Everything that a client can declare: forms and links, sampling, roots, tasks.
ALL_CAPABILITIES: dict[str, Json] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
    "extensions": {TASKS: {}},
}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP response: lower-case header names, the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def messages(self) -> list[Json]:
        """The JSON-RPC messages in it, one, or one for each event."""
        if not self.body:
            return []
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            lines = self.body.decode().split("\n")
            return [loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        return [loads(self.body)]


Post = Callable[[bytes, Mapping[str, str]], HttpAnswer]


class McpClient:
    """
    Calls a server with one identity and one set of declared capabilities.

    ``request`` returns the result object and raises McpError for a JSON-RPC error; ``post`` gives the bare HTTP
    answer. ``notifications`` collects what came before the last result.
    """

    def __init__(self, post: Post, *, token: str | None = None, capabilities: Mapping[str, Json] | None = None) -> None:
        self._post = post
        self.token = token
        self.capabilities = dict(ALL_CAPABILITIES if capabilities is None else capabilities)
        self.notifications: list[Json] = []
        self._last_id = 0

    @classmethod
    def http(cls, url: str, **options: Any) -> Self:
        """A client of a running server; a connection for each request."""

        def post(body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
            parts = urlsplit(url)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
            try:
                connection.request("POST", parts.path, body, dict(headers))
                response = connection.getresponse()
                names = {name.lower(): value for name, value in response.getheaders()}
                return HttpAnswer(response.status, names, response.read())
            finally:
                connection.close()

        return cls(post, **options)

    @classmethod
    def django(cls, path: str = "/mcp", *, client: Any = None, **options: Any) -> Self:
        """A client straight into Django's URLconf: no server, the test's own thread and transaction."""
        from django.test import Client  # Django's test machinery is wanted only here

        django_client = client or Client()

        def post(body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
            content_type = headers.get("Content-Type", "application/json")
            response: Any = django_client.post(path, body, content_type=content_type, headers=dict(headers))
            content = b"".join(response.streaming_content) if response.streaming else response.content
            return HttpAnswer(response.status_code, {k.lower(): v for k, v in response.items()}, content)

        return cls(post, **options)

    def declaring(self, capabilities: Mapping[str, Json]) -> "McpClient":
        """The same caller with other capabilities."""
        return McpClient(self._post, token=self.token, capabilities=capabilities)

    def envelope(self, method: str, params: Mapping[str, Json] | None = None, **meta: Json) -> dict[str, Json]:
        """A request with the ``_meta`` that every request carries; ``meta`` adds to it."""
        self._last_id += 1
        own_meta = {VERSION_KEY: MODERN, CAPABILITIES_KEY: self.capabilities, **meta}
        return {
            "jsonrpc": "2.0",
            "id": self._last_id,
            "method": method,
            "params": {**(params or {}), "_meta": own_meta},
        }

    def headers(self, message: Mapping[str, Json]) -> dict[str, str]:
        """The headers that mirror a message."""
        method, params = message["method"], message.get("params", {})
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
        }
        named = params.get(_NAMED.get(method, "taskId" if method.startswith("tasks/") else ""))
        if isinstance(named, str):
            headers["Mcp-Name"] = encode(named)
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def post(
        self,
        message: Json,
        headers: Mapping[str, str | None] | None = None,
    ) -> HttpAnswer:
        """Send one message as it is; ``headers`` replace single headers, None leaves one out."""
        own = {
            **(self.headers(message) if isinstance(message, dict) and "method" in message else {}),
            **(headers or {}),
        }
        body = message if isinstance(message, bytes) else dumps(message).encode()
        return self._post(body, {name: value for name, value in own.items() if value is not None})

    def request(self, method: str, params: Mapping[str, Json] | None = None, **meta: Json) -> dict[str, Json]:
        """Call a method; returns its result, raises McpError for its error."""
        answer = self.post(self.envelope(method, params, **meta))
        messages = answer.messages()
        if not messages:
            raise AssertionError(f"HTTP {answer.status} without a message")
        *self.notifications, last = messages
        if "error" in last:
            error = last["error"]
            raise McpError(error["code"], error["message"], error.get("data"))
        result: dict[str, Json] = last["result"]
        return result

    def call_tool(self, name: str, arguments: Mapping[str, Json] | None = None, **more: Json) -> dict[str, Json]:
        """``tools/call``; further params (``inputResponses``, ``requestState``) by their wire names."""
        return self.request("tools/call", {"name": name, "arguments": dict(arguments or {}), **more})

    def get_task(self, task_id: str) -> dict[str, Json]:
        """``tasks/get``."""
        return self.request("tasks/get", {"taskId": task_id})

    def update_task(self, task_id: str, responses: Mapping[str, Json]) -> dict[str, Json]:
        """``tasks/update``."""
        return self.request("tasks/update", {"taskId": task_id, "inputResponses": dict(responses)})

    def cancel_task(self, task_id: str) -> dict[str, Json]:
        """``tasks/cancel``."""
        return self.request("tasks/cancel", {"taskId": task_id})

    def wait_for(
        self, task_id: str, statuses: Iterable[str] = TERMINAL, *, timeout_seconds: float = 15.0
    ) -> dict[str, Json]:
        """Poll until the task has one of these statuses, and return it; AssertionError when it takes too long."""
        wanted, deadline = tuple(statuses), time.monotonic() + timeout_seconds
        while True:
            task = self.get_task(task_id)
            if task["status"] in wanted:
                return task
            if time.monotonic() > deadline:
                raise AssertionError(f"still {task['status']} after {timeout_seconds} s, not {' or '.join(wanted)}")
            time.sleep(0.05)
