"""The settings of the suite with the metrics installed, for processes of their own."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "mcp_tasks.contrib.prometheus"]
