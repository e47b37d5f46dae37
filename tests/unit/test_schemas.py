"""Schemas are of one dialect, checked when they are compiled, and never fetched from anywhere."""

import socket
from typing import Any

import pytest

from mcp_tasks.protocol.schemas import DIALECT, InvalidSchema, compile_schema


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to open a connection; there must be none."""
    attempts: list[Any] = []

    def refuse(*args: Any, **kwargs: Any) -> Any:
        attempts.append(args)
        raise AssertionError("a schema was fetched")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    return attempts


@pytest.mark.parametrize("dialect", [DIALECT, DIALECT + "#"])
def test_the_dialect_may_be_named(dialect: str) -> None:
    assert compile_schema({"$schema": dialect, "type": "object"}).is_valid({})


@pytest.mark.parametrize(
    "dialect",
    [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft/2020-12/schema",
        "https://schema.example/own",
        "",
        None,
        5,
        [DIALECT],
    ],
)
def test_another_dialect_is_refused_by_name(dialect: Any) -> None:
    with pytest.raises(InvalidSchema) as caught:
        compile_schema({"$schema": dialect, "type": "object"})
    assert repr(dialect) in str(caught.value)
    assert DIALECT in str(caught.value)


@pytest.mark.parametrize("schema", [None, 5, "object", [], [{}], 1.5])
def test_a_schema_is_an_object_or_a_boolean(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match="an object or a boolean"):
        compile_schema(schema)


def test_booleans_are_schemas() -> None:
    assert compile_schema(True).is_valid(5)
    assert not compile_schema(False).is_valid(5)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "text"}, "type"),
        ({"type": 5}, "type"),
        ({"properties": 5}, "properties"),
        ({"properties": {"a": {"type": "text"}}}, "properties/a/type"),
        ({"required": "a"}, "required"),
        ({"minimum": "1"}, "minimum"),
        ({"pattern": "("}, "pattern"),
        ({"multipleOf": 0}, "multipleOf"),
        ({"items": [{}]}, "items"),
        ({"$defs": {"a": {"type": "text"}}}, "$defs/a/type"),
    ],
)
def test_a_malformed_schema_is_refused_with_its_place(schema: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        compile_schema(schema)
    assert str(caught.value).startswith(f"{where}: ")


@pytest.mark.parametrize(
    "reference",
    [
        "https://schemas.example/address.json",
        "http://127.0.0.1:1/x",
        "file:///etc/passwd",
        "other.json",
        "other.json#/a",
        "//schemas.example/a",
        "urn:example:a",
        "http://json-schema.org/draft-07/schema#",
        DIALECT + "#/$defs/anchorString",
        "",
    ],
)
@pytest.mark.parametrize("name", ["$ref", "$dynamicRef"])
def test_a_reference_out_of_the_schema_is_refused_and_not_followed(
    reference: str, name: str, no_network: list[Any]
) -> None:
    places: list[dict[str, Any]] = [
        {name: reference},
        {"properties": {"a": {name: reference}}},
        {"anyOf": [{"type": "string"}, {"items": {name: reference}}]},
        {"$defs": {"unused": {name: reference}}},
    ]
    for schema in places:
        with pytest.raises(InvalidSchema, match="leaves the schema"):
            compile_schema(schema)
    assert no_network == []


def test_an_id_is_a_name_and_not_an_address(no_network: list[Any]) -> None:
    schema = {
        "$id": "https://schemas.example/root",
        "properties": {"a": {"$ref": "#/$defs/text"}},
        "$defs": {"text": {"type": "string"}},
    }
    validator = compile_schema(schema)
    assert validator.is_valid({"a": "b"})
    assert not validator.is_valid({"a": 5})
    assert no_network == []


@pytest.mark.parametrize("reference", [DIALECT, DIALECT + "#"])
def test_the_meta_schema_is_known_without_a_network(reference: str, no_network: list[Any]) -> None:
    validator = compile_schema({"type": "object", "properties": {"schema": {"$ref": reference}}})
    assert validator.is_valid({"schema": {"type": "string"}})
    assert not validator.is_valid({"schema": {"type": "text"}})
    assert no_network == []


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#name"}}, "$defs": {"b": {"$anchor": "name", "type": "string"}}},
        {"properties": {"a": {"$dynamicRef": "#name"}}, "$defs": {"b": {"$dynamicAnchor": "name", "type": "string"}}},
        {"properties": {"a": {"$id": "inner", "$ref": "#/$defs/b", "$defs": {"b": {"type": "string"}}}}},
        {"properties": {"a": {"$ref": "#/$defs/a~1b%20c"}}, "$defs": {"a/b c": {"type": "string"}}},
    ],
)
def test_a_reference_inside_of_the_schema_is_followed(schema: dict[str, Any]) -> None:
    assert compile_schema(schema).is_valid({"a": "b"})
    assert not compile_schema(schema).is_valid({"a": 5})


def test_a_schema_may_contain_itself() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    assert compile_schema(tree).is_valid({"children": [{"children": []}]})
    assert not compile_schema(tree).is_valid({"children": [{"children": 5}]})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/missing"},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}, "$defs": {"other": {}}},
        {"$ref": "#no-such-anchor"},
        {"$ref": "#/prefixItems/5", "prefixItems": [{}]},
        {"$ref": "#/prefixItems/a", "prefixItems": [{}]},
        {"$ref": "#/type", "type": "object"},
        {"$ref": "#/type/0", "type": "object"},
        {"$defs": {"b": {}}, "properties": {"a": {"$id": "inner", "$ref": "#/$defs/b"}}},
    ],
)
def test_a_reference_to_nothing_is_refused_before_anybody_calls(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchema, match="leads to no schema"):
        compile_schema(schema)


def test_formats_are_checked_where_they_are_wanted() -> None:
    schema = {"type": "string", "format": "date"}
    assert compile_schema(schema).is_valid("tomorrow")
    assert not compile_schema(schema, formats=True).is_valid("tomorrow")
    assert compile_schema(schema, formats=True).is_valid("2026-07-28")


@pytest.mark.parametrize(
    ("divisor", "value", "valid"),
    [
        (0.1, 0.3, True),
        (0.01, 19.99, True),
        (0.1, 0.35, False),
        (0.1, 10**400, True),
        (0.3, 10**400, False),
        (0.1, 1e308, True),
        (0.5, -1.5, True),
        (3, 9.0, True),
        (3, 10, False),
        (0.1, "0.35", True),
        (2, True, True),
    ],
)
def test_multiples_are_counted_in_decimals(divisor: float, value: Any, valid: bool) -> None:
    assert compile_schema({"multipleOf": divisor}).is_valid(value) is valid


def test_a_schema_of_the_depth_that_json_may_have_is_compiled() -> None:
    schema: dict[str, Any] = {"type": "string"}
    value: Any = "x"
    for _ in range(49):
        schema, value = {"type": "object", "properties": {"a": schema}}, {"a": value}
    assert compile_schema(schema).is_valid(value)
    assert not compile_schema(schema).is_valid({"a": {"a": 5}})
