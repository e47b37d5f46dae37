from django.urls import include, path

urlpatterns = [path("mcp", include("mcp_tasks.urls"))]
