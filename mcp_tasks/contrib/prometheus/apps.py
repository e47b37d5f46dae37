"""Begins to count when the app is installed."""

from importlib.util import find_spec

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from mcp_tasks import observing


class PrometheusConfig(AppConfig):
    """The app ``mcp_tasks.contrib.prometheus``; it has no models."""

    name = "mcp_tasks.contrib.prometheus"
    label = "mcp_tasks_prometheus"
    verbose_name = _("MCP tasks: metrics")

    def ready(self) -> None:
        if find_spec("prometheus_client") is not None:
            from .counting import get_counting

            observing.add(get_counting())
