"""Untrusted JSON text as operators see it: nothing secret, nothing invisible, nothing changed, nothing that crashes."""

import itertools
import json
import re
import sys
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mcp_tasks.operators.display import MAX_PATH, Caps, NotJson, Shown, masked_chunks, show
from mcp_tasks.operators.masking import MASKED, Path, Rules, password_paths
from mcp_tasks.protocol.codec import dumps

HIDDEN = f'"{MASKED}"'
UNCAPPED = Caps(size_bytes=sys.maxsize, lines=sys.maxsize, string=sys.maxsize)
SECRET = "hunter2-Zq"


def download(text: str, **options: Any) -> str:
    return "".join(masked_chunks(text, **options))


# -- layout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "",
        0,
        None,
        True,
        [[]],
        [{}],
        {"a": []},
        {"a": {}},
        [1, [2, [3]], {}],
        {"a": 1, "b": [True, None, {"c": "d"}]},
    ],
)
def test_it_is_indented_like_everybody_indents(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, separators=(",", ":")), " " + json.dumps(value, indent=7) + "\n"):
        shown = show(text)
        assert shown == Shown(json.dumps(value, indent=2), 0, is_cut=False, is_valid=True, size_bytes=len(text))


@pytest.mark.parametrize(
    "token",
    [
        "1e400",
        "-0.0",
        "-0",
        "1E+05",
        "0.1000000000000000055511151231257827021181583404541015625",
        "9" * 3000,
        "1" + "0" * 400,
        '"\\u0041\\/\\n"',
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '"é\\u00e9"',
        '"<b>&amp;</pre>{{ x }}"',
        "true",
        "false",
        "null",
    ],
)
def test_a_token_stays_what_it_was(token: str) -> None:
    assert show(token).text == download(token) == token
    assert show(f'{{"a":[{token}]}}').text == f'{{\n  "a": [\n    {token}\n  ]\n}}'


def test_repeated_keys_and_their_order_survive() -> None:
    text = '{"b":1,"a":2,"b":3,"":4,"":5}'
    assert show(text).text == '{\n  "b": 1,\n  "a": 2,\n  "b": 3,\n  "": 4,\n  "": 5\n}'
    assert download(text) == text


def test_the_size_is_that_of_the_stored_bytes() -> None:
    assert show('["é", "\U0001f600"]').size_bytes == 14
    assert show('["\ud800').size_bytes == 5


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "[", "}", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", '{"a"}', '{"a":}', '{"a":1,}', "{,}",
        "{1:2}", '{"a" 1}', "[}", "{]", '{"a":1]', "[1}", '"', '"abc', '"\\', '"\\x"', '"\\u12"', '"\\u12g4"',
        '"a\nb"', '"a\x00b"', "[1]x", "[1] 2", "01", "-", "+1", "1.", ".5", "1e", "0x1", "tru", "True", "nan",
        "NaN", "[Infinity]", "-Infinity", "'a'", "undefined", "\ufeff[]", "[1]\x0b", '{"password":"hunter2"',
        "[" * 5000, '{"a":' * 5000, "[" * 5000 + "}", "[" * 5000 + "]" * 4999, "[" * 5000 + "]" * 5001,
        json.dumps(["x" * 50] * 9000)[:-1],
    ],
)  # fmt: skip
def test_of_what_is_no_json_only_the_size_is_said(text: str) -> None:
    assert show(text) == Shown("", 0, is_cut=False, is_valid=False, size_bytes=len(text.encode()))
    with pytest.raises(NotJson):
        masked_chunks(text)


