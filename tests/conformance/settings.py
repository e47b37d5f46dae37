"""The demo site with the conformance suite's fixtures instead of its own tools, open to anonymous callers."""

from project.settings import *  # noqa: F403 - the site differs in the names below only
from project.settings import INSTALLED_APPS as _DEMO_APPS
from project.settings import MCP_TASKS as _DEMO

# Not "project" beside it: both define failing_job, and the suite calls whichever tool is listed first.
INSTALLED_APPS = [app for app in _DEMO_APPS if app != "project"] + ["tests.conformance"]

MCP_TASKS = {
    **_DEMO,
    # The suite cannot send credentials.
    "ALLOW_ANONYMOUS": True,
}
