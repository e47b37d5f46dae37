"""``@tool`` and the registry: definitions are right, or named as wrong without stopping anything but what serves."""

import sys
from collections.abc import Callable
from typing import Any

import mcp_types
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils import module_loading
from django.utils.translation import gettext_lazy

from mcp_tasks import TaskContext
from mcp_tasks.protocol.codec import dumps, loads
from mcp_tasks.tools.definition import build
from mcp_tasks.tools.registry import Registry, discover, registry, tool

Function = Callable[..., Any]


def example(region: str, count: int = 1) -> str:
    """Do something."""
    return region * count


def problems_of(function: Function = example, **options: Any) -> list[str]:
    """The messages of a registry with this one tool; every one is E009 and names the tool."""
    own = Registry()
    own.add(build(function, **{"name": "example", **options}))
    found = own.problems()
    assert {number for number, _ in found} <= {"E009"}
    assert all(message.startswith("Tool ") and message.endswith(".") for _, message in found)
    return [message for _, message in found]


def function_called(name: str, module: str = "shop.mcp_tools") -> Function:
    """Another function of this name, as a module defines it."""

    def function(x: int) -> int:
        return x

    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    return function


def names(own: Registry) -> list[str]:
    return [each.name for each in own]


# -- the decorator --------------------------------------------------------------------------------------------------


def test_a_decorated_function_stays_what_it_is(mcp_tools: Function) -> None:
    bare = tool(example)
    assert bare is example
    named = tool(name="other")(example)
    assert named is example
    assert example("a", 2) == "aa"
    empty = tool()(example)
    assert empty is example
    assert registry.get("example") is not None
    assert registry.get("other") is not None


def test_the_fixture_forgets_what_a_test_registered(mcp_tools: Function) -> None:
    assert registry.get("example") is None
    assert registry.get("no such tool") is None


def test_a_definition_says_what_was_given() -> None:
    made = build(
        example,
        name="deploy-1.x_Y",
        title="Deploy",
        description="Deploys.",
        annotations={"readOnlyHint": False, "idempotentHint": True},
        output_schema={"type": "string"},
    )
    assert made.problems == []
    assert made.definition() == {
        "name": "deploy-1.x_Y",
        "title": "Deploy",
        "description": "Deploys.",
        "annotations": {"readOnlyHint": False, "idempotentHint": True},
        "inputSchema": {
            "type": "object",
            "properties": {"region": {"type": "string"}, "count": {"type": "integer", "default": 1}},
            "required": ["region"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "string"},
    }


def test_a_definition_without_options_is_the_function() -> None:
    made = build(example)
    assert (made.name, made.description) == ("example", "Do something.")
    assert set(made.definition()) == {"name", "description", "inputSchema"}
    assert (made.task, made.inline_first, made.strict_answers, made.permission) == ("optional", False, True, None)
    assert made.where == f"{__name__}.example"


def test_the_legs_of_a_tool_run_once_at_any_width_unless_it_says_otherwise() -> None:
    made = build(example)
    assert made.problems == []
    assert (made.max_attempts, made.legs.transient, made.legs.priority) == (1, (), 0)
    assert (made.legs.timeout_seconds, made.legs.max_running, made.legs.max_running_per_owner) == (None, None, None)


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_a_tool_that_a_repeat_does_no_harm_is_tried_three_times_unless_it_says_otherwise(hint: str) -> None:
    assert build(example, annotations={hint: True}).max_attempts == 3
    assert build(example, annotations={hint: True}, max_attempts=1).max_attempts == 1
    assert build(example, annotations={hint: False}, max_attempts=7).max_attempts == 7


def test_transient_errors_are_one_class_or_several() -> None:
    assert build(example, max_attempts=2, retry_on=OSError).legs.transient == (OSError,)
    made = build(example, annotations={"readOnlyHint": True}, retry_on=(OSError, ValueError))
    assert (made.problems, made.legs.transient) == ([], (OSError, ValueError))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1 to 100"),
        ({"max_attempts": 101}, "max_attempts must be a whole number from 1 to 100"),
        ({"max_attempts": "3"}, "max_attempts must be a whole number from 1 to 100"),
        ({"max_attempts": True}, "max_attempts must be a whole number from 1 to 100"),
        ({"retry_on": OSError}, "retry_on needs max_attempts of at least 2: the first try counts"),
        ({"max_attempts": 1, "retry_on": OSError}, "retry_on needs max_attempts of at least 2: the first try counts"),
        ({"max_attempts": 2, "retry_on": "OSError"}, "retry_on must be exception classes"),
        ({"max_attempts": 2, "retry_on": (OSError, KeyboardInterrupt)}, "retry_on must be exception classes"),
        ({"timeout_seconds": 0}, "timeout_seconds must be a positive number of seconds"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds must be a positive number of seconds"),
        ({"timeout_seconds": "10"}, "timeout_seconds must be a positive number of seconds"),
        ({"max_running": 0}, "max_running must be a positive whole number"),
        ({"max_running_per_owner": 1.5}, "max_running_per_owner must be a positive whole number"),
        ({"priority": 1001}, "priority must be a whole number from -1000 to 1000"),
        ({"priority": None}, "priority must be a whole number from -1000 to 1000"),
    ],
)
def test_a_wrong_rule_for_legs_is_named(options: dict[str, Any], problem: str) -> None:
    assert build(example, **options).problems == [problem]