# -- caps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        list(range(100_000)),
        ["x" * 100] * 5_000,
        {f"key {number}": number for number in range(20_000)},
        [{"name": "x", "value": [1, 2]}] * 10_000,
        [[]] * 50_000,
        ["é" * 3_000] * 100,
        ["\u202e" * 3_000] * 100,
        {"value": ["y" * 60] * 9_000},
        {"password": ["y" * 60] * 9_000, "rest": [1] * 9_000},
    ],
)
def test_no_more_than_the_caps_is_shown(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    shown = show(text)
    lines = shown.text.split("\n")
    assert len(shown.text.encode()) <= 64 * 1024
    assert len(lines) <= 2_000
    assert (shown.is_cut, shown.is_valid, lines[-1]) == (True, True, "…")
    assert len(shown.text.encode()) > 44 * 1024 or len(lines) == 2_000
    assert download(text) == text.replace(json.dumps(value["password"]), HIDDEN) if "password" in value else text


def test_what_just_fits_is_not_cut() -> None:
    assert not show(json.dumps([1] * 1_997)).is_cut  # with the brackets and room for the ellipsis
    assert show(json.dumps([1] * 1_998)).is_cut


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ('"' + "x" * 4_000 + '"', '"' + "x" * 4_000 + '"'),
        ('"' + "x" * 4_001 + '"', '"' + "x" * 4_000 + '"… (+1)'),
        ('"' + "\\n" * 4_000 + '"', '"' + "\\n" * 4_000 + '"'),
        ('"' + "\\n" * 4_001 + '"', '"' + "\\n" * 4_000 + '"… (+2)'),
        ('"' + "\\\\" * 4_001 + '"', '"' + "\\\\" * 4_000 + '"… (+2)'),
        ('"' + "\\u0041" * 4_001 + '"', '"' + "\\u0041" * 4_000 + '"… (+6)'),
        ('"' + "\\\"" * 4_001 + '"', '"' + "\\\"" * 4_000 + '"… (+2)'),
        ("7" * 4_100, "7" * 4_000 + "… (+100)"),
    ],
)  # fmt: skip
def test_a_long_token_is_cut_between_characters(token: str, expected: str) -> None:
    shown = show(token)
    assert shown.text == expected
    assert shown.is_cut == (token != expected)
    assert show(f"{{{token if token[0] == chr(34) else chr(34) * 2}: 1}}").is_valid
    assert download(token) == token


def test_it_is_shown_to_64_levels() -> None:
    assert not show("[" * 64 + "]" * 64).is_cut
    assert not show("[" * 65 + "]" * 65).is_cut  # the 65th is empty
    shown = show("[" * 65 + "1" + "]" * 65)
    assert shown.is_cut
    assert shown.text.count("[") == 65
    assert shown.text.split("\n")[64].strip() == "[…]"
    shown = show('{"a":' * 66 + "1" + "}" * 66)
    assert shown.text.count('"a": ') == 64
    assert shown.text.split("\n")[64].strip() == '"a": {…}'


@pytest.mark.parametrize("deep", ['{"pin":{"x":[1]},"b":2}', "[[[1],{}],2]", "[" + "1," * 9_000 + "1]", '[{"pin":1}]'])
def test_what_follows_something_deep_is_shown(deep: str) -> None:
    around = "[" * 64, "," + '{"pin":"x"}' + "]" * 64
    shown = show(around[0] + deep + around[1])
    assert shown.text.split("\n")[64].strip() == ("{…}," if deep[0] == "{" else "[…],")
    assert shown.text.split("\n")[65].strip() == "{…}"
    assert (
        json.loads(show(f'[{around[0]}{deep}{around[1]}, "z"]').text.replace("{…}", "0").replace("[…]", "0"))[1] == "z"
    )


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_100_000_levels_crash_nothing(text: str) -> None:
    shown = show(text, caps=UNCAPPED)
    assert (shown.is_valid, shown.is_cut) == (True, True)
    assert show(text).text == shown.text
    assert download(text) == text
    assert not show(text[:-1]).is_valid


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_time_grows_with_the_length_alone(separators: tuple[str, str]) -> None:
    row = {"id": 7, "name": "item", "email": "u@example.com", "score": 1.25, "tags": ["a", "b"], "value": None}
    text = json.dumps([row] * 4_000, separators=separators)
    started = time.process_time()
    download(text)
    whole = time.process_time() - started
    started = time.process_time()
    download(text[:-1] + "," + text[1:])
    assert time.process_time() - started < 6 * whole + 0.2
    assert whole < 2  # a generous clock: it takes about 70 ms


