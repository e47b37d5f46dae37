"""Settings of real processes that tell each other of changes; PUSH_LAYER is the channel layer as JSON, or missing."""

import json
import os

from tests.faults.settings import *  # noqa: F403
from tests.faults.settings import INSTALLED_APPS, MCP_TASKS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.push_site"]

if os.environ.get("PUSH_LAYER"):
    CHANNEL_LAYERS = {"default": json.loads(os.environ["PUSH_LAYER"])}

# As a site has them by default, so that nothing is quick because of a heartbeat; and no limit that a test would meet.
MCP_TASKS = {
    **MCP_TASKS,
    "LEASE_SECONDS": 60,
    "HEARTBEAT_SECONDS": 15,
    "LIMITS": {"STREAMS_PER_OWNER": None, "LIVE_TASKS_PER_OWNER": None},
    **json.loads(os.environ.get("FAULTS_MCP_TASKS", "{}")),
}
