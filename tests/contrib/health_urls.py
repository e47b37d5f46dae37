"""The probes, mounted."""

from django.urls import include, path

urlpatterns = [path("health/", include("mcp_tasks.contrib.health"))]
