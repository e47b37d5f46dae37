"""docs/how-to/add-mcp-methods.md: its methods are announced and answer."""

import pytest

from mcp_tasks import McpError
from mcp_tasks.rpc import method
from mcp_tasks.rpc.methods import KNOWN, Traits, table
from mcp_tasks.testing import McpClient

from .conftest import Page
from .pages import ROOT
from .pages import table as table_of

PAGE = "docs/how-to/add-mcp-methods.md"


def test_prompts_are_announced_listed_and_got(ada: McpClient) -> None:
    assert ada.request("server/discover")["capabilities"]["prompts"] == {}
    listed = ada.request("prompts/list")
    assert (listed["prompts"][0]["name"], listed["ttlMs"], listed["cacheScope"]) == ("greet", 60_000, "private")
    got = ada.request("prompts/get", {"name": "greet", "arguments": {"name": "Bo"}})
    assert got["messages"][0]["content"]["text"] == "Greet Bo politely."
    assert got["resultType"] == "complete"
    with pytest.raises(McpError, match="Unknown prompt"):
        ada.request("prompts/get", {"name": "insult"})


def test_a_method_of_the_project_has_its_capability_and_its_header(ada: McpClient) -> None:
    assert ada.request("server/discover")["capabilities"]["experimental"] == {"stock": {"version": 1}}
    message = ada.envelope("stock/read", {"item": "lamp"})
    assert ada.post(message, {"Mcp-Name": "lamp"}).messages()[0]["result"]["pieces"] == 12
    assert ada.post(message, {"Mcp-Name": "chair"}).status == 400
    assert ada.post(message).status == 400


def test_what_is_served_by_the_app_cannot_be_replaced(page: Page) -> None:
    for name in ("server/discover", "tools/list", "tools/call", "tasks/get", "tasks/update", "tasks/cancel"):
        with pytest.raises(ValueError, match=name):
            method(name)


def test_the_table_says_what_the_app_knows_of_each_method(page: Page) -> None:
    documented = {}
    for names, capability, asks, cacheable, param in table_of(ROOT / PAGE, "## Methods that MCP knows"):
        for name in names.split(", "):
            documented[name.strip("`")] = Traits(
                capability=capability.strip("`"),
                name_param=param.strip("`") or None,
                asks=asks == "yes",
                cacheable=cacheable == "yes",
            )
    free = {name for name in KNOWN if name not in table.methods or table.methods[name].function is not None}
    assert documented == {name: KNOWN[name] for name in free}
