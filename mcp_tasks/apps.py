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
        from .access.refusals import note
        from .notifications.publisher import notify, publish, read
        from .notifications.waiters import tell
        from .runners.base import import_backend, ring
        from .signals import access_refused
        from .store import effects, waiting
        from .tools.cancellation import raise_token
        from .tools.registry import discover

        discover()
        import_backend()
        access_refused.connect(note, dispatch_uid="mcp_tasks.access.refusals")
        if not effects.token_hooks:
            effects.token_hooks.append(raise_token)
            effects.enqueue_hooks.append(ring)
            effects.publish_hooks += [publish, notify]
            effects.snapshot_readers.append(read)
            waiting.tellers.append(tell)
