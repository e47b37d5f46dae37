"""README.md: its tool works, and both ways in are there."""

from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import call_command
from django.urls import reverse

from mcp_tasks.testing import McpClient, run_until_idle

from .conftest import Page
from .pages import ROOT, blocks

PAGE = "README.md"


def test_the_tool_asks_and_answers(ada: McpClient) -> None:
    task = ada.call_tool("restock", {"item": "lamps"})
    run_until_idle()
    assert ada.get_task(task["taskId"])["inputRequests"]["pieces"]["params"]["message"] == "How many lamps?"
    ada.update_task(task["taskId"], {"pieces": {"action": "accept", "content": {"pieces": 3}}})
    run_until_idle()
    assert ada.get_task(task["taskId"])["result"]["content"][0]["text"] == "ordered 3 lamps"


def test_both_ways_in_are_there(page: Page) -> None:
    assert reverse("mcp_tasks:mcp", urlconf="mysite.urls") == "/mcp"
    assert type(page.module("mysite.asgi").application).__name__ == "Mounted"


@pytest.mark.django_db
def test_the_commands_exist_and_the_token_is_a_users(page: Page, token: Callable[[str], str]) -> None:
    (step,) = [block for block in blocks(ROOT / PAGE) if block.mark == "run"]
    key = token("ada")
    printed = StringIO()
    for line in step.text.splitlines():
        call_command(*line.removeprefix("python manage.py ").split(), stdout=printed)
    assert key in printed.getvalue()