# -- characters -----------------------------------------------------------------------------------------------------


def test_what_cannot_be_seen_is_shown_as_an_escape() -> None:
    raw = "a\u202eb\u200bc\u2066d\ufeffe\x7ff\x85g\u2028h\U000e0041i"
    shown = show(json.dumps({raw: raw}, ensure_ascii=False)).text
    escaped = "a\\u202eb\\u200bc\\u2066d\\ufeffe\\u007ff\\u0085g\\u2028h\\udb40\\udc41i"
    assert shown == f'{{\n  "{escaped}": "{escaped}"\n}}'
    assert json.loads(shown) == {raw: raw}


def test_every_control_format_and_separating_character_is_escaped() -> None:
    unseen = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    characters = [chr(code) for code in range(0x20, 0x110000) if unicodedata.category(chr(code)) in unseen]
    assert [hex(ord(char)) for char in characters if show(f'"{char}"').text != json.dumps(char)] == []


def test_other_writing_is_left_alone() -> None:
    text = '"\u00e9\u00df \u65e5\u672c\u8a9e \u0627\u0644\u0639 \u05d0 \U0001f600 e\u0301 \u00a0 \u2026"'
    assert show(text).text == text


# -- secrets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"password":"S","a":1}', '{"password":M,"a":1}'),
        ('{"pass\\u0077ord":"S"}', '{"pass\\u0077ord":M}'),
        ('{"\\u0070\\u0069\\u006e" : 1234 }', '{"\\u0070\\u0069\\u006e" : M }'),
        ('{"api_key":{"a":["S",{"b":"S"}]},"z":[]}', '{"api_key":M,"z":[]}'),
        ('{"secret":[],"token":null,"otp":true,"pin":-0.0}', '{"secret":M,"token":M,"otp":M,"pin":M}'),
        ('[[{"a":{"cookie":"S"}}],"S2"]', '[[{"a":{"cookie":M}}],"S2"]'),
        ('{"spin":1,"max_tokens":"5","token_count":5}', '{"spin":1,"max_tokens":"5","token_count":5}'),
        ('{"token_count":"S","tokens":["S"],"tokens":5}', '{"token_count":M,"tokens":M,"tokens":5}'),
        ('{"password":"S","password":"S"}', '{"password":M,"password":M}'),
        ('["Bearer S","a"]', '[M,"a"]'),
        ('"Bearer S"', "M"),
        ('{"u":"https:\\/\\/a:S@example.com"}', '{"u":M}'),
        ('{"u":"\\u0042earer S"}', '{"u":M}'),
        ('{"Bearer SSSSSSSSSSSS":1}', "{M:1}"),
        ('{"pem":"-----BEGIN KEY-----\\nS"}', '{"pem":M}'),
        ('{"j":"{\\"a\\":{\\"password\\":\\"S\\"}}"}', '{"j":M}'),
        ('{"j":"{\\"a\\":{\\"spin\\":\\"S\\"}}"}', '{"j":"{\\"a\\":{\\"spin\\":\\"S\\"}}"}'),
        ('{"name":"Authorization","value":"S"}', '{"name":"Authorization","value":M}'),
        ('{"value":"S","name":"Authorization"}', '{"value":M,"name":"Authorization"}'),
        ('{"value":{"a":["S",{"pin":1}]},"x":{"pin":2},"name":"Cookie"}', '{"value":M,"x":{"pin":M},"name":"Cookie"}'),
        ('{"Key":"X-Api-Key","Value":"S"}', '{"Key":"X-Api-Key","Value":M}'),
        ('{"header":"cookie","values":["S"]}', '{"header":"cookie","values":M}'),
        ('{"value":"S","value":"S","name":"x","name":"pin"}', '{"value":M,"value":M,"name":"x","name":"pin"}'),
        ('{"name":"pin","a":{"value":1},"value":2}', '{"name":"pin","a":{"value":1},"value":M}'),
        ('{"value":{"name":"pin","value":1},"name":"x"}', '{"value":{"name":"pin","value":M},"name":"x"}'),
        ('{"name":"token_count","value":5}', '{"name":"token_count","value":5}'),
        ('{"value":5,"name":"token_count"}', '{"value":5,"name":"token_count"}'),
        ('{"name":["pin"],"value":5}', '{"name":["pin"],"value":5}'),
        ('{"h":[["Cookie","S"],["Accept","*"],["pin",1,[2]]]}', '{"h":[["Cookie",M],["Accept","*"],["pin",M,M]]}'),
        ('{"required":["password","name"]}', '{"required":["password","name"]}'),
        ('["password","name"]', '["password","name"]'),
    ],
)
def test_secrets_are_hidden_and_everything_else_is_exact(text: str, expected: str) -> None:
    masked = expected.replace("M", HIDDEN) if "M" in expected else expected
    assert download(text) == masked
    shown = show(text)
    assert "".join(shown.text.split()) == "".join(masked.split())
    assert (shown.masked, shown.is_cut) == (expected.count("M"), False)


