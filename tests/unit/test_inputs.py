"""Questions to a client and its answers: what may be asked, what counts as an answer, and what messages may say."""

import types
from typing import Any

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_tasks.protocol.codec import MAX_DEPTH, dumps, loads
from mcp_tasks.protocol.inputs import InvalidAnswer, InvalidInputRequest, check_answer, check_requests

SECRET = "hunter2"


def form(properties: dict[str, Any] | None = None, **schema: Any) -> dict[str, Any]:
    requested = {"type": "object", "properties": properties or {}, **schema}
    return {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": requested}}


def url(**more: Any) -> dict[str, Any]:
    params = {"mode": "url", "message": "m", "url": "https://x.example/start", **more}
    return {"method": "elicitation/create", "params": params}


def sampling(**more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 5, **more}}


ROOTS: dict[str, Any] = {"method": "roots/list"}
NAME = form({"name": {"type": "string"}}, required=["name"])


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


# -- questions ----------------------------------------------------------------------------------------------------

GOOD: dict[str, dict[str, Any]] = {
    "form": form(),
    "form by name": {**form(), "params": {**form()["params"], "mode": "form"}},
    "form with every kind of field": form(
        {
            "s": {"type": "string", "minLength": 1, "maxLength": 5, "format": "email", "default": "a@b"},
            "n": {"type": "number", "minimum": 0.5, "maximum": 1e308},
            "i": {"type": "integer", "minimum": -1},
            "b": {"type": "boolean", "default": False},
            "one": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
            "many": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "minItems": 1},
        },
        required=["s"],
    ),
    "form without properties": {**form(), "params": {"message": "m", "requestedSchema": {"type": "object"}}},
    "url": url(),
    "sampling": sampling(),
    "sampling with everything": sampling(
        modelPreferences={"hints": [{"name": "x"}], "costPriority": 1, "speedPriority": 0.5},
        systemPrompt="s",
        includeContext="thisServer",
        temperature=1,
        stopSequences=["a"],
        metadata={"a": {"b": [None]}},
        tools=[{"name": "t", "inputSchema": {"type": "object"}}],
        toolChoice={"mode": "auto"},
    ),
    "sampling in several blocks": sampling(
        messages=[{"role": "assistant", "content": [{"type": "image", "data": "eA==", "mimeType": "image/png"}]}]
    ),
    "roots": ROOTS,
    "roots with params": {"method": "roots/list", "params": {"_meta": {"a": 1}}},
}


@pytest.mark.parametrize("request_", GOOD.values(), ids=GOOD.keys())
def test_a_question_is_passed_on_as_it_is(request_: dict[str, Any]) -> None:
    checked = check_requests({"key": request_})
    assert checked == {"key": request_}
    assert dumps(checked) == dumps({"key": request_})  # in the same order too


def test_questions_keep_their_order() -> None:
    assert list(check_requests({"b": form(), "a": ROOTS, "aa": url()})) == ["b", "a", "aa"]


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "\U0001f600", "\\ud800", "\ud7ff\ue000", "\\\ud800"])
def test_a_question_may_hold_any_text(text: str) -> None:
    asked = {"k": {"method": "elicitation/create", "params": {"message": text, "requestedSchema": {"type": "object"}}}}
    assert check_requests(asked) == asked
    asked = {"k": form({"a": {"type": "string", "title": text, "default": text}})}
    assert check_requests(asked) == asked
    asked = {"k": sampling(systemPrompt=text, metadata={text: text})}
    assert check_requests(asked) == asked


def test_roots_without_params_and_with_empty_ones_are_the_same_question() -> None:
    assert check_requests({"k": {"method": "roots/list", "params": {}}}) == {"k": ROOTS}


def test_what_belongs_to_an_envelope_is_left_out() -> None:
    assert check_requests({"k": {"jsonrpc": "2.0", "id": 5, **ROOTS}}) == {"k": ROOTS}


def test_a_model_of_the_wire_is_a_question() -> None:
    params = mcp_types.ElicitRequestFormParams(message="m", requested_schema={"type": "object", "properties": {}})
    assert check_requests({"k": mcp_types.ElicitRequest(params=params), "r": mcp_types.ListRootsRequest()}) == {
        "k": {"method": "elicitation/create", "params": {"mode": "form", **form()["params"]}},
        "r": ROOTS,
    }


