"""Begins to trace when the app is installed."""

from importlib.util import find_spec

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from mcp_tasks import observing


class OpenTelemetryConfig(AppConfig):
    """The app ``mcp_tasks.contrib.opentelemetry``; it has no models."""

    name = "mcp_tasks.contrib.opentelemetry"
    label = "mcp_tasks_opentelemetry"
    verbose_name = _("MCP tasks: traces")

    def ready(self) -> None:
        if find_spec("opentelemetry") is not None:
            from .tracing import get_tracing

            observing.add(get_tracing())