def test_words_of_the_project_hide_too() -> None:
    text = '{"salary":5,"a":"{\\"salary\\":5}"}'
    assert show(text).masked == 0
    assert download(text, rules=Rules(["salary"])) == f'{{"salary":{HIDDEN},"a":{HIDDEN}}}'


def test_a_name_far_behind_its_value_still_hides_it() -> None:
    text = json.dumps({"value": SECRET, "rows": list(range(50_000)), "name": "Authorization"})
    shown = show(text)
    assert SECRET not in shown.text
    assert (shown.masked, shown.is_cut) == (1, True)
    text = json.dumps({"value": [SECRET] * 50_000, "name": "Authorization"})
    assert show(text).text == f'{{\n  "value": {HIDDEN}\n…'


def test_the_policy_hides_shows_or_leaves_it_to_the_rules() -> None:
    asked: list[tuple[Path, str]] = []

    def mask(path: Path, key: str) -> bool | None:
        asked.append((path, key))
        return {"card": True, "token": False}.get(key)

    text = '{"card":{"n":1},"token":"a","secret":2,"l":[{"token":"Bearer S"},{"x":3}]}'
    expected = f'{{"card":{HIDDEN},"token":"a","secret":{HIDDEN},"l":[{{"token":{HIDDEN}}},{{"x":3}}]}}'
    assert download(text, mask=mask) == expected
    assert asked == [
        (("card",), "card"),
        (("token",), "token"),
        (("secret",), "secret"),
        (("l",), "l"),
        (("l", 0, "token"), "token"),
        (("l", 1, "x"), "x"),
    ]
    assert show(text, mask=mask).masked == 3


def test_password_fields_of_the_question_are_hidden_in_the_answer() -> None:
    schema = {"properties": {"word": {"format": "password"}, "list": {"items": {"format": "password"}}, "n": {}}}
    answer = '{"action":"accept","content":{"word":"S","n":1,"list":["S"]},"word":"not it"}'
    expected = f'{{"action":"accept","content":{{"word":{HIDDEN},"n":1,"list":{HIDDEN}}},"word":"not it"}}'
    paths = password_paths(schema)
    assert download(answer, paths=paths) == expected
    assert download(answer, paths=paths, mask=lambda path, key: False) == expected
    assert download('{"a":[1,2]}', paths={("a", 1)}) == f'{{"a":[1,{HIDDEN}]}}'
    assert download("[1]", paths={()}) == HIDDEN


def test_where_paths_end_everything_is_hidden() -> None:
    deep = "[" * 200 + f'"{SECRET}"' + "]" * 200
    assert download(deep, mask=lambda path, key: None) == "[" * MAX_PATH + "[" + HIDDEN + "]" * MAX_PATH + "]"
    assert download(deep) == deep


def test_a_download_comes_in_pieces() -> None:
    text = json.dumps(["x" * 200_000, {"pin": 1}, "y" * 10])
    pieces = list(masked_chunks(text))
    assert max(map(len, pieces)) <= 64 * 1024
    assert "".join(pieces) == text.replace("1}", f"{HIDDEN}}}")


