"""The demo site: its page and the admin. MCP itself is mounted in ``project.asgi``, before Django's handler."""

from django.contrib import admin
from django.urls import path
from django.views.generic import TemplateView

urlpatterns = [
    path("", TemplateView.as_view(template_name="home.html"), name="home"),
    path("admin/", admin.site.urls),
]
