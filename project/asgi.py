"""The demo site's ASGI application: MCP on ``/mcp``, static files, and Django on everything else."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django_app = get_asgi_application()

# They need the apps that get_asgi_application loads.
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler  # noqa: E402

from mcp_tasks.asgi import mount  # noqa: E402

# Fit for a demo: it finds each file anew and sends it through Python. A site in production has a web server for that.
application = mount(ASGIStaticFilesHandler(django_app), path="mcp")