# -- whatever the value ---------------------------------------------------------------------------------------------

texts = st.text(
    st.characters(codec="utf-8") | st.sampled_from('"\\\x00\x1f\x7f\u200b\u202e\U000e0001\ud800\udfff/'), max_size=12
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)


values = st.recursive(scalars, containers, max_leaves=25)


def planted(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    around = st.tuples(inner, values)
    return (
        st.builds(lambda pair: [pair[1], pair[0]], around)
        | st.builds(lambda key, pair: {"before": pair[1], key: pair[0]}, texts, around)
        | st.builds(lambda pair: {"value": pair[0], "name": "x", "then": pair[1]}, around)
    )


secret_keys = st.sampled_from(
    ["password", "X-Api-Key", "userPin", "client_secret", "Set-Cookie", "private.key", "iban"]
)
bearers = st.sampled_from([SECRET, [SECRET], {"a": {"b": SECRET}}, f"x{SECRET}y", [[], {"c": [SECRET]}]])
holders = (
    st.builds(lambda key, value: {key: value}, secret_keys, bearers)
    | st.builds(lambda key, value, rest: {"value": value, "o": rest, "name": key}, secret_keys, bearers, values)
    | st.builds(lambda key, value: {"key": key, "value": value}, secret_keys, bearers)
    | st.builds(lambda key, value: {"text": json.dumps({"a": [{key: value}]})}, secret_keys, bearers)
    | st.builds(lambda key, value: {"text": json.dumps({"a": json.dumps({key: value})})}, secret_keys, bearers)
    | st.just([f"https://user:{SECRET}@example.com", f"Bearer {SECRET}"])
)


def with_escapes(text: str, every: int) -> str:
    """The same JSON with every n-th small letter of its strings written as an escape."""
    count = itertools.count(1)

    def letter(found: re.Match[str]) -> str:
        char = found[0]
        return char if len(char) > 1 or next(count) % every else f"\\u{ord(char):04x}"

    return re.sub(
        r'"(?:[^"\\]|\\.)*"', lambda string: re.sub(r"\\u.{4}|\\.|[a-z]", letter, string[0]), text, flags=re.DOTALL
    )


@given(values, st.booleans())
@example({"a\x7f": "\x00\u202e"}, False)
@example([-0.0, 2**70, 1e-320, 1e16], True)
def test_what_is_shown_parses_to_the_same_value(value: Any, is_compact: bool) -> None:
    text = dumps(value) if is_compact else json.dumps(value, indent=1)
    shown = show(text, caps=UNCAPPED)
    assume(not shown.masked)
    assert not shown.is_cut
    assert repr(json.loads(shown.text)) == repr(json.loads(text))
    assert download(text) == text


@given(st.recursive(holders, planted, max_leaves=3), st.integers(1, 6), st.booleans())
def test_a_planted_secret_is_never_shown(value: Any, every: int, is_compact: bool) -> None:
    text = dumps(value) if is_compact else json.dumps(value, indent=1)
    text = text if every == 6 else with_escapes(text, every)
    assert json.loads(text) == json.loads(dumps(value))
    for output in (show(text).text, show(text, caps=UNCAPPED).text, download(text)):
        assert SECRET not in output
        assert SECRET not in json.dumps(json.loads(output))
    assert show(text).masked > 0


@given(values, st.data())
def test_validity_is_what_the_library_says(value: Any, data: st.DataObject) -> None:
    text = dumps(value)
    at = data.draw(st.integers(0, len(text)))
    text = (
        text[:at]
        + data.draw(st.sampled_from(["", ",", '"', "]", "}", "[", "{", "\\", "1", ":", " ", "e", "-", "."]))
        + text[at + 1 :]
    )
    try:
        json.loads(text, parse_constant=lambda name: json.loads(name + "?"))
    except ValueError:
        with pytest.raises(NotJson):
            masked_chunks(text)
        assert not show(text).is_valid
    else:
        assert show(text).is_valid
        masked_chunks(text)
