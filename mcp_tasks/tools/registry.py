"""``@tool``, the tools of this process in registration order, and their discovery."""

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import mcp_types
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from .. import conf
from ..protocol.codec import Json
from .definition import UNSET, Tool, Unset, build, is_positive

Function = TypeVar("Function", bound=Callable[..., Any])


class Registry:
    """The tools of this process. Wrong definitions are kept too: checks name them, serving refuses them."""

    def __init__(self) -> None:
        self._tools: list[Tool] = []
        self._lock = threading.Lock()

    def add(self, tool: Tool) -> None:
        """Register a tool; the same function again (a reloaded module) takes its old place."""
        with self._lock:
            for index, known in enumerate(self._tools):
                if known.where == tool.where and known.name == tool.name:
                    self._tools[index] = tool
                    return
            self._tools.append(tool)

    def remove(self, name: str) -> None:
        """Forget a tool; for tests."""
        with self._lock:
            self._tools = [tool for tool in self._tools if tool.name != name]

    def get(self, name: str) -> Tool | None:
        return next((tool for tool in self._tools if tool.name == name), None)

    def __iter__(self) -> Any:
        return iter(list(self._tools))

    def problems(self) -> list[tuple[str, str]]:
        """Check ids and messages: E005 for a name used twice, E009 for a wrong definition."""
        found: list[tuple[str, str]] = []
        seen: dict[str, Tool] = {}
        for tool in self:
            if tool.name in seen:
                found.append(("E005", f"Tool {tool.name} is defined in {seen[tool.name].where} and in {tool.where}."))
            seen.setdefault(tool.name, tool)
            found += [("E009", f"Tool {tool.name}: {problem}.") for problem in tool.problems]
            limit = None if conf.problems() else conf.get_settings().MAX_TTL_MS
            if limit is not None and (tool.ttl_ms is None or (is_positive(tool.ttl_ms) and tool.ttl_ms > limit)):
                found.append(("E009", f"Tool {tool.name}: ttl_ms is beyond MCP_TASKS['MAX_TTL_MS'] ({limit})."))
        return found

    def require_valid(self) -> None:
        """Raise ImproperlyConfigured naming every wrong definition: what serves calls this first."""
        found = self.problems()
        if found:
            raise ImproperlyConfigured(" ".join(message for _, message in found))


registry = Registry()


def discover() -> None:
    """Import the ``mcp_tools`` module of every installed app that has one, as the admin does with its modules."""
    autodiscover_modules("mcp_tools")


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Json] | mcp_types.ToolAnnotations | None = None,
    input_schema: Mapping[str, Json] | None = None,
    output_schema: Mapping[str, Json] | None = None,
    task: conf.TaskMode = "optional",
    inline_first: bool = False,
    ttl_ms: int | Unset | None = UNSET,
    poll_interval_ms: int | None = None,
    permission: str | None = None,
    strict_answers: bool = True,
    max_attempts: int | None = None,
    timeout_seconds: float | None = None,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (),
    max_running: int | None = None,
    max_running_per_owner: int | None = None,
    priority: int = 0,
) -> Callable[[Function], Function]: ...


def tool(function: Any = None, /, **options: Any) -> Any:
    """
    Make a sync or async function a tool; the function itself stays as it is.

    ``name``: the function's own by default. ``description``: the docstring by default. ``annotations``: hints in
    the wire's names; ``idempotentHint`` or ``readOnlyHint`` let a lost run be started again. ``input_schema``,
    ``output_schema``: JSON Schema 2020-12 by hand instead of from the signature. ``task``: "optional" (a task
    for clients that declared the extension), "required" (never without), "never". ``inline_first``: the
    function starts inside the request and may ask or answer before it is a task. ``ttl_ms``: how long the task
    is kept from its creation, None for no limit. ``poll_interval_ms``: a hint to clients. ``permission``: a
    Django permission; who lacks it does not see the tool. ``strict_answers``: False accepts form answers that
    violate their requested schema.

    Of the legs of its tasks: ``max_attempts``: how often one is started before it counts as failed, by default 3
    with ``idempotentHint`` or ``readOnlyHint``, else 1. ``retry_on``: exceptions after which it is started again, with
    a growing pause. ``timeout_seconds``: after so long the token is raised, and soon after the task has failed.
    ``max_running``, ``max_running_per_owner``: how many run at once, over all processes. ``priority``: higher ones
    start first.

    A wrong definition raises nothing here: it is a system check error (E005, E009) and stops what serves.
    """
    unknown = sorted(set(options) - _OPTIONS)
    known = {name: value for name, value in options.items() if name in _OPTIONS}
    if function is not None:
        registry.add(build(function))
        return function

    def decorate(function: Function) -> Function:
        made = build(function, **known)
        made.problems.extend(f"{name} is no option of @tool" for name in unknown)
        registry.add(made)
        return function

    return decorate


#: The keyword parameters of ``@tool``.
_OPTIONS = frozenset(inspect.signature(build).parameters) - {"function"}
