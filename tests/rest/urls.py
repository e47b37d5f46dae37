"""The REST addresses as a project mounts them."""

from django.urls import include, path

urlpatterns = [
    path("mcp", include("mcp_tasks.urls")),
    path("api/", include("mcp_tasks.transports.rest.urls")),
]
