"""From signatures to schemas and from arguments to values: what a function takes is what clients are told."""

import dataclasses
import datetime
import decimal
import enum
import functools
import sys
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional

import mcp_types
import pytest
import typing_extensions
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from mcp_tasks import DeferredTask, TaskContext
from mcp_tasks.protocol.codec import dumps
from mcp_tasks.tools.definition import Tool, build
from mcp_tasks.tools.schemas import InvalidArguments, Signature, SignatureProblem
from tests.unit import future_tools


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    """Something to buy."""

    name: str
    price: float = Field(ge=0)


class Order(BaseModel):
    items: list[Item]
    parent: "Order | None" = None


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(typing_extensions.TypedDict, total=False):
    verbose: bool


class Unknown:
    """A class that says nothing of its JSON."""


def made(function: Callable[..., Any], **options: Any) -> Tool:
    tool = build(function, **options)
    assert tool.problems == []
    return tool


def schema_of(hint: Any, *default: Any) -> dict[str, Any]:
    """The schema of one parameter with this annotation."""

    def function(x): ...

    function.__annotations__ = {"x": hint}
    function.__defaults__ = default or None
    return made(function).input_schema


# -- schemas ------------------------------------------------------------------------------------------------------


def test_a_function_without_parameters_takes_nothing() -> None:
    def function() -> None: ...

    assert made(function).input_schema == {"type": "object", "additionalProperties": False}