def test_nothing_in_a_definition_is_null() -> None:
    def bare(): ...

    assert build(bare).definition() == {
        "name": "bare",
        "inputSchema": {"type": "object", "additionalProperties": False},
    }


def test_a_definition_tells_sync_from_async() -> None:
    async def later() -> None: ...

    assert build(later).is_async
    assert not build(example).is_async


@pytest.mark.parametrize(
    ("annotations", "attempts"),
    [
        (None, 1),
        ({}, 1),
        ({"idempotentHint": True}, 3),
        ({"readOnlyHint": True}, 3),
        ({"idempotentHint": False, "readOnlyHint": False}, 1),
        ({"destructiveHint": True, "openWorldHint": False, "title": "T"}, 1),
        (mcp_types.ToolAnnotations(read_only_hint=True), 3),
    ],
)
def test_a_tool_is_started_again_where_that_does_no_harm(annotations: Any, attempts: int) -> None:
    made = build(example, annotations=annotations)
    assert made.problems == []
    assert made.max_attempts == attempts


def test_annotations_are_shown_in_the_names_of_the_wire() -> None:
    made = build(example, annotations=mcp_types.ToolAnnotations(title="T", read_only_hint=True))
    assert made.definition()["annotations"] == {"title": "T", "readOnlyHint": True}


# -- times ----------------------------------------------------------------------------------------------------------


def test_a_tool_that_says_nothing_gets_the_times_of_the_settings(settings: Any) -> None:
    settings.MCP_TASKS = {"DEFAULT_TTL_MS": 5000, "POLL_INTERVAL_MS": 70}
    made = build(example)
    assert made.resolved_ttl_ms() == 5000
    assert made.resolved_poll_interval_ms() == 70
    settings.MCP_TASKS = {"DEFAULT_TTL_MS": 5000, "MAX_TTL_MS": 4000}
    assert made.resolved_ttl_ms() == 4000


def test_a_tool_that_says_something_gets_it(settings: Any) -> None:
    settings.MCP_TASKS = {"MAX_TTL_MS": None}
    assert build(example, ttl_ms=7, poll_interval_ms=8).resolved_ttl_ms() == 7
    assert build(example, ttl_ms=7, poll_interval_ms=8).resolved_poll_interval_ms() == 8
    assert build(example, ttl_ms=None).resolved_ttl_ms() is None
    assert problems_of(ttl_ms=None) == []


