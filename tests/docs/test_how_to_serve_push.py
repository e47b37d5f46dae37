"""docs/how-to/serve-push.md: its layer is accepted."""

from typing import Any

from mcp_tasks.notifications.layers import crossing_layer, layer_problem

from .conftest import Page

PAGE = "docs/how-to/serve-push.md"


def test_the_layer_can_be_used_and_reaches_other_processes(page: Page, settings: Any) -> None:
    assert crossing_layer() is None
    settings.CHANNEL_LAYERS = page.settings["CHANNEL_LAYERS"]
    assert layer_problem() is None
    assert crossing_layer() == "default"
