"""The guided tour of ``demo --once``: a client that drives each thing a task can do, and says what it sees."""

import time
from collections.abc import Callable

from mcp_tasks.protocol.codec import Json
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.testing.client import McpClient

Say = Callable[[str], None]

_BAR_WIDTH = 30
_PROGRESS_KEY = "django-mcp-tasks/progress"


class TourFailed(Exception):
    """The server did something else than the tour expects; the message says what."""


def take(alice: McpClient, bob: McpClient, say: Say) -> None:
    """Create, progress, question, answer, result, cancel; raises TourFailed or AssertionError with the reason."""
    _wait_until_up(alice)
    found = alice.request("server/discover")
    say(
        f"Discovered {found['_meta']['io.modelcontextprotocol/serverInfo']['name']}: {', '.join(found['capabilities'])}"
    )
    _sum(alice, say)
    _report(alice, say)
    _approval(alice, bob, say)
    _cancellation(alice, say)


def _wait_until_up(client: McpClient) -> None:
    for _ in range(100):
        try:
            client.request("server/discover")
            return
        except OSError:
            time.sleep(0.1)
    raise TourFailed("the server does not answer")


def _sum(client: McpClient, say: Say) -> None:
    say("\n1. A synchronous call")
    result = client.call_tool("add", {"a": 2, "b": 3})
    _expect(_text(result) == "5", f"add said {_text(result)}")
    say("   add(2, 3) = 5, at once")


def _report(client: McpClient, say: Say) -> None:
    say("\n2. A task that reports progress")
    task_id = _create(client, say, "build_report", {"rows": 40})
    shown = None
    while True:
        task = client.get_task(task_id)
        numbers = task["_meta"].get(_PROGRESS_KEY)
        if numbers is not None and numbers != shown:
            shown = numbers
            say(f"   {_bar(numbers)} {task.get('statusMessage', '')}")
        if task["status"] != "working":
            break
        time.sleep(0.1)
    _expect(task["status"] == "completed", f"build_report ended as {task['status']}")
    _expect(shown is not None, "no progress was seen")
    say(f"   completed: {_text(task['result'])}")


def _approval(alice: McpClient, bob: McpClient, say: Say) -> None:
    say("\n3. A task that asks a human")
    task_id = _create(alice, say, "needs_approval", {"service": "web"})
    task = alice.wait_for(task_id, ("input_required",))
    question = task["inputRequests"]["approval"]["params"]["message"]
    say(f"   input_required: {question}")
    try:
        bob.get_task(task_id)
    except McpError as refused:
        say(f"   bob asks for the same id: {refused.message}")
    else:
        raise TourFailed("bob could read alice's task")
    alice.update_task(task_id, {"approval": {"action": "accept", "content": {"approve": True}}})
    say("   alice answers: approve = true")
    task = alice.wait_for(task_id)
    _expect(_text(task.get("result", {})) == "deployed web", f"needs_approval ended as {task['status']}")
    say("   completed: deployed web")


def _cancellation(client: McpClient, say: Say) -> None:
    say("\n4. A task that is cancelled")
    task_id = _create(client, say, "countdown", {"n": 100})
    time.sleep(0.6)
    say(f"   {client.get_task(task_id).get('statusMessage', 'counting')}")
    client.cancel_task(task_id)
    status = client.get_task(task_id)["status"]
    _expect(status == "cancelled", f"countdown is {status} after the cancel")
    say("   cancelled, at once")


def _create(client: McpClient, say: Say, tool: str, arguments: dict[str, Json]) -> str:
    created = client.call_tool(tool, arguments)
    _expect(created["resultType"] == "task", f"{tool} did not become a task")
    say(f"   {tool} is a task now, kept for {created['ttlMs'] // 60_000} minutes")
    task_id: str = created["taskId"]
    return task_id


def _bar(numbers: dict[str, float]) -> str:
    done, total = numbers["done"], numbers.get("total") or 1
    filled = round(_BAR_WIDTH * done / total)
    return f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {done:g}/{total:g}"


def _text(result: dict[str, Json]) -> str:
    return "".join(block.get("text", "") for block in result.get("content", []))


def _expect(right: bool, otherwise: str) -> None:
    if not right:
        raise TourFailed(otherwise)