@pytest.mark.parametrize(("ttl_ms", "fine"), [(1, True), (1000, True), (1001, False), (10**30, False), (None, False)])
def test_a_ttl_stays_within_the_limit(settings: Any, ttl_ms: int | None, fine: bool) -> None:
    settings.MCP_TASKS = {"MAX_TTL_MS": 1000}
    expected = [] if fine else ["Tool example: ttl_ms is beyond MCP_TASKS['MAX_TTL_MS'] (1000)."]
    assert problems_of(ttl_ms=ttl_ms) == expected


def test_wrong_settings_do_not_keep_tools_from_being_judged(settings: Any) -> None:
    settings.MCP_TASKS = {"MAX_TTL_MS": "soon"}
    assert problems_of(ttl_ms=None) == []
    assert len(problems_of(task="sometimes")) == 1


# -- E009 -----------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an empty name": ({"name": ""}, "the name must be"),
    "a name with a blank": ({"name": "a b"}, "the name must be"),
    "a name with a slash": ({"name": "a/b"}, "the name must be"),
    "a name with an accent": ({"name": "é"}, "the name must be"),
    "a name with a line end": ({"name": "a\n"}, "the name must be"),
    "a long name": ({"name": "x" * 65}, "the name must be"),
    "a name that is no text": ({"name": 5}, "name must be a string"),
    "a title that is no text": ({"title": 5}, "title must be a string"),
    "a title for another moment": ({"title": gettext_lazy("Title")}, "title must be a string"),
    "a description that is no text": ({"description": gettext_lazy("Description")}, "description must be a string"),
    "an unknown mode": ({"task": "sometimes"}, "task must be one of optional, required, never"),
    "a mode that is a boolean": ({"task": True}, "task must be one of"),
    "inline first and never": ({"task": "never", "inline_first": True}, "inline_first"),
    "a ttl of nothing": ({"ttl_ms": 0}, "ttl_ms must be"),
    "a negative ttl": ({"ttl_ms": -1}, "ttl_ms must be"),
    "a ttl that is a text": ({"ttl_ms": "5"}, "ttl_ms must be"),
    "a ttl that is a float": ({"ttl_ms": 5.0}, "ttl_ms must be"),
    "a ttl that is a boolean": ({"ttl_ms": True}, "ttl_ms must be"),
    "a poll interval of nothing": ({"poll_interval_ms": 0}, "poll_interval_ms must be"),
    "a poll interval that is a text": ({"poll_interval_ms": "5"}, "poll_interval_ms must be"),
    "a poll interval that is a boolean": ({"poll_interval_ms": True}, "poll_interval_ms must be"),
    "a permission without an app": ({"permission": "change_order"}, "permission must be"),
    "a permission without a codename": ({"permission": "shop."}, "permission must be"),
    "a permission of a dot": ({"permission": "."}, "permission must be"),
    "an empty permission": ({"permission": ""}, "permission must be"),
    "a permission that is no text": ({"permission": ["shop.change_order"]}, "permission must be"),
    "an unknown annotation": ({"annotations": {"readonlyHint": True}}, "readonlyHint is no annotation of MCP"),
    "an annotation of Python": ({"annotations": {"read_only_hint": True}}, "read_only_hint is no annotation of MCP"),
    "an annotation of a wrong type": ({"annotations": {"readOnlyHint": "maybe"}}, "annotations must be"),
    "annotations that are no object": ({"annotations": 5}, "annotations must be"),
    "an input schema that is a number": ({"input_schema": 5}, "a schema is given as an object"),
    "an input schema that is a list": ({"input_schema": [1]}, "a schema is given as an object"),
    "an input schema that is true": ({"input_schema": True}, "a schema is given as an object"),
    "an empty input schema": ({"input_schema": {}}, '"type": "object"'),
    "an input schema of a list": ({"input_schema": {"type": "array"}}, '"type": "object"'),
    "an input schema of two types": ({"input_schema": {"type": ["object", "null"]}}, '"type": "object"'),
    "an input schema with wrong properties": ({"input_schema": {"type": "object", "properties": 5}}, "properties"),
    "an input schema with a wrong type": (
        {"input_schema": {"type": "object", "properties": {"region": {"type": "text"}}}},
        "properties/region/type",
    ),
    "an input schema of another dialect": (
        {"input_schema": {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}},
        "the dialect 'http://json-schema.org/draft-07/schema#' is not supported",
    ),
    "an input schema that leaves itself": (
        {"input_schema": {"type": "object", "properties": {"region": {"$ref": "https://x.example/region"}}}},
        "leaves the schema",
    ),
    "an input schema without a json form": ({"input_schema": {"type": "object", "a": {1, 2}}}, "set"),
    "an input schema with an unknown argument": (
        {"input_schema": {"type": "object", "properties": {"region": {}, "colour": {}}}},
        "the function does not take colour",
    ),
    "a wrong header": (
        {"input_schema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "A_B"}}}},
        "x-mcp-header",
    ),
    "an output schema that is a number": ({"output_schema": 5}, "a schema is given as an object"),
    "an output schema with a wrong type": ({"output_schema": {"type": "text"}}, "type"),
    "an output schema of another dialect": ({"output_schema": {"$schema": "urn:other"}}, "the dialect"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_definition_is_named_and_raises_nothing(options: dict[str, Any], message: str) -> None:
    found = problems_of(**options)
    assert any(message in problem for problem in found)


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_definition_stops_what_serves(options: dict[str, Any], message: str) -> None:
    own = Registry()
    own.add(build(example, **options))
    with pytest.raises(ImproperlyConfigured, match="Tool "):
        own.require_valid()


def test_every_problem_of_a_tool_is_named() -> None:
    found = problems_of(
        task="sometimes", ttl_ms=0, poll_interval_ms=0, permission="x", annotations={"x": 1}, output_schema=5
    )
    assert len(found) == 6


def test_an_unknown_option_is_named_and_raises_nothing(mcp_tools: Function) -> None:
    mcp_tools(name="odd", ttl=5, retries=1, strict_answers=False)(example)
    found = registry.get("odd")
    assert found is not None
    assert found.problems == ["retries is no option of @tool", "ttl is no option of @tool"]
    assert found.strict_answers is False


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 64, "..", "-"])
def test_other_names_are_fine(name: str) -> None:
    assert problems_of(name=name) == []


