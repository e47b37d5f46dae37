"""``@tool``, the tools of this process in registration order, and their discovery."""

import inspect
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, TypeGuard, TypeVar, cast, overload

import mcp_types
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from .. import conf
from ..protocol.codec import Json, JsonError, dumps, loads
from ..protocol.headers import annotated, annotation_problems
from ..protocol.schemas import InvalidSchema, compile_schema
from .schemas import Signature, SignatureProblem

Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PERMISSION = re.compile(r"\w+\.\S+")
_ARGUMENT_ERRORS = 5
_MODES = ("optional", "required", "never")


class _Unset:
    """Marks "not given" where None means something."""


UNSET = _Unset()


@dataclass(slots=True, kw_only=True)
class Tool:
    """A registered function with all that was said of it. ``problems`` holds what makes it unusable."""

    name: str
    function: Callable[..., Any]
    title: str | None
    description: str | None
    annotations: dict[str, Json]
    input_schema: dict[str, Json]
    output_schema: dict[str, Json] | None
    task: conf.TaskMode
    inline_first: bool
    ttl_ms: int | _Unset | None
    poll_interval_ms: int | None
    permission: str | None
    strict_answers: bool
    signature: Signature | None = None
    input_validator: Draft202012Validator | None = None
    output_validator: Draft202012Validator | None = None
    headers: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The function's dotted name, for messages."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def max_attempts(self) -> int:
        """How often a leg is started before a lost one fails the task: 3 where a repeat does no harm."""
        hints = self.annotations
        return 3 if hints.get("idempotentHint") or hints.get("readOnlyHint") else 1

    def resolved_ttl_ms(self) -> int | None:
        """The ttl of its tasks in milliseconds: its own, or the default."""
        return conf.get_settings().effective_ttl_ms if isinstance(self.ttl_ms, _Unset) else self.ttl_ms

    def resolved_poll_interval_ms(self) -> int:
        return self.poll_interval_ms or conf.get_settings().POLL_INTERVAL_MS

    def definition(self) -> dict[str, Json]:
        """The entry in ``tools/list``."""
        optional = {
            "title": self.title,
            "description": self.description,
            "outputSchema": self.output_schema,
            "annotations": self.annotations or None,
        }
        shown = {key: value for key, value in optional.items() if value is not None}
        return {"name": self.name, **shown, "inputSchema": self.input_schema}

    def argument_problem(self, arguments: dict[str, Json]) -> str | None:
        """What is wrong with the arguments by the published schema, as a text that lets a model correct itself."""
        assert self.input_validator is not None
        found = islice(self.input_validator.iter_errors(arguments), _ARGUMENT_ERRORS)  # a caller may send a million
        errors = sorted(found, key=lambda error: [str(part) for part in error.path])
        if not errors:
            return None
        lines = []
        for error in errors:
            where = ".".join(str(part) for part in error.path)
            lines.append(f"{where}: {error.message[:200]}" if where else error.message[:200])
        return "Invalid arguments: " + "; ".join(lines)


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
            if limit is not None and (tool.ttl_ms is None or (_is_positive(tool.ttl_ms) and tool.ttl_ms > limit)):
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
    ttl_ms: int | _Unset | None = UNSET,
    poll_interval_ms: int | None = None,
    permission: str | None = None,
    strict_answers: bool = True,
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


def build(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Json] | mcp_types.ToolAnnotations | None = None,
    input_schema: Mapping[str, Json] | None = None,
    output_schema: Mapping[str, Json] | None = None,
    task: Literal["optional", "required", "never"] = "optional",
    inline_first: bool = False,
    ttl_ms: int | _Unset | None = UNSET,
    poll_interval_ms: int | None = None,
    permission: str | None = None,
    strict_answers: bool = True,
) -> Tool:
    """A Tool from a function and the options of ``@tool``, with its problems noted in it."""
    made = Tool(
        name=name if isinstance(name, str) else function.__name__,
        function=function,
        title=title,
        description=description or inspect.getdoc(function),
        annotations={},
        input_schema={"type": "object"},
        output_schema=None,
        task=task,
        inline_first=inline_first,
        ttl_ms=ttl_ms,
        poll_interval_ms=poll_interval_ms,
        permission=permission,
        strict_answers=strict_answers,
    )
    problems = made.problems
    texts = {"name": name, "title": title, "description": description}
    problems += [f"{key} must be a string" for key, text in texts.items() if not isinstance(text, (str, type(None)))]
    if not _NAME.fullmatch(made.name):
        problems.append("the name must be 1 to 64 letters, digits, '_', '.' or '-'")
    if task not in _MODES:
        problems.append(f"task must be one of {', '.join(_MODES)}, not {task!r}")
    if inline_first and task == "never":
        problems.append('inline_first needs a tool that may become a task, not task="never"')
    if not isinstance(ttl_ms, (_Unset, type(None))) and not _is_positive(ttl_ms):
        problems.append("ttl_ms must be a positive number of milliseconds, or None")
    if poll_interval_ms is not None and not _is_positive(poll_interval_ms):
        problems.append("poll_interval_ms must be a positive number of milliseconds")
    if permission is not None and not (isinstance(permission, str) and _PERMISSION.fullmatch(permission)):
        problems.append('permission must be a Django permission, "app_label.codename"')
    made.annotations = _annotations(annotations, problems)
    try:
        made.signature = Signature(function)
        _schemas(made, input_schema, output_schema)
    except (SignatureProblem, InvalidSchema, JsonError) as problem:
        problems.append(str(problem))
    return made


def _is_positive(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


def _annotations(given: Any, problems: list[str]) -> dict[str, Json]:
    if given is None:
        return {}
    try:
        if not isinstance(given, mcp_types.ToolAnnotations):
            unknown = set(given) - {field.alias for field in mcp_types.ToolAnnotations.model_fields.values()}
            if unknown:
                problems.append(f"{', '.join(sorted(map(str, unknown)))} is no annotation of MCP")
            given = mcp_types.ToolAnnotations.model_validate(dict(given))
        return cast("dict[str, Json]", given.model_dump(by_alias=True, exclude_none=True))
    except (ValidationError, TypeError, ValueError):
        problems.append("annotations must be an object of hints in MCP's names")
        return {}


def _schemas(made: Tool, given_input: Mapping[str, Json] | None, given_output: Mapping[str, Json] | None) -> None:
    assert made.signature is not None
    made.input_schema = _plain(made.signature.input_schema() if given_input is None else given_input)
    if made.input_schema.get("type") != "object":
        raise InvalidSchema('the root of an input schema must have "type": "object"')
    made.input_validator = compile_schema(made.input_schema)
    unknown = set(made.input_schema.get("properties", {})) - set(made.signature.names)
    if given_input is not None and unknown and not made.signature.takes_any:
        raise InvalidSchema(f"the function does not take {', '.join(sorted(unknown))}")
    made.problems.extend(annotation_problems(made.input_schema))
    made.headers = [(path, header) for path, header in annotated(made.input_schema) if isinstance(header, str)]
    output = made.signature.output_schema() if given_output is None else given_output
    if output is not None:
        made.output_schema = _plain(output)
        made.output_validator = compile_schema(made.output_schema)


def _plain(schema: Mapping[str, Json]) -> dict[str, Json]:
    """A schema as the JSON that clients will read: a default of infinity, for one, has no such form."""
    if not isinstance(schema, Mapping):
        raise InvalidSchema("a schema is given as an object")
    return cast("dict[str, Json]", loads(dumps(dict(schema))))


#: The keyword parameters of ``@tool``.
_OPTIONS = frozenset(inspect.signature(build).parameters) - {"function"}
