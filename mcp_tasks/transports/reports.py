"""Django's error reports, which go to ADMINS by mail: without the ids of tasks, which let their holder in."""

import re
from copy import copy
from functools import lru_cache
from typing import Any

from django.http import HttpRequest
from django.views.debug import get_exception_reporter_filter

#: By name, as they stand in ``request.META``. ``Mcp-Name`` repeats the id that a message is about.
_HIDDEN = "MCP_TASK_ID|MCP_NAME"


def hide_capabilities(request: HttpRequest) -> None:
    """Report this request without the headers that carry a task's id, and otherwise as the project wants it."""
    found = get_exception_reporter_filter(request)
    request.exception_reporter_filter = _hiding(found)


@lru_cache(maxsize=8)  # every request asks, and a project has one
def _hiding(found: Any) -> Any:
    hidden = getattr(found, "hidden_settings", None)
    if hidden is None:  # no heir of Django's: what it hides is the project's own business
        return found
    own = copy(found)
    own.hidden_settings = re.compile(f"{hidden.pattern}|{_HIDDEN}", hidden.flags)
    return own
