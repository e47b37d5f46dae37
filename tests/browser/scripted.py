"""A server that a test writes down, for what the demo's tools never do: it lives inside the browser's WebSocket."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from .console import Console
from .demo import Demo

TASK_ID = "task-1"
CREATED = {
    "taskId": TASK_ID,
    "status": "working",
    "createdAt": "2026-08-01T09:00:00.000Z",
    "lastUpdatedAt": "2026-08-01T09:00:00.000Z",
    "ttlMs": 3_600_000,
}


class RefusedRequest(Exception):
    """Makes the answer to a request an error."""


class Script:
    """Answers like a server with one tool; a test replaces the answers that it is about."""

    def __init__(self, console: Console, *, tool: dict[str, Any] | None = None) -> None:
        self.received: list[dict[str, Any]] = []
        self.tools = [tool or {"name": "odd", "inputSchema": {"type": "object"}}]
        self.answers: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "server/discover": lambda _: {},
            "tools/list": lambda _: {"tools": self.tools},
            "tools/call": lambda _: {"resultType": "task", **CREATED},
            "tasks/update": lambda _: {},
            "subscriptions/listen": self._listen,
        }
        self._socket: Any = None
        self._moments = 0
        console.page.route_web_socket("**/mcp", self._open)
        console.visit()
        console.sign_in("scripted")
        console.page.locator("#tools details").first.wait_for()

    def of(self, method: str) -> list[dict[str, Any]]:
        """The params of each message of a method, without their meta data."""
        found = [message["params"] for message in self.received if message["method"] == method]
        return [{name: value for name, value in params.items() if name != "_meta"} for params in found]

    def tell(self, **changes: Any) -> None:
        """Notify of a change of the task, on the newest listen."""
        self._moments += 1
        listen = [message["id"] for message in self.received if message["method"] == "subscriptions/listen"][-1]
        task = {**CREATED, "lastUpdatedAt": f"2026-08-01T09:00:{self._moments:02}.000Z", **changes}
        self._notify("notifications/tasks", listen, task)

    def ask(self, *schemas: dict[str, Any]) -> None:
        """Let the task ask with these schemas, under the keys q0, q1 and so on."""
        self.tell(status="input_required", inputRequests=questions(*schemas))

    def send(self, message: dict[str, Any]) -> None:
        """Send any message."""
        self._socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    def cut(self, code: int, reason: str) -> None:
        """Close the socket from this side."""
        self._socket.close(code=code, reason=reason)

    def _open(self, socket: Any) -> None:
        self._socket = socket
        socket.on_message(self._receive)

    def _receive(self, text: str) -> None:
        message = json.loads(text)
        self.received.append(message)
        if "id" not in message:
            return
        try:
            result = self.answers[message["method"]](message)
        except RefusedRequest as refused:
            self.send({"id": message["id"], "error": {"code": -32602, "message": str(refused)}})
            return
        if result is not None:
            self.send({"id": message["id"], "result": {"resultType": "complete", **result}})

    def _listen(self, message: dict[str, Any]) -> None:
        self.acknowledge(message, message["params"]["notifications"]["taskIds"])

    def acknowledge(self, message: dict[str, Any], task_ids: list[str]) -> None:
        """Begin a listen for these tasks."""
        accepted = {"notifications": {"taskIds": task_ids}}
        self._notify("notifications/subscriptions/acknowledged", message["id"], accepted)

    def _notify(self, method: str, listen: int, params: dict[str, Any]) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": listen}
        self.send({"method": method, "params": {**params, "_meta": meta}})


@pytest.fixture
def console(open_console: Callable[..., Console], demo: Demo) -> Console:
    """A browser that opens the page once its server is written down."""
    return open_console(demo, visits=False)


@pytest.fixture
def script(console: Console) -> Script:
    return Script(console)


def questions(*schemas: dict[str, Any]) -> dict[str, Any]:
    """Forms with these properties, as ``inputRequests``."""
    return {
        f"q{number}": {
            "method": "elicitation/create",
            "params": {"message": f"Question {number}?", "requestedSchema": {"type": "object", **schema}},
        }
        for number, schema in enumerate(schemas)
    }
