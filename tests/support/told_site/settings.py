"""Settings of the demo site with every way in mounted, and logs that keep nothing to themselves."""

import logging
import traceback

from tests.faults.settings import *  # noqa: F403
from tests.faults.settings import INSTALLED_APPS as DEMO_APPS
from tests.faults.settings import MCP_TASKS as SHORT

DEBUG = True  # Django tells of its SQL only then
ROOT_URLCONF = "tests.support.told_site.urls"
WSGI_APPLICATION = "tests.support.told_site.wsgi.application"
INSTALLED_APPS = [*DEMO_APPS, "mcp_tasks.contrib.prometheus", "mcp_tasks.contrib.opentelemetry"]
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.TokenAuthentication"],
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
MCP_TASKS = {**SHORT, "LEASE_SECONDS": 30, "HEARTBEAT_SECONDS": 5}


class Everything(logging.Formatter):
    """A record with all its fields, in the two ways that formatters write values."""

    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={value!r} {value}" for name, value in vars(record).items()]
        raised = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        return f"{record.name}: {record.getMessage()} | {' | '.join(fields)} {raised}"


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"everything": {"()": "tests.support.told_site.settings.Everything"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "everything"}},
    "root": {"handlers": ["console"], "level": "DEBUG"},
    "loggers": {
        "django": {"handlers": ["console"], "level": "DEBUG", "propagate": False},
        "django.server": {"handlers": ["console"], "level": "DEBUG", "propagate": False},
        "mcp_tasks": {"level": "DEBUG"},
    },
}
