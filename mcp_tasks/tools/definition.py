"""What a tool is: a function with all that was said of it, and what is wrong with that."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeGuard, cast

import mcp_types
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from .. import conf
from ..protocol.codec import Json, JsonError, dumps, loads
from ..protocol.headers import annotated, annotation_problems
from ..protocol.schemas import InvalidSchema, compile_schema
from .legs import ATTEMPTS, REPEATABLE_ATTEMPTS, LegRules, is_whole
from .schemas import InvalidArguments, Signature, SignatureProblem

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PERMISSION = re.compile(r"\w+\.\S+")
_ARGUMENT_ERRORS = 5
_MODES = ("optional", "required", "never")


class Unset:
    """Marks "not given" where None means something."""


UNSET = Unset()


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
    ttl_ms: int | Unset | None
    poll_interval_ms: int | None
    permission: str | None
    strict_answers: bool
    legs: LegRules = field(default_factory=LegRules)
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
        """How often a leg is started before a lost one fails the task; more than once where a repeat does no harm."""
        if self.legs.max_attempts is not None:
            return self.legs.max_attempts
        hints = self.annotations
        return REPEATABLE_ATTEMPTS if hints.get("idempotentHint") or hints.get("readOnlyHint") else ATTEMPTS

    def resolved_ttl_ms(self) -> int | None:
        """The ttl of its tasks in milliseconds: its own, or the default."""
        return conf.get_settings().effective_ttl_ms if isinstance(self.ttl_ms, Unset) else self.ttl_ms

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
        return "; ".join(lines)

    def convert(self, arguments: dict[str, Json]) -> dict[str, Any]:
        """The values of the function's parameters; InvalidArguments says what its schema or its types do not admit."""
        assert self.signature is not None
        problem = self.argument_problem(arguments)
        if problem is not None:
            raise InvalidArguments(problem)
        return self.signature.convert(arguments)


def build(
    function: Callable[..., Any],
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
        legs=LegRules(
            max_attempts=max_attempts,
            timeout_seconds=timeout_seconds,
            retry_on=retry_on,
            max_running=max_running,
            max_running_per_owner=max_running_per_owner,
            priority=priority,
        ),
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
    if not isinstance(ttl_ms, (Unset, type(None))) and not is_positive(ttl_ms):
        problems.append("ttl_ms must be a positive number of milliseconds, or None")
    if poll_interval_ms is not None and not is_positive(poll_interval_ms):
        problems.append("poll_interval_ms must be a positive number of milliseconds")
    if permission is not None and not (isinstance(permission, str) and _PERMISSION.fullmatch(permission)):
        problems.append('permission must be a Django permission, "app_label.codename"')
    made.annotations = _annotations(annotations, problems)
    problems += made.legs.problems(attempts=made.max_attempts)
    try:
        made.signature = Signature(function)
        _schemas(made, input_schema, output_schema)
    except (SignatureProblem, InvalidSchema, JsonError) as problem:
        problems.append(str(problem))
    return made


def is_positive(number: object) -> TypeGuard[int]:
    return is_whole(number, 1, math.inf)


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
