"""Mirrored headers: what a value means, when it equals an argument, and which annotations no client would take."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_tasks.protocol.headers import InvalidHeader, annotated, annotation_problems, decode, encode, equals


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("  spaces around \t", "spaces around"),
        ("in\tside", "in\tside"),
        (encoded("naïve"), "naïve"),
        (encoded(" edge "), " edge "),
        (encoded(""), ""),
        (encoded("=?base64?eA==?="), "=?base64?eA==?="),
        (encoded("a\x00b"), "a\x00b"),
        ("  " + encoded("x") + "\t", "x"),
        # Without both exact markers a value is what it says.
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("SGVsbG8=?=", "SGVsbG8=?="),
        ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
        ("=?Base64?SGVsbG8=?=", "=?Base64?SGVsbG8=?="),
        ("=?utf-8?SGVsbG8=?=", "=?utf-8?SGVsbG8=?="),
        ("x=?base64?SGVsbG8=?=", "x=?base64?SGVsbG8=?="),
        ("=?base64?=", "=?base64?="),
    ],
)
def test_a_value_stands_for_a_text(value: str, text: str) -> None:
    assert decode(value) == text


@pytest.mark.parametrize(
    "value",
    [
        "=?base64?SGVsbG8?=",  # the padding lacks
        "=?base64?SGVsbG8==?=",
        "=?base64?SGVsbG8=\n?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?SGV-bG8_?=",  # the alphabet of URLs
        "=?base64?!!!!?=",
        "=?base64?é===?=",
        "=?base64?_w==?=",
        "=?base64?/w==?=",  # 0xff
        "=?base64?7aCA?=",  # a surrogate
        "=?base64?SGVsbG9=?=",  # the same text has another form
        "=?base64?====?=",
        "=?base64?SGVsbG8=?=?=",
    ],
)
def test_what_is_not_exactly_base64_of_utf_8_is_refused(value: str) -> None:
    with pytest.raises(InvalidHeader):
        decode(value)


@pytest.mark.parametrize("value", ["naïve", "a\x01b", "a\x7fb", "a\nb", "a\x00", "caf\xe9", "\u20ac"])
def test_a_plain_value_holds_visible_ascii_spaces_and_tabs_only(value: str) -> None:
    with pytest.raises(InvalidHeader):
        decode(value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_sent(text: str) -> None:
    value = encode(text)
    assert decode(value) == text
    assert all(char == "\t" or " " <= char <= "~" for char in value)
    assert value == value.strip(" \t")


@pytest.mark.parametrize("text", ["plain", "two words", "a\tb", "~!@#", "=?base64?x", ""])
def test_what_can_be_sent_plain_is_sent_plain(text: str) -> None:
    assert encode(text) == text


@pytest.mark.parametrize("text", [" a", "a ", "\ta", "é", "a\nb", "=?base64?x?="])
def test_what_cannot_be_sent_plain_is_encoded(text: str) -> None:
    assert encode(text) == encoded(text)


@given(st.text(max_size=30))
def test_any_value_is_decoded_or_refused(value: str) -> None:
    try:
        decode(value)
    except InvalidHeader:
        pass


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("text", "text"),
        ("", ""),
        ("42", "42"),
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (42, "42.0"),
        (42.0, "42"),
        (-7, "-7"),
        (0, "0"),
        (0, "-0"),
        (0, "0.000"),
        (42, "042"),
        (2**53 - 1, str(2**53 - 1)),
        (2**53 + 1, str(2**53 + 1)),
        (10**400, "1" + "0" * 400),
        (0.5, "0.5"),
        (0.1, "0.1"),
    ],
)
def test_a_header_says_the_same_as_the_argument(argument: Any, value: str) -> None:
    assert equals(argument, value)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("text", "Text"),
        ("text", "text "),
        ("42", "42.0"),
        (True, "True"),
        (True, "1"),
        (1, "true"),
        (0, "false"),
        (42, "43"),
        (42, ""),
        (42, "forty-two"),
        (42, "4.2e1"),
        (42, "+42"),
        (42, " 42"),
        (42, "42."),
        (42, "0x2a"),
        (42, "4_2"),
        (42, "42\n"),
        (42, "\u0664\u0662"),  # the same number in other digits
        (2**53, str(2**53 + 1)),  # equal as doubles only
        (2**53 + 1, str(2**53)),
        (10**400, "1" + "0" * 399),
        (1, "nan"),
        (1, "inf"),
        (None, "null"),
        (None, ""),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_a_header_says_something_else(argument: Any, value: str) -> None:
    assert not equals(argument, value)


@given(st.integers())
def test_an_integer_equals_its_own_digits_and_no_others(number: int) -> None:
    assert equals(number, str(number))
    assert not equals(number, str(number + 1))


# -- annotations --------------------------------------------------------------------------------------------------


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(header: Any = "Region", **more: Any) -> dict[str, Any]:
    return {"type": "string", "x-mcp-header": header, **more}


@pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
def test_a_plain_property_may_be_annotated(kind: str) -> None:
    annotation = schema(region=marked(type=kind))
    assert list(annotation_problems(annotation)) == []
    assert list(annotated(annotation)) == [(("region",), "Region")]


def test_a_property_of_a_nested_object_may_be_annotated() -> None:
    annotation = schema(outer=schema(inner=marked("Inner")), other=marked("Other"))
    assert list(annotation_problems(annotation)) == []
    assert list(annotated(annotation)) == [(("outer", "inner"), "Inner"), (("other",), "Other")]


def test_a_schema_without_annotations_has_no_problems() -> None:
    assert list(annotation_problems(schema(a={"type": "string"}))) == []
    assert list(annotation_problems({"type": "object"})) == []
    assert list(annotated({"type": "object", "properties": None})) == []
    assert list(annotation_problems(schema(a=True, b=False))) == []


def test_a_property_may_be_called_like_the_annotation() -> None:
    annotation = {**schema(**{"x-mcp-header": {"type": "string"}}), "required": ["x-mcp-header"]}
    assert list(annotation_problems(annotation)) == []
    assert list(annotated(annotation)) == []


@pytest.mark.parametrize("header", ["", " ", "A B", "A_B", "A:B", "é", "A\n", "A/B", "(A)", None, 5, True, ["A"]])
def test_an_annotation_is_a_header_name_that_wsgi_can_carry(header: Any) -> None:
    problems = list(annotation_problems(schema(region=marked(header))))
    assert any("region" in problem and "no header name" in problem for problem in problems)


@pytest.mark.parametrize("header", ["A", "a-b", "X1", "!#$%&'*+-.^`|~"])
def test_every_other_token_is_a_header_name(header: str) -> None:
    assert list(annotation_problems(schema(region=marked(header)))) == []


@pytest.mark.parametrize(
    "kind", ["number", "object", "array", "null", None, ["string", "null"], "date"], ids=lambda kind: str(kind)
)
def test_other_types_cannot_be_mirrored(kind: Any) -> None:
    problems = list(annotation_problems(schema(region=marked(type=kind))))
    assert problems == ['x-mcp-header of "region" needs a property of type string, integer or boolean']


def test_a_type_that_is_only_implied_is_none() -> None:
    annotation = schema(region={"x-mcp-header": "Region", "anyOf": [{"type": "string"}, {"type": "null"}]})
    assert list(annotation_problems(annotation)) != []


@pytest.mark.parametrize("second", ["Region", "region", "REGION"])
def test_a_header_is_used_once_whatever_its_case(second: str) -> None:
    problems = list(annotation_problems(schema(a=marked("Region"), b=schema(c=marked(second)))))
    assert problems == [f'x-mcp-header "{second}" is used twice']


@pytest.mark.parametrize(
    "annotation",
    [
        {"type": "object", "x-mcp-header": "Root"},
        schema(a={"type": "array", "items": marked()}),
        schema(a={"type": "array", "items": schema(b=marked())}),
        schema(a={"type": "array", "prefixItems": [marked()]}),
        schema(a={"oneOf": [marked(), {"type": "integer"}]}),
        {**schema(), "anyOf": [schema(a=marked())]},
        {**schema(), "allOf": [schema(a=marked())]},
        {**schema(), "not": schema(a=marked())},
        {**schema(), "if": schema(a=marked()), "then": schema(), "else": schema()},
        {**schema(), "then": schema(a=marked())},
        {**schema(), "else": schema(a=marked())},
        {**schema(), "additionalProperties": marked()},
        {**schema(), "patternProperties": {"^a": marked()}},
        {**schema(a={"$ref": "#/$defs/A"}), "$defs": {"A": marked()}},
        {**schema(a={"$ref": "#/$defs/A"}), "$defs": {"A": schema(b=marked())}},
    ],
)
def test_an_annotation_stands_only_where_properties_lead(annotation: dict[str, Any]) -> None:
    problems = list(annotation_problems(annotation))
    assert problems == ["x-mcp-header may stand only on properties that are reached through properties"]


def test_one_good_annotation_does_not_hide_a_misplaced_one() -> None:
    annotation = schema(a=marked("A"), b={"type": "array", "items": marked("B")})
    assert len(list(annotation_problems(annotation))) == 1


@pytest.mark.parametrize("bound", ["minimum", "maximum"])
@pytest.mark.parametrize(
    ("value", "fine"), [(2**53 - 1, True), (-(2**53) + 1, True), (2**53, False), (-(2**53), False)]
)
def test_an_annotated_integer_stays_within_what_every_client_counts(bound: str, value: int, fine: bool) -> None:
    problems = list(annotation_problems(schema(a=marked("A", type="integer", **{bound: value}))))
    assert (problems == []) is fine


def test_every_problem_of_a_schema_is_named() -> None:
    annotation = schema(a=marked("A_B"), b=marked(type="number"), c={"items": marked("C")})
    assert len(list(annotation_problems(annotation))) == 3
