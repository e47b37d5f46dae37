"""docs/how-to/add-to-a-project.md: its modules, its owner function, its commands."""

from collections.abc import Callable
from io import StringIO

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.urls import reverse

from mcp_tasks import McpError
from mcp_tasks.testing import McpClient
from tests.settings import sqlite

from .conftest import Page
from .pages import ROOT, blocks
from .projects import difference

PAGE = "docs/how-to/add-to-a-project.md"


def test_members_of_a_group_share_their_tasks_and_nobody_else_sees_them(
    ada: McpClient, token: Callable[[str], str], mcp_tools: Callable[..., object]
) -> None:
    @mcp_tools
    def wait_a_while() -> str:
        """Wait."""
        return "waited"

    bea, eve = (McpClient.django(token=token(name)) for name in ("bea", "eve"))
    group = Group.objects.create(name="shop")
    for user in User.objects.filter(username__in=["ada", "bea"]):
        user.groups.add(group)
    task = ada.call_tool("wait_a_while")
    assert bea.get_task(task["taskId"])["status"] == "working"
    with pytest.raises(McpError, match="Task not found"):
        eve.get_task(task["taskId"])


def test_each_module_can_be_imported(page: Page) -> None:
    for name in ("asgi", "asgi_with_channels", "settings_postgresql"):
        page.module(f"mysite.{name}")


def test_the_route_has_the_name_that_the_page_says() -> None:
    (module,) = [block for block in blocks(ROOT / PAGE) if block.target == "mysite/urls.py"]
    assert 'path("mcp", include("mcp_tasks.urls"))' in module.text
    assert reverse("mcp_tasks:mcp", urlconf="tests.urls") == "/mcp"


def test_the_settings_are_those_that_the_app_needs(page: Page) -> None:
    assert page.settings["DATABASES"]["default"]["OPTIONS"] == sqlite("any")["OPTIONS"]
    assert set(page.settings["INSTALLED_APPS"]) <= set(settings.INSTALLED_APPS)


@pytest.mark.django_db
def test_the_commands_print_what_the_page_says(page: Page) -> None:
    printed = ""
    for block in blocks(ROOT / PAGE):
        if block.mark == "run":
            output = StringIO()
            call_command(*block.text.removeprefix("python manage.py ").split(), stdout=output)
            printed = output.getvalue()
        elif block.mark == "prints":
            assert difference(printed, block) is None
