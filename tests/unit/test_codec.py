"""The codec: what is exact, what is refused, and that nothing is refused or changed in between."""

import hashlib
import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_tasks.protocol.codec import JsonError, canonical, digest, dumps, loads, merge_objects, plain_text, size_bytes

#: Everything that some JSON column of some database loses, refuses or confuses.
EXACT: dict[str, Any] = {
    "NUL": "a\x00b",
    "a high surrogate alone": "\ud800",
    "a low surrogate alone": "\udfff",
    "surrogates in the wrong order": "\udc00\ud800",
    "a surrogate as a key": {"\udabc": 1},
    "NUL as a key": {"\x00": 1},
    "an integer beyond doubles": 10**400,
    "an integer beyond the safe range": 2**53 + 1,
    "a double that looks like an integer": 1e16,
    "the largest power of ten": 1e308,
    "the smallest double": 5e-324,
    "minus zero": -0.0,
    "an integer as a double": 1.0,
    "line separators": "\u2028\u2029",
    "an emoji": "\U0001f600",
    "a combining accent": "e\u0301",
    "DEL": "\x7f",
    "control characters": "".join(map(chr, range(32))),
    "quotes and backslashes": '\\"/\\u0041',
    "an escape that is none": "\\ud800",
    "empty": {"": "", "list": [], "object": {}, "null": None},
    "booleans and numbers": [True, 1, 1.0, False, 0],
    "null": None,
    "a megabyte": "x" * 1_000_000,
}


def nested(levels: int, kind: str) -> Any:
    """Lists, objects, or both in turn, so many levels deep and empty inside."""
    value: Any = {} if kind == "objects" else []
    for level in range(levels - 1):
        as_object = kind == "objects" or (kind == "mixed" and level % 2)
        value = {"a": value} if as_object else [value]
    return value


