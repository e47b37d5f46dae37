"""Requests that tests take apart: right in everything until a test spoils a part of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp_tasks.protocol.codec import dumps
from mcp_tasks.testing.client import ALL_CAPABILITIES, HttpAnswer, McpClient
from tests.support.adapters import Wire

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
MODERN = "2026-07-28"


@dataclass(slots=True)
class Draft:
    """An HTTP request in parts. ``body`` replaces the text of the message."""

    message: dict[str, Any]
    headers: dict[str, str]
    method: str = "POST"
    body: bytes | None = None

    @property
    def text(self) -> bytes:
        return dumps(self.message).encode() if self.body is None else self.body

    @property
    def params(self) -> dict[str, Any]:
        found: dict[str, Any] = self.message["params"]
        return found

    @property
    def meta(self) -> dict[str, Any]:
        found: dict[str, Any] = self.params["_meta"]
        return found

    def send(self, wire: Wire) -> HttpAnswer:
        return wire.send(self.text, self.headers, method=self.method)


Spoil = Callable[[Draft], None]


def draft(method: str = "tools/call", params: dict[str, Any] | None = None, *, request_id: Any = "r-1") -> Draft:
    """A valid request of an anonymous caller who declares everything."""
    client = McpClient(lambda body, headers: HttpAnswer(0, {}, b""), capabilities=ALL_CAPABILITIES)
    if params is None:
        params = {"name": "add", "arguments": {"a": 2, "b": 3}}
    message = {**client.envelope(method, params), "id": request_id}
    return Draft(message, client.headers(message))


def error_of(answer: HttpAnswer) -> tuple[int, int | None, Any]:
    """HTTP status, JSON-RPC error code and id; None where there is none."""
    messages = answer.messages()
    if not messages:
        return answer.status, None, None
    (message,) = messages
    return answer.status, message.get("error", {}).get("code"), message.get("id")