def test_what_is_checked_is_a_copy() -> None:
    asked = {"k": form({"a": {"type": "string"}})}
    checked = check_requests(asked)
    asked["k"]["params"]["requestedSchema"]["properties"]["a"]["type"] = "integer"
    assert checked == {"k": form({"a": {"type": "string"}})}


@pytest.mark.parametrize("requests", [{}, None, [], [ROOTS], "k", 5, ROOTS["method"]])
def test_questions_are_a_map_with_an_entry(requests: Any) -> None:
    with pytest.raises(InvalidInputRequest, match="at least one entry"):
        check_requests(requests)


@pytest.mark.parametrize("key", ["a", "a b"[:1], "!", "~", "a/b:c", "x" * 128, "confirm-1"])
def test_a_key_is_visible_ascii(key: str) -> None:
    assert list(check_requests({key: ROOTS})) == [key]


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "a\n", "\x00", "\ud800", "x" * 129, 5, None, ("a",), b"a"])
def test_another_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInputRequest, match="is no key"):
        check_requests({key: ROOTS})


@pytest.mark.parametrize("request_", [None, 5, "roots/list", [], ["roots/list"], True])
def test_a_question_is_an_object(request_: Any) -> None:
    with pytest.raises(InvalidInputRequest, match="k: an input request is an object"):
        check_requests({"k": request_})


@pytest.mark.parametrize(
    "method", [None, 5, "", "elicitation", "elicitation/Create", "tools/call", "ping", ["roots/list"], "roots/list "]
)
def test_only_three_kinds_can_be_asked(method: Any) -> None:
    with pytest.raises(InvalidInputRequest, match="no kind of input request"):
        check_requests({"k": {"method": method, "params": {}}})
    with pytest.raises(InvalidInputRequest, match="no kind of input request"):
        check_requests({"k": {}})


@pytest.mark.parametrize("params", [None, [], "a", 5])
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_params_of_a_question_are_an_object(method: str, params: Any) -> None:
    with pytest.raises(InvalidInputRequest, match="k: params must be an object"):
        check_requests({"k": {"method": method, "params": params}})


BAD: dict[str, dict[str, Any]] = {
    "no message": {"method": "elicitation/create", "params": {"requestedSchema": {"type": "object"}}},
    "no schema": {"method": "elicitation/create", "params": {"message": "m"}},
    "no params": {"method": "elicitation/create"},
    "a schema under its name in Python": {
        "method": "elicitation/create",
        "params": {"message": "m", "requested_schema": {"type": "object"}},
    },
    "message of a wrong type": {**form(), "params": {**form()["params"], "message": 5}},
    "a mode that does not exist": {**form(), "params": {**form()["params"], "mode": "voice"}},
    "no mode": {**form(), "params": {**form()["params"], "mode": None}},
    "a schema that is a list": {**form(), "params": {"message": "m", "requestedSchema": []}},
    "a schema that is true": {**form(), "params": {"message": "m", "requestedSchema": True}},
    "a schema of no type": {**form(), "params": {"message": "m", "requestedSchema": {}}},
    "a schema of a text": form(type="string"),
    "a schema of several types": form(type=["object"]),
    "properties that are a list": {
        "method": "elicitation/create",
        "params": {"message": "m", "requestedSchema": {"type": "object", "properties": []}},
    },
    "a schema with a wrong type": form({"a": {"type": "text"}}),
    "a schema with a wrong pattern": form({"a": {"type": "string", "pattern": "("}}),
    "a schema of another dialect": form(**{"$schema": "http://json-schema.org/draft-07/schema#"}),
    "a schema that leaves itself": form({"a": {"$ref": "https://schemas.example/a"}}),
    "a schema that leads nowhere": form({"a": {"$ref": "#/$defs/a"}}),
    "url without url": {"method": "elicitation/create", "params": {"mode": "url", "message": "m"}},
    "url without message": {"method": "elicitation/create", "params": {"mode": "url", "url": "https://x.example"}},
    "no maxTokens": {"method": "sampling/createMessage", "params": {"messages": []}},
    "maxTokens under its name in Python": {
        "method": "sampling/createMessage",
        "params": {"messages": [], "max_tokens": 1},
    },
    "no messages": {"method": "sampling/createMessage", "params": {"maxTokens": 5}},
    "maxTokens as a text": sampling(maxTokens="5"),
    "maxTokens as a boolean": sampling(maxTokens=True),
    "an unknown role": sampling(messages=[{"role": "system", "content": {"type": "text", "text": "x"}}]),
    "an unknown block": sampling(messages=[{"role": "user", "content": {"type": "video"}}]),
    "a block under names of Python": sampling(
        messages=[{"role": "user", "content": {"type": "image", "data": "eA==", "mime_type": "image/png"}}]
    ),
    "an unknown context": sampling(includeContext="everything"),
    "NaN": sampling(temperature=float("nan")),
    "no JSON at all": sampling(metadata={"a": object()}),
    "a set": form({"a": {"enum": {"x", "y"}}}),
}  # fmt: skip


