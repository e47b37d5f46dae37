"""``tools/list``: which tools, in which order, on which page, and who may keep the answer."""

import base64
from collections.abc import Callable
from typing import Any

import mcp_types
import pytest
from django.contrib.auth.models import Permission, User
from pydantic import BaseModel

from mcp_tasks import TaskContext
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.rpc import discovery
from mcp_tasks.testing.client import McpClient
from mcp_tasks.tools.registry import registry
from tests.support.inprocess import rpc_client

Register = Callable[..., Any]


@pytest.fixture
def client() -> McpClient:
    """A caller who needs no database."""
    return rpc_client("alice")


def names(client: McpClient, **params: Any) -> list[str]:
    return [tool["name"] for tool in client.request("tools/list", params)["tools"]]


def register(tool: Register, *added: str, **options: Any) -> None:
    for name in added:
        tool(name=name, **options)(lambda: "")


def test_tools_keep_the_order_of_their_registration(client: McpClient, mcp_tools: Register) -> None:
    before = [tool.name for tool in registry]
    register(mcp_tools, "zebra", "ant", "mule")
    assert names(client) == [*before, "zebra", "ant", "mule"]
    assert names(client) == names(client.declaring({}))


def test_the_answer_has_the_published_shape(client: McpClient) -> None:
    result = client.request("tools/list")
    mcp_types.ListToolsResult.model_validate(result)
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 60_000, "public")
    assert "nextCursor" not in result


class Report(BaseModel):
    """What a tool returns."""

    rows: int


def test_a_definition_says_what_the_tool_takes_gives_and_does(client: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(title="Count rows", annotations={"readOnlyHint": True}, task="required")
    def count(table: str, ctx: TaskContext, limit: int = 10) -> Report:
        """Count the rows of a table."""
        return Report(rows=limit)

    definition = client.request("tools/list")["tools"][-1]
    assert definition == {
        "name": "count",
        "title": "Count rows",
        "description": "Count the rows of a table.",
        "inputSchema": {
            "type": "object",
            "properties": {"table": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
            "required": ["table"],
            "additionalProperties": False,
        },
        "outputSchema": {
            "type": "object",
            "title": "Report",
            "description": "What a tool returns.",
            "properties": {"rows": {"type": "integer"}},
            "required": ["rows"],
        },
        "annotations": {"readOnlyHint": True},
    }


def test_pages_follow_each_other_without_gap_or_repetition(
    client: McpClient, mcp_tools: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(mcp_tools, *[f"t{number}" for number in range(8)])
    everything = names(client)
    monkeypatch.setattr(discovery, "TOOLS_PER_PAGE", 3)
    collected, scopes, params = [], set(), {}
    while True:
        page = client.request("tools/list", params)
        assert len(page["tools"]) <= 3
        collected += [tool["name"] for tool in page["tools"]]
        scopes.add(page["cacheScope"])
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    assert collected == everything
    assert scopes == {"public"}


def test_no_cursor_is_left_where_the_last_page_is_exactly_full(
    client: McpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "TOOLS_PER_PAGE", len(names(client)))
    assert "nextCursor" not in client.request("tools/list")


def test_a_cursor_stays_good_when_tools_come_and_go_elsewhere(
    client: McpClient, mcp_tools: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(mcp_tools, "a", "b", "c", "d")
    monkeypatch.setattr(discovery, "TOOLS_PER_PAGE", names(client).index("b") + 1)
    cursor = client.request("tools/list")["nextCursor"]
    registry.remove("a")
    register(mcp_tools, "e")
    assert names(client, cursor=cursor) == ["c", "d", "e"]


def encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


@pytest.mark.parametrize(
    "cursor", ["", "nowhere", "=", "====", "é", "\ud800", "A" * 10_000, encoded("nowhere"), None, 5, True, [], {}]
)
def test_what_is_no_cursor_is_refused(client: McpClient, cursor: Any) -> None:
    with pytest.raises(McpError) as refused:
        client.request("tools/list", {"cursor": cursor})
    assert refused.value.code == -32602


def permitted(*codenames: str) -> McpClient:
    user = User.objects.create_user(f"user{User.objects.count()}")
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return rpc_client(user.username, user=User.objects.get(pk=user.pk))


@pytest.mark.django_db
def test_a_tool_with_a_permission_is_shown_to_who_has_it_and_makes_the_list_private(mcp_tools: Register) -> None:
    register(mcp_tools, "purge", permission="auth.delete_user")
    holder, lacking, nobody = permitted("delete_user"), permitted("add_user"), rpc_client()
    assert "purge" in names(holder)
    assert "purge" not in names(lacking)
    assert "purge" not in names(nobody)
    for client in (holder, lacking, nobody):
        assert client.request("tools/list")["cacheScope"] == "private"


@pytest.mark.django_db
def test_a_cursor_does_not_tell_of_a_tool_that_is_hidden(mcp_tools: Register) -> None:
    register(mcp_tools, "purge", permission="auth.delete_user")
    with pytest.raises(McpError):
        names(permitted(), cursor=encoded("purge"))


@pytest.mark.django_db
def test_a_hidden_tool_is_an_unknown_tool(mcp_tools: Register) -> None:
    register(mcp_tools, "purge", permission="auth.delete_user")
    client = permitted()
    errors = []
    for name in ("purge", "burge"):
        with pytest.raises(McpError) as refused:
            client.call_tool(name, {"a": 1})
        errors.append((refused.value.code, refused.value.message.replace(name, "?"), refused.value.data))
    assert errors == [(-32602, "Unknown tool: ?", None)] * 2


@pytest.mark.django_db
def test_a_refused_call_of_a_hidden_tool_leaves_nothing_behind(mcp_tools: Register) -> None:
    from mcp_tasks.models import OwnerGate, Task

    register(mcp_tools, "purge", permission="auth.delete_user", task="required")
    with pytest.raises(McpError):
        permitted().call_tool("purge")
    assert not Task.objects.exists()
    assert not OwnerGate.objects.exists()


@pytest.mark.django_db
def test_a_permission_is_asked_for_again_with_every_call(mcp_tools: Register) -> None:
    register(mcp_tools, "purge", permission="auth.delete_user", task="never")
    user = User.objects.create_user("eve")
    user.user_permissions.set(Permission.objects.filter(codename="delete_user"))
    assert rpc_client("eve", user=User.objects.get()).call_tool("purge")["content"]
    user.user_permissions.clear()
    with pytest.raises(McpError, match="Unknown tool"):
        rpc_client("eve", user=User.objects.get()).call_tool("purge")
