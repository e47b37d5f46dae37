"""The method table: ours and a host project's, with what each method needs and may do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .. import conf
from ..protocol.capabilities import TASKS
from ..protocol.codec import Json, dumps, loads
from ..protocol.subscriptions import LIST_KINDS, LISTEN
from .requests import Request, Response

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the specification says of a method."""

    #: The server capability that announces it; None for the base protocol.
    capability: str | None = None
    #: The parameter that the header ``Mcp-Name`` mirrors.
    name_param: str | None = None
    #: Whether it may answer with questions (``input_required``).
    asks: bool = False
    #: Whether a complete result carries ``ttlMs`` and ``cacheScope``.
    cacheable: bool = False
    #: Whether the client must have declared the Tasks extension.
    needs_tasks: bool = False


#: The catalogue of the specification, so that a host project only says a method's name.
KNOWN: dict[str, Traits] = {
    "server/discover": Traits(cacheable=True),
    "tools/list": Traits(capability="tools", cacheable=True),
    "tools/call": Traits(capability="tools", name_param="name", asks=True),
    "tasks/get": Traits(name_param="taskId", needs_tasks=True),
    "tasks/update": Traits(name_param="taskId", needs_tasks=True),
    "tasks/cancel": Traits(name_param="taskId", needs_tasks=True),
    LISTEN: Traits(),
    "prompts/list": Traits(capability="prompts", cacheable=True),
    "prompts/get": Traits(capability="prompts", name_param="name", asks=True),
    "resources/list": Traits(capability="resources", cacheable=True),
    "resources/templates/list": Traits(capability="resources", cacheable=True),
    "resources/read": Traits(capability="resources", name_param="uri", asks=True, cacheable=True),
    "completion/complete": Traits(capability="completions"),
}


#: Methods that no host project replaces, and the prefix that the Tasks extension keeps for itself.
_OURS = ("server/discover", "tools/list", "tools/call", LISTEN)
_RESERVED = "tasks/"


@dataclass(frozen=True, slots=True)
class Method:
    """One entry. ``handler`` is ours and runs on the serving thread; ``function`` is a host project's."""

    name: str
    traits: Traits
    handler: Callable[[Request], Response] | None = None
    function: Callable[..., Any] | None = None


@dataclass(slots=True)
class MethodTable:
    """All methods by name, and the server capabilities they stand for."""

    methods: dict[str, Method] = field(default_factory=dict)
    capabilities: dict[str, dict[str, Json]] = field(default_factory=dict)

    def get(self, name: str) -> Method | None:
        """The method, unless it belongs to an extension that is switched off."""
        found = self.methods.get(name)
        if found is not None and found.traits.needs_tasks and not conf.get_settings().ENABLED:
            return None
        return found

    def server_capabilities(self, *, pushes: bool) -> dict[str, Json]:
        """What ``server/discover`` announces: exactly what is served, and the extension while it is on."""
        announced: dict[str, Json] = {name: dict(settings) for name, settings in self.capabilities.items()}
        if pushes:
            for kind in LIST_KINDS:
                if kind in announced:
                    announced[kind]["listChanged"] = True
        if conf.get_settings().ENABLED:
            announced["extensions"] = {**announced.get("extensions", {}), TASKS: {}}
        return announced


table = MethodTable()


def ours(name: str) -> Callable[[Callable[[Request], Response]], Callable[[Request], Response]]:
    """Register one of our own methods."""

    def decorate(handler: Callable[[Request], Response]) -> Callable[[Request], Response]:
        traits = KNOWN[name]
        table.methods[name] = Method(name, traits, handler=handler)
        if traits.capability:
            table.capabilities.setdefault(traits.capability, {})
        return handler

    return decorate


def method(
    name: str,
    *,
    capability: str | None = None,
    name_param: str | None = None,
    asks: bool | None = None,
    cacheable: bool | None = None,
) -> Callable[[Function], Function]:
    """
    Serve a further MCP method: ``@method("prompts/get") def prompts_get(params, context): …``.

    The function, sync or async, is called with the request's ``params`` and a TaskContext, and returns the result;
    ``resultType``, ``_meta`` and missing caching hints are added. It may raise McpError, and ask
    (``context.elicit``, ``context.ask``) where the specification lets the method ask. It runs on a thread of its
    own. Its server capability is announced with it.

    For methods that MCP 2026-07-28 knows, everything but the name has its default from there. For others:
    ``capability`` announces it, ``name_param`` is the parameter that ``Mcp-Name`` mirrors, ``asks`` lets it ask,
    ``cacheable`` adds caching hints. Raises ValueError for a name that is ours or begins with ``tasks/``.
    """
    # Not a look into the table: our own methods may not be in it yet when a project registers its.
    if name in _OURS or name.startswith(_RESERVED):
        raise ValueError(f"{name} is served by mcp_tasks itself, or reserved by the Tasks extension")
    known = KNOWN.get(name, Traits())
    traits = Traits(
        capability=capability or known.capability,
        name_param=name_param or known.name_param,
        asks=known.asks if asks is None else asks,
        cacheable=known.cacheable if cacheable is None else cacheable,
    )

    def decorate(function: Function) -> Function:
        table.methods[name] = Method(name, traits, function=function)
        if traits.capability:
            table.capabilities.setdefault(traits.capability, {})
        return function

    return decorate


def capability(name: str, **settings: Json) -> None:
    """Announce a server capability with settings, for example ``capability("experimental", acme={})``."""
    table.capabilities.setdefault(name, {}).update(loads(dumps(settings)))
