"""Wiring: discovery of tools, checks, and what happens after a store's commit. No queries."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class McpTasksConfig(AppConfig):
    """The app ``mcp_tasks``."""

    name = "mcp_tasks"
    label = "mcp_tasks"
    verbose_name = _("MCP tasks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401 - registers them
        from .runners.base import ring
        from .store import effects
        from .tools.cancellation import raise_token
        from .tools.registry import discover

        discover()
        if not effects.token_hooks:
            effects.token_hooks.append(raise_token)
            effects.enqueue_hooks.append(ring)
