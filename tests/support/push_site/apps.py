"""The app of the site: what a test changes in all of its processes before they do anything."""

import os

from django.apps import AppConfig


class PushSite(AppConfig):
    """PUSH_LOOK_SECONDS is how often a process looks at what it watches, where a layer tells it of changes."""

    name = "tests.support.push_site"

    def ready(self) -> None:
        from mcp_tasks.notifications import reconcile

        seconds = os.environ.get("PUSH_LOOK_SECONDS")
        if seconds:
            reconcile.RECONCILE_SECONDS = float(seconds)