@pytest.mark.parametrize("permission", ["shop.change_order", "my_app.codename-with-dash", "shop.a.b"])
def test_other_permissions_are_fine(permission: str) -> None:
    assert problems_of(permission=permission) == []


@pytest.mark.parametrize("task", ["optional", "required"])
def test_a_tool_that_may_become_a_task_may_begin_inline(task: str) -> None:
    assert problems_of(task=task, inline_first=True) == []


def test_a_parameter_that_cannot_come_by_name_is_named() -> None:
    def positional(a: int, /) -> None: ...

    assert problems_of(positional) == ["Tool example: parameter a is positional; arguments come by name."]


# -- schemas by hand ------------------------------------------------------------------------------------------------


def test_a_schema_by_hand_is_published_and_judged() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"region": {"type": "string", "enum": ["eu", "us"]}},
        "required": ["region"],
    }
    made = build(example, input_schema=schema)
    assert made.problems == []
    assert made.definition()["inputSchema"] == schema
    assert made.argument_problem({"region": "eu"}) is None
    assert made.argument_problem({"region": "asia"}) is not None


def test_a_schema_by_hand_is_copied() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"region": {"type": "string"}}}
    output: dict[str, Any] = {"type": "object", "properties": {}}
    made = build(example, input_schema=schema, output_schema=output)
    schema["properties"]["region"]["type"] = "integer"
    output["type"] = "array"
    assert made.definition()["inputSchema"]["properties"]["region"] == {"type": "string"}
    assert made.definition()["outputSchema"]["type"] == "object"


