"""From a function's signature to its JSON Schema, and from JSON arguments to what the function takes."""

import inspect
import types
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from ..protocol.codec import Json
from .context import TaskContext

T = TypeVar("T")

_PREFIX = "arg_"  # a parameter may be called like an attribute of pydantic's models


class SignatureProblem(ValueError):
    """A function that cannot be a tool; the message says which parameter and why."""


class InvalidArguments(ValueError):
    """Arguments that the published schema or the function's types do not admit; its text says which, and why."""


class _Schema(GenerateJsonSchema):
    """Without the titles that pydantic makes up from names: they say nothing to a model and cost it tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Signature:
    """What a tool's function takes: its arguments as a pydantic model, and the name of its context parameter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = _attempt(lambda: get_type_hints(function, include_extras=True), "an annotation cannot be resolved: ")
        self.context_name: str | None = None
        self.takes_any = False
        self.names: list[str] = []
        self.return_type = hints.get("return", Any)
        fields: dict[str, Any] = {}
        for name, parameter in _attempt(lambda: inspect.signature(function)).parameters.items():
            hint = hints.get(name, Any)
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
                raise SignatureProblem(f"parameter {name} is positional; arguments come by name")
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self.takes_any = True
                continue
            if _is_context(hint) or (name == "ctx" and hint is Any):
                if self.context_name is not None:
                    raise SignatureProblem(f"parameters {self.context_name} and {name} both take the context")
                self.context_name = name
                continue
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[_PREFIX + name] = (_attempt(partial(_aliased, hint, name), f"parameter {name}: "), default)
            self.names.append(name)
        config = ConfigDict(extra="allow" if self.takes_any else "forbid", arbitrary_types_allowed=False)
        self.model: type[BaseModel] = _attempt(lambda: create_model(function.__name__, __config__=config, **fields))

    def input_schema(self) -> dict[str, Json]:
        """JSON Schema 2020-12 of the arguments."""
        schema = _attempt(lambda: self.model.model_json_schema(by_alias=True, schema_generator=_Schema))
        schema.pop("title", None)
        if not self.names and not self.takes_any:
            return {"type": "object", "additionalProperties": False}
        return schema

    def output_schema(self) -> dict[str, Json] | None:
        """The schema of a return type that is an object by itself; None for text, blocks and untyped dicts."""
        if not _is_object(self.return_type):
            return None
        schema = _attempt(
            lambda: TypeAdapter(self.return_type).json_schema(
                by_alias=True, mode="serialization", schema_generator=_Schema
            )
        )
        described = schema
        if "$ref" in schema:  # a type that contains itself is described among the definitions
            described = schema["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        return {**schema, "type": "object"} if described.get("type") == "object" else None

    def convert(self, arguments: dict[str, Json]) -> dict[str, Any]:
        """Arguments that satisfied the schema, as the function's own types; raises InvalidArguments."""
        try:
            model = self.model.model_validate(arguments)
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InvalidArguments(f"{where}: {first['msg']}") from None
        values = {name: getattr(model, _PREFIX + name) for name in self.names}
        return {**(model.model_extra or {}), **values}


def _attempt(work: Callable[[], T], prefix: str = "") -> T:
    """Annotations are code of the project, and pydantic has no one class for what it thinks of them."""
    try:
        return work()
    except Exception as problem:
        text = str(problem) or type(problem).__name__
        raise SignatureProblem(f"{prefix}{text.splitlines()[0]}") from None


def _aliased(hint: Any, name: str) -> Any:
    return Annotated[hint, Field(alias=name)]


def _is_context(hint: Any) -> bool:
    if get_origin(hint) in (Annotated, Union, types.UnionType):
        return any(_is_context(part) for part in get_args(hint))
    return hint is TaskContext


def _is_object(hint: Any) -> bool:
    if not isinstance(hint, type):
        return False
    if issubclass(hint, BaseModel):
        return not hint.__module__.startswith("mcp_types")
    return hasattr(hint, "__dataclass_fields__") or (issubclass(hint, dict) and hasattr(hint, "__total__"))
