"""The demo site's ASGI application: MCP on ``/mcp``, Django on everything else."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django_app = get_asgi_application()

from mcp_tasks.asgi import mount  # noqa: E402 - needs the apps that get_asgi_application loads

application = mount(django_app, path="mcp")