def test_a_function_of_keyword_arguments_takes_any_schema() -> None:
    def anything(**rest: Any) -> None: ...

    assert problems_of(anything, input_schema={"type": "object", "properties": {"colour": {}}}) == []


def test_a_schema_by_hand_cannot_ask_for_the_context() -> None:
    def contextual(ctx: TaskContext) -> None: ...

    found = problems_of(contextual, input_schema={"type": "object", "properties": {"ctx": {}}})
    assert found == ["Tool example: the function does not take ctx."]


def test_an_output_schema_by_hand_may_be_any_schema() -> None:
    made = build(example, output_schema={"type": ["string", "null"]})
    assert made.problems == []
    assert made.output_validator is not None


def test_headers_are_found_where_properties_lead() -> None:
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "object", "properties": {"of": {"type": "integer", "x-mcp-header": "Count"}}},
        },
    }
    assert build(example, input_schema=schema).headers == [(("region",), "Region"), (("count", "of"), "Count")]


# -- several tools --------------------------------------------------------------------------------------------------


def test_tools_keep_the_order_of_their_registration() -> None:
    own = Registry()
    for name in ("b", "a", "c"):
        own.add(build(example, name=name))
    assert names(own) == ["b", "a", "c"]


def test_a_name_used_twice_names_both_functions() -> None:
    own = Registry()
    own.add(build(function_called("sell", "shop.mcp_tools")))
    own.add(build(function_called("sell", "stock.mcp_tools")))
    own.add(build(function_called("buy"), name="sell"))
    assert own.problems() == [
        ("E005", "Tool sell is defined in shop.mcp_tools.sell and in stock.mcp_tools.sell."),
        ("E005", "Tool sell is defined in shop.mcp_tools.sell and in shop.mcp_tools.buy."),
    ]
    with pytest.raises(ImproperlyConfigured, match=r"stock\.mcp_tools\.sell"):
        own.require_valid()
    found = own.get("sell")
    assert found is not None
    assert found.where == "shop.mcp_tools.sell"


def test_names_are_told_apart_by_their_case() -> None:
    own = Registry()
    own.add(build(example, name="sell"))
    own.add(build(example, name="Sell"))
    assert own.problems() == []


def test_a_reloaded_function_takes_its_old_place() -> None:
    own = Registry()
    for name in ("a", "b", "c"):
        own.add(build(function_called(name)))
    again = build(function_called("b"), title="New")
    own.add(again)
    assert names(own) == ["a", "b", "c"]
    assert own.get("b") is again
    assert own.problems() == []


def test_one_function_may_be_two_tools() -> None:
    own = Registry()
    own.add(build(example, name="one"))
    own.add(build(example, name="two"))
    assert names(own) == ["one", "two"]


def test_a_tool_can_be_forgotten() -> None:
    own = Registry()
    own.add(build(example, name="a"))
    own.add(build(example, name="b"))
    own.remove("a")
    own.remove("never there")
    assert names(own) == ["b"]
    assert own.get("a") is None


def test_tools_may_be_registered_while_others_are_listed() -> None:
    own = Registry()
    own.add(build(example, name="a"))
    for each in own:
        if each.name == "a":
            own.add(build(example, name="b"))
    assert names(own) == ["a", "b"]


def test_a_registry_without_problems_may_serve() -> None:
    own = Registry()
    own.require_valid()
    own.add(build(example))
    own.require_valid()


def test_every_definition_can_be_listed() -> None:
    for each in registry:
        assert loads(dumps(each.definition())) == each.definition()


def test_the_tools_of_installed_apps_are_found() -> None:
    from tests.app import mcp_tools

    assert registry.get("add") is not None
    assert registry.get("add").function is mcp_tools.add


def test_an_app_whose_tools_cannot_be_imported_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> Any:
        if name == "tests.app.mcp_tools":
            raise RuntimeError("broken on import")
        return sys.modules[name]

    monkeypatch.setattr(module_loading, "import_module", import_module)
    with pytest.raises(RuntimeError, match="broken on import"):
        discover()
