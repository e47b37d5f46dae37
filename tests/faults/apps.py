"""The app of the fault tests: what sites wait for in seconds, and no setting shortens, is shortened here."""

import os

from django.apps import AppConfig


class FaultsConfig(AppConfig):
    """Its processes have a shorter grace and drain, where the test that starts them says so."""

    name = "tests.faults"

    def ready(self) -> None:
        if grace := os.environ.get("FAULTS_GRACE_SECONDS"):
            from mcp_tasks.execution import overdue

            overdue.GRACE_SECONDS = float(grace)
        if drain := os.environ.get("FAULTS_DRAIN_SECONDS"):
            from mcp_tasks import asgi

            asgi.DRAIN_SECONDS = float(drain)
