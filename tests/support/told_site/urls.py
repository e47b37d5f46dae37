"""The admin, REST, probes, metrics, and MCP as a Django view beside the endpoint of ``mount``."""

from django.urls import include, path

from mcp_tasks.contrib.prometheus.views import open_metrics
from project.urls import urlpatterns as demo

urlpatterns = [
    *demo,
    path("view", include("mcp_tasks.urls")),
    path("api/", include("mcp_tasks.transports.rest.urls")),
    path("health/", include("mcp_tasks.contrib.health")),
    path("metrics", open_metrics),
]
