"""The demo site: its page and the admin. MCP itself is mounted in ``project.asgi``, before Django's handler."""

from django.contrib import admin
from django.urls import path

from .views import HomeView

urlpatterns = [
    path("", HomeView.as_view(), name="home"),
    path("admin/", admin.site.urls),
]
