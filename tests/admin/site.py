"""The demo site under a strict Content-Security-Policy on every page, for tests that use its admin in a browser."""

from collections.abc import Callable
from typing import Any

from project.settings import *  # noqa: F403
from project.settings import MCP_TASKS as DEMO
from project.settings import MIDDLEWARE as DEMO_MIDDLEWARE

POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"
MIDDLEWARE = ["tests.admin.site.strict", *DEMO_MIDDLEWARE]
TIME_ZONE = "Europe/Vienna"
#: Rows stay as the tests wrote them.
MCP_TASKS = {**DEMO, "RUNNER": {"BACKEND": "mcp_tasks.testing.IdleRunner"}, "SWEEP_SECONDS": 0}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"all": {"format": "%(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "all"}},
    "root": {"handlers": ["console"], "level": "DEBUG"},
}


def strict(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """A middleware: the browser loads and runs only what this site serves as files."""

    def respond(request: Any) -> Any:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return respond
