"""The metrics, mounted, beside the server that they are about."""

from django.urls import include, path

from mcp_tasks.contrib.prometheus import views

urlpatterns = [
    path("mcp", include("mcp_tasks.urls")),
    path("metrics", views.metrics),
    path("open-metrics", views.open_metrics),
]
