"""docs/reference/settings.md: its example says what the server says."""

from typing import Any

from mcp_tasks import conf
from mcp_tasks.testing import McpClient

from .conftest import Page

PAGE = "docs/reference/settings.md"


def test_the_server_says_what_the_settings_say(ada: McpClient) -> None:
    found = ada.request("server/discover")
    assert found["instructions"] == "Ask before you order."
    info = found["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert info == {"name": "shop", "version": "3.1", "title": "The shop"}


def test_a_dict_replaces_only_the_keys_that_it_names(page: Page) -> None:
    limits = conf.get_settings().LIMITS
    assert (limits.LIVE_TASKS_PER_OWNER, limits.INPUT_KEYS) == (50, 64)


def test_the_default_time_to_live_is_never_beyond_the_longest(page: Page, settings: Any) -> None:
    assert conf.get_settings().effective_ttl_ms == 21_600_000
    for wanted in ({"DEFAULT_TTL_MS": None}, {}):
        settings.MCP_TASKS = {**wanted, "MAX_TTL_MS": 1000}
        assert conf.get_settings().effective_ttl_ms == 1000