def identical(one: Any, other: Any) -> bool:
    """Equal, of the same types, in the same order, with the same sign of zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(identical, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@pytest.mark.parametrize("value", EXACT.values(), ids=EXACT.keys())
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert identical(loads(dumps(value)), value)
    assert identical(loads(dumps({"inside": [value]})), {"inside": [value]})


@pytest.mark.parametrize("value", EXACT.values(), ids=EXACT.keys())
def test_every_database_can_store_the_text(value: Any) -> None:
    text = dumps(value)
    assert "\x00" not in text
    text.encode("utf-8")  # a lone surrogate would raise
    assert identical(loads(text.encode("utf-8")), value)


def test_only_surrogates_and_controls_are_escaped() -> None:
    assert dumps("é\u2028\U0001f600") == '"é\u2028\U0001f600"'
    assert dumps("\ud83dx\x00") == '"\\ud83dx\\u0000"'


def test_the_text_is_compact_and_keeps_the_order_of_keys() -> None:
    keys = ["b", "a", "aa", "", "B"]
    assert dumps({key: [1, 2] for key in keys}) == '{"b":[1,2],"a":[1,2],"aa":[1,2],"":[1,2],"B":[1,2]}'
    assert list(loads(dumps(dict.fromkeys(keys)))) == keys


def test_a_surrogate_pair_in_escapes_is_the_character_it_spells() -> None:
    assert loads('"\\ud83d\\ude00"') == "\U0001f600"


json_text = st.text(st.characters(exclude_categories=()), max_size=20).filter(
    # Python can hold a pair as two halves; no JSON text can say that.
    lambda text: not any("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff" for a, b in pairwise(text))
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**300, max_value=10**310)
    | st.floats(allow_nan=False, allow_infinity=False)
    | json_text
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_text, inner, max_size=4), max_leaves=20
)


@given(values)
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    assert identical(loads(dumps(value)), value)
    assert identical(loads(dumps(value).encode("utf-8")), value)


@given(values)
def test_the_standard_parser_reads_what_we_write(value: Any) -> None:
    assert identical(json.loads(dumps(value)), value)


@given(values)
def test_the_size_is_what_the_text_takes_in_utf_8(value: Any) -> None:
    assert size_bytes(dumps(value)) == len(dumps(value).encode("utf-8"))


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_a_size(text: str) -> None:
    assert size_bytes(text) == len(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_any_input_is_read_or_refused_and_nothing_else(text: bytes | str) -> None:
    try:
        value = loads(text)
    except JsonError:
        return
    assert identical(loads(dumps(value)), value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "[NaN]", '{"a":-Infinity}'])
def test_what_is_not_a_number_is_not_read(text: str) -> None:
    with pytest.raises(JsonError, match="is not JSON"):
        loads(text)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "[1e309]", '{"a":-1.0e999}', "9" * 400 + ".0"])
def test_a_number_beyond_doubles_is_not_read_as_infinity(text: str) -> None:
    with pytest.raises(JsonError, match="too large for a double"):
        loads(text)


def test_a_number_too_small_for_a_double_is_zero() -> None:
    assert identical(loads("1e-400"), 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], {"a": {"b": math.inf}}])
def test_what_is_not_a_number_is_not_written(value: Any) -> None:
    for write in (dumps, canonical, digest):
        with pytest.raises(JsonError):
            write(value)


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", [object()], {("a",): 1}, {"a": 1 + 2j}], ids=lambda value: str(value)[:20]
)
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    for write in (dumps, canonical):
        with pytest.raises(JsonError):
            write(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for write in (dumps, canonical):
        with pytest.raises(JsonError):
            write(endless)


@pytest.mark.parametrize("digits", ["5" * 5000, "-" + "5" * 5000, "[" + "5" * 100_000 + "]"])
def test_an_integer_that_python_would_not_convert_is_refused(digits: str) -> None:
    with pytest.raises(JsonError):
        loads(digits)


def test_an_integer_that_python_would_not_print_is_refused() -> None:
    for write in (dumps, canonical):
        with pytest.raises(JsonError):
            write({"a": 10**5000})


@pytest.mark.parametrize("text", [b"\xff", b'"\xed\xa0\x80"', b'"\xc3"', b"\x00\xfe", b'{"a":"\x80"}'])
def test_bytes_that_are_not_utf_8_are_refused(text: bytes) -> None:
    with pytest.raises(JsonError, match="not UTF-8"):
        loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[1,]",
        '{"a":1,}',
        "{'a':1}",
        "nul",
        "1 2",
        '"a\nb"',
        '"\\x41"',
        '"\\ud8"',
        "01",
        ".5",
        "+1",
        "\ufeff{}",
        b"\xef\xbb\xbf{}",
        '{"a":1}{"b":2}',
        "{1:2}",
    ],
)
def test_what_is_almost_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(JsonError):
        loads(text)


@pytest.mark.parametrize("kind", ["lists", "objects", "mixed"])
def test_a_hundred_levels_are_fine(kind: str) -> None:
    value = nested(100, kind)
    assert identical(loads(dumps(value)), value)
    assert identical(loads(json.dumps(value).encode()), value)


@pytest.mark.parametrize("kind", ["lists", "objects", "mixed"])
def test_a_hundred_and_one_levels_are_too_deep_both_ways(kind: str) -> None:
    value = nested(101, kind)
    with pytest.raises(JsonError, match="deeper than 100 levels"):
        loads(json.dumps(value))
    with pytest.raises(JsonError, match="deeper than 100 levels"):
        dumps(value)


@pytest.mark.parametrize("levels", [100, 101])
def test_levels_are_counted_beside_shallow_neighbours(levels: int) -> None:
    value = [[] for _ in range(200)] + [nested(levels - 1, "lists")] + ["[" * 300]
    if levels == 100:
        assert identical(loads(dumps(value)), value)
    else:
        with pytest.raises(JsonError, match="deeper"):
            dumps(value)
        with pytest.raises(JsonError, match="deeper"):
            loads(json.dumps(value))


def test_a_tuple_counts_as_a_level() -> None:
    value: Any = ()
    for _ in range(99):
        value = (value,)
    assert dumps(value) == "[" * 100 + "]" * 100
    with pytest.raises(JsonError, match="deeper"):
        dumps((value,))


def test_brackets_in_a_text_are_no_levels() -> None:
    value = {"[" * 500: "{" * 500}
    assert loads(dumps(value)) == value


def test_many_shallow_values_are_not_deep() -> None:
    value = [[{"a": []}] for _ in range(1000)]
    assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    "bomb",
    ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000],
    ids=["open lists", "lists", "open objects", "objects"],
)
def test_a_hundred_thousand_brackets_are_refused(bomb: str) -> None:
    with pytest.raises(JsonError):
        loads(bomb)
    with pytest.raises(JsonError):
        loads(bomb.encode())


def test_a_hundred_thousand_levels_are_not_written() -> None:
    bomb: list[Any] = []
    for _ in range(100_000):
        bomb = [bomb]
    for write in (dumps, canonical):
        with pytest.raises(JsonError):
            write(bomb)


def test_a_json_error_is_a_value_error_and_says_where() -> None:
    with pytest.raises(ValueError, match="column 2"):
        loads("[x]")


# -- canonical text ---------------------------------------------------------------------------------------------


def test_the_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    one = {"b": [{"y": 1, "x": 2}], "a": "é"}
    other = {"a": "é", "b": [{"x": 2, "y": 1}]}
    assert canonical(one) == canonical(other) == '{"a":"\\u00e9","b":[{"x":2,"y":1}]}'
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (1, 1.0),
        (1, True),
        (0, False),
        (0.0, -0.0),
        (None, "null"),
        ([], {}),
        ([1, 2], [2, 1]),
        ("\ud800", "\ud801"),
        ("\ud800", "\\ud800"),
        ("é", "e\u0301"),
        ({"a": None}, {}),
        ({"a": "b"}, {"b": "a"}),
    ],
)
def test_different_values_have_different_digests(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


@given(values)
def test_the_canonical_text_is_ascii_and_means_the_same(value: Any) -> None:
    text = canonical(value)
    assert text.isascii()
    assert canonical(loads(text)) == text
    assert canonical(loads(dumps(value))) == text


def test_the_digest_is_the_sha_256_of_the_canonical_text() -> None:
    assert digest({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()


def test_keys_that_cannot_be_sorted_are_refused() -> None:
    with pytest.raises(JsonError):
        canonical({"a": 1, None: 2})


# -- texts for plain columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("fine", 10, "fine"),
        ("", 10, ""),
        ("a\x00b", 10, "a\ufffdb"),
        ("\ud800\udfff", 10, "\ufffd\ufffd"),
        ("abcdef", 3, "abc"),
        ("\x00\x00\x00\x00", 2, "\ufffd\ufffd"),
        ("\U0001f600\U0001f600", 1, "\U0001f600"),
        ("line\nbreak\ttab", 20, "line\nbreak\ttab"),
    ],
)
def test_a_plain_text_is_cleaned_then_cut(text: str, length: int, expected: str) -> None:
    assert plain_text(text, length) == expected


@given(st.text(st.characters(exclude_categories=())), st.integers(min_value=0, max_value=20))
def test_every_database_stores_a_plain_text(text: str, length: int) -> None:
    plain = plain_text(text, length)
    assert len(plain) == min(len(text), length)
    assert "\x00" not in plain
    plain.encode("utf-8")


# -- splicing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((), "{}"),
        ((None,), "{}"),
        (("{}",), "{}"),
        (("{}", None, "{}"), "{}"),
        (('{"a":1}',), '{"a":1}'),
        (('{"a":1}', '{"b":{"c":[]}}'), '{"a":1,"b":{"c":[]}}'),
        (("{}", '{"a":1}', None, "", "{}", '{"b":2}'), '{"a":1,"b":2}'),
        (('{"a":"}"}', '{"b":"{"}'), '{"a":"}","b":"{"}'),
    ],
)
def test_objects_are_spliced_without_parsing(texts: tuple[str | None, ...], expected: str) -> None:
    assert merge_objects(*texts) == expected


@given(st.lists(st.dictionaries(json_text, scalars, max_size=3), max_size=4))
def test_spliced_objects_hold_the_members_of_all(objects: list[dict[str, Any]]) -> None:
    distinct = [{f"{index}{key}": value for key, value in item.items()} for index, item in enumerate(objects)]
    merged = loads(merge_objects(*map(dumps, distinct)))
    assert identical(merged, {key: value for item in distinct for key, value in item.items()})