@pytest.mark.parametrize("request_", BAD.values(), ids=BAD.keys())
def test_a_question_that_no_client_could_take_is_refused_by_its_key(request_: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputRequest, match=r"^the-key: "):
        check_requests({"fine": ROOTS, "the-key": request_})


@pytest.mark.parametrize("levels", [MAX_DEPTH - 5, MAX_DEPTH + 1, 100_000])
def test_a_question_too_deep_to_be_stored_is_refused(levels: int) -> None:
    deep: Any = "x"
    for _ in range(levels):
        deep = [deep]
    for asked in (sampling(metadata={"a": deep}), {"method": "roots/list", "params": {"_meta": {"a": deep}}}):
        if levels < MAX_DEPTH:
            assert check_requests({"k": asked}) == {"k": asked}
        else:
            with pytest.raises(InvalidInputRequest, match="k: nested deeper"):
                check_requests({"k": asked})


def test_a_schema_may_be_any_mapping() -> None:
    request = types.MappingProxyType({"method": "roots/list", "params": types.MappingProxyType({"_meta": {}})})
    assert check_requests(types.MappingProxyType({"k": request})) == {
        "k": {"method": "roots/list", "params": {"_meta": {}}}
    }


# -- answers ------------------------------------------------------------------------------------------------------

BLOCK = {"type": "text", "text": "Paris"}
MODEL = {"role": "assistant", "model": "m", "content": BLOCK}