def test_a_parameter_without_a_default_is_required_and_nothing_else_is_taken() -> None:
    def function(a: str, b: int = 5, *, c: float, d: bool = False) -> None: ...

    assert made(function).input_schema == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer", "default": 5},
            "c": {"type": "number"},
            "d": {"type": "boolean", "default": False},
        },
        "required": ["a", "c"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("hint", "property_"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (Any, {}),
        (object, {}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - that spelling too
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Literal["a"], {"const": "a", "type": "string"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (
            Annotated[int, Field(ge=1, le=10, description="How many")],
            {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many"},
        ),
        (
            Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
            {"type": "string", "x-mcp-header": "Region"},
        ),
        (Annotated[int, Field(alias="other")], {"type": "integer"}),
    ],
)
def test_an_annotation_is_said_in_json_schema(hint: Any, property_: dict[str, Any]) -> None:
    assert schema_of(hint) == {
        "type": "object",
        "properties": {"x": property_},
        "required": ["x"],
        "additionalProperties": False,
    }


def test_a_parameter_without_an_annotation_takes_anything() -> None:
    def function(x, y=None): ...

    assert made(function).input_schema["properties"] == {"x": {}, "y": {"default": None}}
    assert made(function).signature.convert({"x": {"a": [1]}}) == {"x": {"a": [1]}, "y": None}


@pytest.mark.parametrize("default", [None, "text", 5, [1], {"a": None}, Color.BLUE, datetime.date(2026, 7, 28)])
def test_a_default_is_shown_as_json(default: Any) -> None:
    shown = schema_of(Any, default)["properties"]["x"]["default"]
    assert shown == {Color.BLUE: "blue", datetime.date(2026, 7, 28): "2026-07-28"}.get(
        default if not isinstance(default, (list, dict)) else None, default
    )


def test_a_default_in_a_field_is_a_default() -> None:
    def function(x: int = Field(3, description="How many")) -> None: ...

    assert made(function).input_schema["properties"] == {
        "x": {"default": 3, "description": "How many", "type": "integer"}
    }
    assert Signature(function).convert({}) == {"x": 3}


@pytest.mark.parametrize("default", [float("inf"), float("-inf"), float("nan")])
def test_a_default_without_a_json_form_is_refused_and_not_listed(default: float) -> None:
    def function(x: float = default) -> None: ...

    tool = build(function)
    assert len(tool.problems) == 1
    dumps(tool.definition())


def test_an_enum_is_its_values() -> None:
    assert schema_of(Color)["$defs"]["Color"]["enum"] == ["red", "blue"]


def test_nested_models_are_described_and_may_contain_themselves() -> None:
    schema = schema_of(Order)
    assert set(schema["$defs"]) == {"Item", "Order"}
    assert schema["$defs"]["Item"]["description"] == "Something to buy."
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"x": {"items": [{"name": "a", "price": 1}], "parent": {"items": []}}})
    assert not validator.is_valid({"x": {"items": [], "parent": {"items": [{"name": "a"}]}}})


@pytest.mark.parametrize("hint", [Item, Order, Point, Options, Color, list[Item]])
def test_every_schema_is_one(hint: Any) -> None:
    Draft202012Validator.check_schema(schema_of(hint))


def test_no_titles_are_made_up_from_names() -> None:
    def function(some_parameter: int, point: Point) -> None: ...

    assert "Some Parameter" not in dumps(made(function).input_schema)
    assert "title" not in made(function).input_schema


NAMES = ["schema", "json", "copy", "_x", "self", "cls", "model_config", "model_fields", "validate", "dict", "arg_x"]


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_may_be_called_anything(name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def function({name}: int, x: str = 'd'): return ({name}, x)", space)
    tool = made(space["function"])
    assert tool.input_schema["properties"] == {name: {"type": "integer"}, "x": {"type": "string", "default": "d"}}
    assert tool.signature is not None
    assert tool.signature.convert({name: 5}) == {name: 5, "x": "d"}


@pytest.mark.parametrize("name", ["schema", "json", "Model", "BaseModel", "_private", "_"])
def test_a_function_may_be_called_anything(name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def {name}(x: int): return x", space)
    assert made(space[name]).signature is not None


def test_string_annotations_are_resolved() -> None:
    tool = made(future_tools.plan)
    assert tool.signature is not None
    assert tool.signature.context_name == "context"
    assert tool.input_schema["properties"]["when"] == {"type": "string", "format": "date"}
    assert tool.input_schema["required"] == ["when"]
    assert tool.output_schema is not None
    assert tool.signature.convert({"when": "2026-07-28", "stops": [{"name": "a"}]}) == {
        "when": datetime.date(2026, 7, 28),
        "stops": [future_tools.Stop(name="a")],
    }


@pytest.mark.parametrize("function", [future_tools.unresolvable, future_tools.unresolvable_return])
def test_an_annotation_that_cannot_be_resolved_is_named(function: Callable[..., Any]) -> None:
    assert build(function).problems == [
        "an annotation cannot be resolved: name 'NowhereToBeFound' is not defined",
    ]


@pytest.mark.parametrize("text", ["a b", "sys.no_such_thing", "1 +", "1 / 0", "list['"])
def test_an_annotation_that_is_no_expression_is_a_problem_and_no_exception(text: str) -> None:
    def function(x: int) -> None: ...

    function.__annotations__ = {"x": text}
    [problem] = build(function).problems
    assert problem.startswith("an annotation cannot be resolved: ")


@pytest.mark.parametrize("hint", [Unknown, Callable[[], None], 5, list[Unknown], type])
def test_a_type_without_a_schema_is_a_problem_and_no_exception(hint: Any) -> None:
    def function(x: int) -> None: ...

    function.__annotations__ = {"x": hint}
    assert len(build(function).problems) == 1


def test_positional_parameters_are_refused_by_name() -> None:
    def several(a: int, *rest: int) -> None: ...
    def first(a: int, /, b: int) -> None: ...
    def context(ctx: TaskContext, /, b: int) -> None: ...
    def contexts(*ctx: TaskContext) -> None: ...

    for function, name in ((several, "rest"), (first, "a"), (context, "ctx"), (contexts, "ctx")):
        with pytest.raises(SignatureProblem, match=f"parameter {name} is positional"):
            Signature(function)
        assert build(function).problems == [f"parameter {name} is positional; arguments come by name"]


def test_a_builtin_without_a_signature_is_a_problem_and_no_exception() -> None:
    assert build(dict.fromkeys, name="x").problems != []
    assert build(iter, name="x").problems != []


def test_a_wrapped_function_takes_what_it_wraps() -> None:
    def function(x: int, ctx: TaskContext) -> None: ...

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    tool = made(wrapper)
    assert tool.input_schema["properties"] == {"x": {"type": "integer"}}
    assert tool.signature is not None
    assert tool.signature.context_name == "ctx"


# -- the rest -----------------------------------------------------------------------------------------------------


def test_keyword_arguments_take_the_rest() -> None:
    def function(x: str, **rest: Any) -> None: ...

    tool = made(function)
    assert tool.signature is not None
    assert tool.input_schema["additionalProperties"] is True
    rest = {"y": {"a": [None]}, "arg_x": 1, "self": 2, "a b": 3, "x-y": "\ud800", "": 4}
    assert tool.argument_problem({"x": "a", **rest}) is None
    assert tool.signature.convert({"x": "a", **rest}) == {"x": "a", **rest}


def test_a_function_of_keyword_arguments_alone_takes_anything() -> None:
    def function(**rest: Any) -> None: ...

    tool = made(function)
    assert tool.argument_problem({"any": 1}) is None
    assert tool.input_schema["type"] == "object"


# -- the context --------------------------------------------------------------------------------------------------


def by_annotation(c: TaskContext) -> None: ...
def by_name(ctx) -> None: ...
def by_union(c: TaskContext | None = None) -> None: ...
def by_optional(c: Optional[TaskContext] = None) -> None: ...  # noqa: UP045 - that spelling too
def by_text(c: "TaskContext") -> None: ...
def by_text_of_a_union(c: "TaskContext | None" = None) -> None: ...
def by_annotated(c: Annotated[TaskContext, "for me"]) -> None: ...
def by_keyword(*, c: TaskContext) -> None: ...


@pytest.mark.parametrize(
    "function",
    [by_annotation, by_name, by_union, by_optional, by_text, by_text_of_a_union, by_annotated, by_keyword],
    ids=lambda function: function.__name__,
)
def test_the_context_is_handed_over_and_never_shown(function: Callable[..., Any]) -> None:
    tool = made(function)
    assert tool.signature is not None
    assert tool.signature.context_name in ("c", "ctx")
    assert tool.input_schema == {"type": "object", "additionalProperties": False}
    assert tool.argument_problem({tool.signature.context_name: {}}) is not None


def test_a_parameter_called_ctx_with_another_annotation_is_an_argument() -> None:
    def function(ctx: str) -> None: ...

    tool = made(function)
    assert tool.signature is not None
    assert tool.signature.context_name is None
    assert tool.input_schema["required"] == ["ctx"]


def test_the_rest_is_not_the_context_whatever_it_is_called() -> None:
    def function(**ctx: Any) -> None: ...

    tool = made(function)
    assert tool.signature is not None
    assert tool.signature.context_name is None
    assert tool.signature.convert({"a": 1}) == {"a": 1}


def test_two_contexts_are_one_too_many() -> None:
    def function(ctx, other: TaskContext): ...

    assert build(function).problems == ["parameters ctx and other both take the context"]


# -- arguments ----------------------------------------------------------------------------------------------------


def count(n: int) -> int:
    return n


@pytest.mark.parametrize("value", [3, 0, -1, 10**400, 3.0, -0.0])
def test_an_integer_may_be_written_with_a_point(value: Any) -> None:
    tool = made(count)
    assert tool.argument_problem({"n": value}) is None
    assert tool.signature is not None
    converted = tool.signature.convert({"n": value})["n"]
    assert (converted, type(converted)) == (int(value), int)


@pytest.mark.parametrize("value", ["3", "", 3.5, True, None, [3], {"n": 3}])
def test_what_is_no_integer_is_refused_by_the_published_schema(value: Any) -> None:
    problem = made(count).argument_problem({"n": value})
    assert problem is not None
    assert problem.startswith("n: ")
    assert "'integer'" in problem


def test_problems_say_what_a_model_can_correct() -> None:
    def function(name: str, size: Literal["s", "m"], items: list[Item]) -> None: ...

    tool = made(function)
    assert tool.argument_problem({"name": "a", "size": "m", "items": []}) is None
    missing = tool.argument_problem({})
    assert missing is not None
    assert all(name in missing for name in ("name", "size", "items"))
    unknown = tool.argument_problem({"name": "a", "size": "m", "items": [], "colour": 1})
    assert unknown is not None
    assert "colour" in unknown
    inside = tool.argument_problem({"name": "a", "size": "xl", "items": [{"name": "a", "price": -1}]})
    assert inside is not None
    assert "size: 'xl' is not one of ['s', 'm']" in inside
    assert "items.0.price: -1 is less than the minimum of 0" in inside


def test_problems_stay_short_whatever_was_sent() -> None:
    def function(items: list[int]) -> None: ...

    problem = made(function).argument_problem({"items": ["x" * 10_000] * 100})
    assert problem is not None
    assert len(problem) < 2000


@pytest.mark.parametrize("divisor", [0.1, 0.5, 3])
def test_a_big_integer_is_judged_and_does_not_break_the_judge(divisor: float) -> None:
    def function(x: Annotated[float, Field(multiple_of=divisor)]) -> None: ...

    made(function).argument_problem({"x": 10**400})


def test_arguments_as_deep_as_json_may_be_are_judged() -> None:
    def function(order: Order) -> None: ...

    tool = made(function)
    order: dict[str, Any] = {"items": []}
    for _ in range(97):
        order = {"items": [], "parent": order}
    dumps({"order": order})
    assert tool.argument_problem({"order": order}) is None
    assert tool.signature is not None
    tool.signature.convert({"order": order})


def test_values_arrive_as_the_functions_own_types() -> None:
    def function(
        day: datetime.date,
        color: Color,
        point: Point,
        order: Order,
        options: Options,
        amount: decimal.Decimal,
        pair: tuple[int, str],
        kinds: set[str],
        maybe: int | None = None,
    ) -> None: ...

    tool = made(function)
    arguments = {
        "day": "2026-07-28",
        "color": "blue",
        "point": {"x": 1},
        "order": {"items": [{"name": "a", "price": 1}]},
        "options": {"verbose": True},
        "amount": "1.10",
        "pair": [1, "a"],
        "kinds": ["a", "b"],
    }
    assert tool.argument_problem(arguments) is None
    assert tool.signature is not None
    assert tool.signature.convert(arguments) == {
        "day": datetime.date(2026, 7, 28),
        "color": Color.BLUE,
        "point": Point(1, 0),
        "order": Order(items=[Item(name="a", price=1.0)]),
        "options": {"verbose": True},
        "amount": decimal.Decimal("1.10"),
        "pair": (1, "a"),
        "kinds": {"a", "b"},
        "maybe": None,
    }


def test_a_default_is_the_functions_own_and_is_not_shared() -> None:
    def function(color: Color = Color.RED, items: list[int] = []) -> None: ...  # noqa: B006 - what people write

    signature = Signature(function)
    first = signature.convert({})
    first["items"].append(1)
    assert signature.convert({}) == {"color": Color.RED, "items": []}


def test_what_the_schema_cannot_say_is_still_refused() -> None:
    def function(day: datetime.date) -> None: ...

    tool = made(function)
    assert tool.argument_problem({"day": "tomorrow"}) is None
    assert tool.signature is not None
    with pytest.raises(InvalidArguments, match="day: ") as caught:
        tool.signature.convert({"day": "tomorrow"})
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("arguments", [{"n": "x"}, {"n": None}, {}, {"n": 1, "m": 2}, {"n": 1e300}, {"arg_n": 1}])
def test_arguments_of_a_hand_made_schema_are_refused_and_raise_nothing_else(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        Signature(count).convert(arguments)


@pytest.mark.parametrize("value", [10**400, "\ud800"])
def test_a_value_that_a_type_cannot_hold_is_refused_and_raises_nothing_else(value: Any) -> None:
    def function(x: Annotated[str, Field(min_length=1)] | Annotated[float, Field(gt=0)]) -> None: ...

    with pytest.raises(InvalidArguments):
        Signature(function).convert({"x": value})


# -- results ------------------------------------------------------------------------------------------------------


def returning(hint: Any) -> Callable[..., Any]:
    def function() -> Any: ...

    function.__annotations__ = {"return": hint}
    return function


@pytest.mark.parametrize("hint", [Item, Order, Point, Options])
def test_an_object_by_itself_has_an_output_schema(hint: Any) -> None:
    schema = made(returning(hint)).output_schema
    assert schema is not None
    assert schema["type"] == "object"
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    "hint",
    [
        str,
        int,
        None,
        Any,
        dict,
        dict[str, int],
        list[Item],
        Item | None,
        Item | DeferredTask,
        DeferredTask,
        mcp_types.CallToolResult,
        mcp_types.TextContent,
        list[mcp_types.TextContent],
    ],
)
def test_everything_else_has_none(hint: Any) -> None:
    assert made(returning(hint)).output_schema is None
    assert made(returning(hint)).output_validator is None


def test_an_output_schema_describes_what_is_written_and_not_what_is_read() -> None:
    class Renamed(BaseModel):
        id_: int = Field(serialization_alias="id", validation_alias="ID")

    schema = made(returning(Renamed)).output_schema
    assert schema is not None
    assert set(schema["properties"]) == {"id"}


def test_a_return_type_without_a_schema_is_a_problem_and_no_exception() -> None:
    @dataclasses.dataclass
    class Holder:
        held: Unknown

    assert len(build(returning(Holder)).problems) == 1


def test_a_typed_dict_of_the_standard_library_works_or_says_what_does() -> None:
    tool = build(future_tools.typed)
    if sys.version_info >= (3, 12):
        assert tool.problems == []
        assert tool.output_schema is not None
    else:
        assert tool.problems == [
            "Please use `typing_extensions.TypedDict` instead of `typing.TypedDict` on Python < 3.12."
        ]
