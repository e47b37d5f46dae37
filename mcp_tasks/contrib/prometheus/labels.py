"""Labels with a bounded number of values: what a stranger can choose is never one of them."""

import threading
from collections.abc import Collection

from mcp_tasks.protocol import errors
from mcp_tasks.rpc.watching import OTHER
from mcp_tasks.tools.registry import registry

#: So many tools have a label of their own in one process; the rest share one.
TOOLS_LIMIT = 50

#: Codes of JSON-RPC and MCP. Tools may raise any other number.
CODES = {
    errors.PARSE_ERROR,
    errors.INVALID_REQUEST,
    errors.METHOD_NOT_FOUND,
    errors.INVALID_PARAMS,
    errors.INTERNAL_ERROR,
    errors.HEADER_MISMATCH,
    errors.MISSING_CLIENT_CAPABILITY,
    errors.UNSUPPORTED_PROTOCOL_VERSION,
}


class Tools:
    """The label of a tool: its name while it is registered, for the first fifty that are seen."""

    def __init__(self, limit: int = TOOLS_LIMIT) -> None:
        self._limit = limit
        self._named: set[str] = set()
        self._lock = threading.Lock()

    def label(self, name: object) -> str:
        """A name that was labelled once keeps its label, or its series would break off."""
        if not isinstance(name, str):
            return OTHER
        if name in self._named:
            return name
        with self._lock:
            if len(self._named) < self._limit and registry.get(name) is not None:
                self._named.add(name)
        return name if name in self._named else OTHER


def one_of(value: object, known: Collection[str]) -> str:
    """The value where it is known, else ``other``."""
    return value if isinstance(value, str) and value in known else OTHER


def code(number: int | None) -> str:
    """How a request ended: ``ok``, or the code of its error."""
    if number is None:
        return "ok"
    return str(number) if number in CODES else OTHER


def actor(name: object) -> str:
    """Who did it, without a name: ``operator:17`` and ``command:root`` are operators."""
    kind = str(name).partition(":")[0]
    return one_of("operator" if kind == "command" else kind, ("client", "operator", "janitor", "server"))