ANSWERS: dict[str, tuple[dict[str, Any], Any]] = {
    "accept": (NAME, accept(name="Ada")),
    "decline": (NAME, {"action": "decline"}),
    "cancel": (NAME, {"action": "cancel"}),
    "decline with content that violates the schema": (NAME, {"action": "decline", "content": {"name": 5}}),
    "cancel with null content": (NAME, {"action": "cancel", "content": None}),
    "members beyond the answer": (NAME, {**accept(name="Ada"), "_meta": {"a": 1}, "extra": [[]]}),
    "members beyond the form": (NAME, accept(name="Ada", extra=True, more=["a"])),
    "an empty form": (form(), accept()),
    "a number that is no integer": (form({"n": {"type": "number"}}), accept(n=0.5)),
    "an integer for a number": (form({"n": {"type": "number"}}), accept(n=10**400)),
    "an integer with a point": (form({"n": {"type": "integer"}}), accept(n=3.0)),
    "a boolean": (form({"b": {"type": "boolean"}}), accept(b=False)),
    "several choices": (
        form({"c": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}}),
        accept(c=["b", "a"]),
    ),
    "no choice": (form({"c": {"type": "array", "items": {"type": "string"}}}), accept(c=[])),
    "a titled choice": (form({"c": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}}), accept(c="a")),
    "a date": (form({"d": {"type": "string", "format": "date"}}), accept(d="2026-07-28")),
    "a surrogate": (NAME, accept(name="\ud800")),
    "a field called like a surrogate": (form({"\ud800": {"type": "string"}}), accept(**{"\ud800": "x"})),
    "url accepted": (url(), {"action": "accept"}),
    "url declined": (url(), {"action": "decline"}),
    "url with content": (url(), {"action": "accept", "content": {"a": 1}}),
    "a model's block": (sampling(), MODEL),
    "a model's blocks": (sampling(), {**MODEL, "content": [BLOCK, BLOCK], "stopReason": "something new"}),
    "a model's tool use": (
        sampling(),
        {**MODEL, "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {"a": 1}}]},
    ),
    "a model's image": (sampling(), {**MODEL, "content": {"type": "image", "data": "eA==", "mimeType": "image/png"}}),
    "a model's surrogate": (sampling(), {**MODEL, "content": {"type": "text", "text": "\udc00"}}),
    "a model's members beyond": (sampling(), {**MODEL, "extra": {"a": [None]}}),
    "roots": (ROOTS, {"roots": [{"uri": "file:///srv", "name": "srv"}, {"uri": "file:///x y"}]}),
    "no roots": (ROOTS, {"roots": []}),
    "roots with members beyond": (ROOTS, {"roots": [{"uri": "file:///srv", "extra": 1}], "extra": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "answer"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("strict", [True, False])
def test_an_answer_fits_its_question(request_: dict[str, Any], answer: Any, strict: bool) -> None:
    [question] = check_requests({"k": request_}).values()
    check_answer("k", question, loads(dumps(answer)), strict=strict)


@pytest.mark.parametrize(
    "closing",
    [
        {"additionalProperties": False},
        {"additionalProperties": {"type": "integer"}},
        {"unevaluatedProperties": False},
        {"propertyNames": {"enum": ["name"]}},
        {"maxProperties": 1},
    ],
)
def test_members_beyond_a_form_are_allowed_whatever_its_schema_says(closing: dict[str, Any]) -> None:
    request = form({"name": {"type": "string"}}, required=["name"], **closing)
    check_answer("k", request, accept(name="Ada", favourite="blue"))
    with pytest.raises(InvalidAnswer):
        check_answer("k", request, accept(favourite="blue"))


STRUCTURE: dict[str, tuple[dict[str, Any], Any]] = {
    "no object": (NAME, "accept"),
    "null": (NAME, None),
    "a list": (NAME, [accept(name="Ada")]),
    "no action": (NAME, {"content": {"name": "Ada"}}),
    "another action": (NAME, {"action": "Accept", "content": {"name": "Ada"}}),
    "an action that is a list": (NAME, {"action": ["accept"]}),
    "no action for a url": (url(), {}),
    "content that is a list": (NAME, {"action": "accept", "content": ["Ada"]}),
    "content that is a text": (NAME, {"action": "decline", "content": "Ada"}),
    "a field that is an object": (NAME, accept(name={"a": 1})),
    "a field that is a list of numbers": (NAME, accept(name=[1])),
    "a field that is a list of lists": (NAME, accept(name=[["a"]])),
    "a field beyond that is an object": (NAME, accept(name="Ada", extra={})),
    "a model's answer to a form": (NAME, MODEL),
    "a form's answer to a model": (sampling(), accept(name="Ada")),
    "no model": (sampling(), {"role": "assistant", "content": BLOCK}),
    "no role": (sampling(), {"model": "m", "content": BLOCK}),
    "no content": (sampling(), {"role": "assistant", "model": "m"}),
    "content of a model that is a text": (sampling(), {**MODEL, "content": "Paris"}),
    "an unknown block": (sampling(), {**MODEL, "content": {"type": "video"}}),
    "a block without its text": (sampling(), {**MODEL, "content": {"type": "text"}}),
    "a model's number": (sampling(), {**MODEL, "model": 5}),
    "no list of roots": (ROOTS, {}),
    "roots that are an object": (ROOTS, {"roots": {}}),
    "a root without uri": (ROOTS, {"roots": [{"name": "srv"}]}),
    "a root that is no file": (ROOTS, {"roots": [{"uri": "https://x.example"}]}),
    "a root that is no uri": (ROOTS, {"roots": [{"uri": "srv"}]}),
    "a root that is a text": (ROOTS, {"roots": ["file:///srv"]}),
    "a form's answer to roots": (ROOTS, accept(name="Ada")),
}


@pytest.mark.parametrize(("request_", "answer"), STRUCTURE.values(), ids=STRUCTURE.keys())
@pytest.mark.parametrize("strict", [True, False])
def test_the_structure_of_an_answer_is_always_demanded(request_: dict[str, Any], answer: Any, strict: bool) -> None:
    with pytest.raises(InvalidAnswer, match="the-key"):
        check_answer("the-key", request_, answer, strict=strict)


VIOLATIONS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "required": (NAME, accept(), "'required'"),
    "type": (NAME, accept(name=5), "'type' at 'name'"),
    "null": (NAME, accept(name=None), "'type' at 'name'"),
    "a boolean is no integer": (form({"n": {"type": "integer"}}), accept(n=True), "'type' at 'n'"),
    "half an integer": (form({"n": {"type": "integer"}}), accept(n=0.5), "'type' at 'n'"),
    "minimum": (form({"n": {"type": "number", "minimum": 1}}), accept(n=0.5), "'minimum' at 'n'"),
    "length": (form({"s": {"type": "string", "maxLength": 1}}), accept(s="ab"), "'maxLength' at 's'"),
    "choice": (form({"s": {"type": "string", "enum": ["a"]}}), accept(s="b"), "'enum' at 's'"),
    "one of several choices": (
        form({"s": {"type": "array", "items": {"type": "string", "enum": ["a"]}}}),
        accept(s=["a", "b"]),
        "'enum' at 's/1'",
    ),
    "format": (form({"d": {"type": "string", "format": "date"}}), accept(d="tomorrow"), "'format' at 'd'"),
    "email": (form({"e": {"type": "string", "format": "email"}}), accept(e="nobody"), "'format' at 'e'"),
    "no content": (NAME, {"action": "accept"}, "needs content"),
    "null content": (NAME, {"action": "accept", "content": None}, "needs content"),
}


@pytest.mark.parametrize(("request_", "answer", "message"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_an_accepted_form_satisfies_its_schema_unless_the_tool_is_lenient(
    request_: dict[str, Any], answer: Any, message: str
) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        check_answer("the-key", request_, answer)
    assert "'the-key'" in str(caught.value)
    assert message in str(caught.value)
    check_answer("the-key", request_, answer, strict=False)


def test_a_big_integer_is_judged_and_does_not_break_the_judge() -> None:
    request = form({"n": {"type": "number", "multipleOf": 0.1}})
    check_answer("k", request, accept(n=10**400))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (NAME, SECRET),
        (NAME, {"action": SECRET}),
        (NAME, {"action": "accept", "content": SECRET}),
        (NAME, accept(name=[SECRET, 5])),
        (NAME, accept(name={"a": SECRET})),
        (form({"s": {"type": "integer"}}), accept(s=SECRET)),
        (form({"s": {"type": "string", "enum": ["a"]}}), accept(s=SECRET)),
        (form({"s": {"type": "string", "const": "a"}}), accept(s=SECRET)),
        (form({"s": {"type": "string", "maxLength": 1}}), accept(s=SECRET)),
        (form({"s": {"type": "string", "pattern": "^x"}}), accept(s=SECRET)),
        (form({"s": {"type": "string", "format": "date"}}), accept(s=SECRET)),
        (form({"s": {"type": "array", "items": {"enum": ["a"]}}}), accept(s=[SECRET])),
        (form({"s": {"type": "array", "maxItems": 0}}), accept(s=[SECRET])),
        (sampling(), {**MODEL, "role": SECRET}),
        (sampling(), {**MODEL, "content": SECRET}),
        (sampling(), {**MODEL, "content": {"type": SECRET}}),
        (sampling(), {**MODEL, "content": {"type": "text", "text": [SECRET]}}),
        (ROOTS, {"roots": SECRET}),
        (ROOTS, {"roots": [SECRET]}),
        (ROOTS, {"roots": [{"uri": SECRET}]}),
        (ROOTS, {"roots": [{"uri": f"https://{SECRET}/"}]}),
        (ROOTS, {"roots": [{"uri": f"file://[{SECRET}/"}]}),
        (ROOTS, {"roots": [{"uri": "file:///x", "name": [SECRET]}]}),
    ],
)
def test_a_refusal_never_quotes_what_was_answered(request_: dict[str, Any], answer: Any) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        check_answer("k", request_, answer)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
answers = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("action", "content", "role", "model", "roots", "stopReason"), json_values)
    ),
    st.fixed_dictionaries({"action": st.just("accept")}, optional={"content": json_values}),
)


@given(st.sampled_from([NAME, form(), url(), sampling(), ROOTS]), answers, st.booleans())
def test_any_answer_is_accepted_or_refused_and_nothing_else(
    request_: dict[str, Any], answer: Any, strict: bool
) -> None:
    before = dumps(answer)
    try:
        check_answer("k", request_, answer, strict=strict)
    except InvalidAnswer:
        pass
    assert dumps(answer) == before


@given(
    st.dictionaries(st.text(max_size=3), json_values | st.sampled_from([ROOTS, NAME, url(), sampling()]), max_size=3)
)
def test_any_questions_are_accepted_or_refused_and_nothing_else(requests: dict[str, Any]) -> None:
    try:
        checked = check_requests(requests)
    except InvalidInputRequest:
        return
    assert checked == check_requests(checked)
