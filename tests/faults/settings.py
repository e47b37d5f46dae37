"""Settings of the real processes that fault tests start: the demo site, on a database that the test hands over."""

import json
import os

from project.settings import *  # noqa: F403
from project.settings import INSTALLED_APPS, MCP_TASKS

SECRET_KEY = "faults-only-" + "x" * 40
DATABASES = {"default": json.loads(os.environ["FAULTS_DATABASE"])}
INSTALLED_APPS = [*INSTALLED_APPS, "tests.faults"]

if os.environ.get("FAULTS_DJANGO_TASKS"):
    INSTALLED_APPS += ["django_tasks_db"]
    TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}

CHANNEL_LAYERS = json.loads(os.environ.get("FAULTS_LAYERS", "{}"))

# Short, so that a lost process is noticed within a test.
MCP_TASKS = {
    **MCP_TASKS,
    "LEASE_SECONDS": 3,
    "HEARTBEAT_SECONDS": 1,
    "SWEEP_SECONDS": 1,
    **json.loads(os.environ.get("FAULTS_MCP_TASKS", "{}")),
}
