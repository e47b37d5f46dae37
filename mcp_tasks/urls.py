"""The MCP view: ``path("mcp", include("mcp_tasks.urls"))``."""

from django.urls import path

from .transports.http.view import mcp

app_name = "mcp_tasks"
urlpatterns = [path("", mcp, name="mcp")]
