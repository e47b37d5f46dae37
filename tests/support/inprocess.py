"""A client straight into the dispatcher: the test's own thread and transaction, no HTTP."""

from collections.abc import Mapping
from typing import Any

from mcp_tasks.rpc.caller import Caller
from mcp_tasks.rpc.dispatch import serve
from mcp_tasks.rpc.requests import Work
from mcp_tasks.store.types import Owner
from mcp_tasks.testing.client import HttpAnswer, McpClient
from mcp_tasks.transports.http.streams import event


def rpc_client(name: str | None = None, *, user: Any = None, **options: Any) -> McpClient:
    """A client of the owner with this name, or of nobody."""
    owner = None if name is None else Owner(("test", name), name)
    caller = Caller(owner, user)

    def post(body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        return answer(caller, body, headers)

    return McpClient(post, **options)


def answer(caller: Caller, body: bytes | str, headers: Mapping[str, str] | None) -> HttpAnswer:
    """What one message is answered with; a handler runs to its end right here."""
    names = None if headers is None else {name.lower(): value for name, value in headers.items()}
    response = serve(body, caller, names)
    emitted: list[str] = []
    if isinstance(response, Work):
        response = response.run(emitted.append)
    text = response.body or ""
    if not emitted:
        return HttpAnswer(response.status, {"content-type": "application/json"}, text.encode())
    stream = "".join(map(event, [*emitted, text]))
    return HttpAnswer(response.status, {"content-type": "text/event-stream"}, stream.encode())
