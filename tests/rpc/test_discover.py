"""``server/discover``: everything there is to know before the first call."""

from collections.abc import Callable

import mcp_types
import pytest

from mcp_tasks import __version__
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import rpc_client

TASKS = "io.modelcontextprotocol/tasks"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


@pytest.fixture
def client() -> McpClient:
    """A caller who needs no database."""
    return rpc_client("alice")


def test_the_answer_is_complete_and_nothing_is_missing_from_it(client: McpClient) -> None:
    result = client.request("server/discover")
    assert result == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25"],
        "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
        "ttlMs": 60_000,
        "cacheScope": "public",
        "_meta": {SERVER_INFO: {"name": "django-mcp-tasks", "version": __version__}},
    }
    mcp_types.DiscoverResult.model_validate(result)


def test_the_extension_is_announced_without_settings_and_nowhere_else(client: McpClient) -> None:
    capabilities = client.request("server/discover")["capabilities"]
    assert capabilities["extensions"][TASKS] == {}
    assert "tasks" not in capabilities
    assert "tasks" not in capabilities.get("experimental", {})


def test_a_client_without_any_capability_is_told_the_same(client: McpClient) -> None:
    assert client.declaring({}).request("server/discover") == client.request("server/discover")


def test_what_the_settings_say_of_the_server_is_announced(client: McpClient, configure: Callable[..., None]) -> None:
    configure(SERVER={"NAME": "acme", "VERSION": "1.4", "TITLE": "Acme", "INSTRUCTIONS": "Long jobs are tasks."})
    result = client.request("server/discover")
    assert result["instructions"] == "Long jobs are tasks."
    assert result["_meta"][SERVER_INFO] == {"name": "acme", "version": "1.4", "title": "Acme"}
    assert client.request("tools/list")["_meta"][SERVER_INFO]["name"] == "acme"


def test_an_extension_that_is_switched_off_is_not_announced_and_has_no_methods(
    client: McpClient, configure: Callable[..., None]
) -> None:
    configure(ENABLED=False)
    assert client.request("server/discover")["capabilities"] == {"tools": {}}
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        with pytest.raises(McpError) as refused:
            client.request(method, {"taskId": "x"})
        assert refused.value.code == -32601


def test_switched_off_optional_tools_answer_at_once_and_required_ones_are_gone(
    client: McpClient, configure: Callable[..., None], mcp_tools: Callable[..., Callable[[Callable[..., str]], None]]
) -> None:
    @mcp_tools(task="required")
    def task_only() -> str:
        raise AssertionError("never run")

    @mcp_tools(task="optional")
    def either() -> str:
        return "at once"

    configure(ENABLED=False)
    assert client.call_tool("either")["content"][0]["text"] == "at once"
    names = [tool["name"] for tool in client.request("tools/list")["tools"]]
    assert "either" in names
    assert "task_only" not in names
    with pytest.raises(McpError, match="Unknown tool") as refused:
        client.call_tool("task_only")
    assert refused.value.code == -32602


def test_without_the_older_era_only_our_own_version_is_named(client: McpClient, configure: Callable[..., None]) -> None:
    configure(LEGACY_ERA=False)
    assert client.request("server/discover")["supportedVersions"] == ["2026-07-28"]


@pytest.mark.parametrize(
    "method", ["tasks/list", "tasks/result", "ping", "initialize", "logging/setLevel", "roots/list"]
)
def test_removed_methods_do_not_exist(client: McpClient, method: str) -> None:
    answer = client.post(client.envelope(method, {"taskId": "x", "protocolVersion": "2026-07-28"}))
    (message,) = answer.messages()
    assert (answer.status, message["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("method", ["prompts/list", "resources/list", "completion/complete", "subscriptions/listen"])
def test_what_is_not_announced_does_not_exist(client: McpClient, method: str) -> None:
    answer = client.post(client.envelope(method, {"notifications": {}}))
    assert (answer.status, answer.messages()[0]["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize(
    ("level", "code"), [("debug", None), ("emergency", None), ("shouting", -32602), (5, -32602), (None, -32602)]
)
def test_only_a_level_of_the_list_is_a_log_level(client: McpClient, level: object, code: int | None) -> None:
    message = client.envelope("server/discover", **{"io.modelcontextprotocol/logLevel": level})
    answer = client.post(message)
    assert answer.status == 200
    assert answer.messages()[0].get("error", {}).get("code") == code
