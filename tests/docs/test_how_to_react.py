"""docs/how-to/react-to-changes.md: its notifier, its receiver, its function; the page's own test is run elsewhere."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from mcp_tasks import conf
from mcp_tasks.notifications import publisher
from mcp_tasks.testing import McpClient, run_until_idle
from mcp_tasks.tools.context import TaskContext

from .conftest import Page

PAGE = "docs/how-to/react-to-changes.md"


def test_the_notifier_of_the_settings_hears_of_questions(
    page: Page, ada: McpClient, mcp_tools: Callable[..., object]
) -> None:
    assert conf.get_settings().NOTIFIERS == ("shop.notifiers.tell_the_team",)

    @mcp_tools
    def ask(ctx: TaskContext) -> str:
        """Ask."""
        ctx.elicit("sure", "Sure?", {"type": "object", "properties": {}})
        return "asked"

    ada.call_tool("ask")
    questions = page.module("shop.notifiers").questions
    assert questions.empty()
    run_until_idle()
    assert questions.get_nowait() == "Sure?"


def test_in_an_ordinary_test_the_callbacks_are_run_by_hand(
    page: Page,
    db: None,
    token: Callable[[str], str],
    mcp_tools: Callable[..., object],
    django_capture_on_commit_callbacks: Any,
) -> None:
    @mcp_tools
    def ship() -> str:
        """Ship."""
        return "shipped"

    receivers = page.module("shop.receivers")
    client = McpClient.django(token=token("ada"))
    client.call_tool("ship")
    with django_capture_on_commit_callbacks(execute=True):
        run_until_idle()
    assert receivers.outcomes == {"ship completed": 1}


@pytest.mark.django_db(transaction=True)
def test_a_changed_list_is_told_at_the_commit(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(publisher.hub, "publish", told.append)
    with transaction.atomic():
        page.module("shop.lists").prompts_were_edited()
        assert told == []
    assert [getattr(change, "kind", None) for change in told] == ["prompts"]
    with pytest.raises(ValueError, match="tools, prompts, resources"):
        publisher.list_changed("toolz")  # type: ignore[arg-type]
