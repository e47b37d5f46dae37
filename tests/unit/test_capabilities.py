"""What a client declared, and what a question needs of it."""

from typing import Any

import pytest

from mcp_tasks.protocol.capabilities import NEEDS_TASKS, TASKS, declares_tasks, missing_for, needed_for


def form() -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {"type": "object"}}}


def url() -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://x.example"}}


def sampling(**more: Any) -> dict[str, Any]:
    return {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5, **more}}


def roots() -> dict[str, Any]:
    return {"method": "roots/list"}


FORM, URL = {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}


@pytest.mark.parametrize("settings", [{}, {"anything": 1}])
def test_any_object_declares_the_extension(settings: dict[str, Any]) -> None:
    assert declares_tasks({"extensions": {TASKS: settings}})


def test_what_a_client_would_have_to_declare_declares_the_extension() -> None:
    assert declares_tasks(NEEDS_TASKS)


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"extensions": {}},
        {"extensions": {TASKS: None}},
        {"extensions": {TASKS: True}},
        {"extensions": {TASKS: []}},
        {"extensions": [TASKS]},
        {"extensions": TASKS},
        {"extensions": None},
        {"extensions": {TASKS.upper(): {}}},
        {"tasks": {}},
        {TASKS: {}},
        {"experimental": {TASKS: {}}},
    ],
)
def test_nothing_else_declares_the_extension(capabilities: dict[str, Any]) -> None:
    assert not declares_tasks(capabilities)


@pytest.mark.parametrize(
    ("request_", "needed"),
    [
        (form(), FORM),
        ({"method": "elicitation/create", "params": {**form()["params"], "mode": "form"}}, FORM),
        (url(), URL),
        (roots(), {"roots": {}}),
        ({"method": "roots/list", "params": {}}, {"roots": {}}),
        (sampling(), {"sampling": {}}),
        (sampling(includeContext="none"), {"sampling": {}}),
        (sampling(includeContext="thisServer"), {"sampling": {"context": {}}}),
        (sampling(includeContext="allServers"), {"sampling": {"context": {}}}),
        (sampling(tools=[]), {"sampling": {"tools": {}}}),
        (sampling(toolChoice={"mode": "auto"}), {"sampling": {"tools": {}}}),
        (sampling(tools=[], includeContext="allServers"), {"sampling": {"tools": {}, "context": {}}}),
    ],
)
def test_each_kind_of_question_needs_its_capability(request_: dict[str, Any], needed: dict[str, Any]) -> None:
    assert needed_for(request_) == needed
    assert missing_for({"k": request_}, {}) == needed
    assert missing_for({"k": request_}, needed) == {}


@pytest.mark.parametrize("declared", [{"elicitation": {}}, FORM, {"elicitation": {"form": {}, "url": {}}}])
def test_an_empty_elicitation_means_forms(declared: dict[str, Any]) -> None:
    assert missing_for({"k": form()}, declared) == {}


def test_an_empty_elicitation_means_nothing_but_forms() -> None:
    assert missing_for({"k": url()}, {"elicitation": {}}) == URL
    assert missing_for({"a": url(), "b": form()}, {"elicitation": {}}) == URL


@pytest.mark.parametrize("declared", [URL, {"elicitation": {"other": {}}}])
def test_an_elicitation_that_names_modes_has_no_others(declared: dict[str, Any]) -> None:
    assert missing_for({"k": form()}, declared) == FORM


def test_a_form_client_cannot_be_sent_to_a_url() -> None:
    assert missing_for({"k": url()}, FORM) == URL


@pytest.mark.parametrize("member", ["tools", "context"])
def test_sampling_alone_has_neither_tools_nor_context(member: str) -> None:
    asked = sampling(tools=[]) if member == "tools" else sampling(includeContext="thisServer")
    assert missing_for({"k": asked}, {"sampling": {}}) == {"sampling": {member: {}}}
    assert missing_for({"k": asked}, {"sampling": {member: {}}}) == {}
    other = {"tools": "context", "context": "tools"}[member]
    assert missing_for({"k": asked}, {"sampling": {other: {}}}) == {"sampling": {member: {}}}


@pytest.mark.parametrize("declared", [None, True, [], "yes", 1])
@pytest.mark.parametrize("name", ["elicitation", "sampling", "roots"])
def test_a_declaration_that_is_no_object_is_none(name: str, declared: Any) -> None:
    asked = {"elicitation": form(), "sampling": sampling(), "roots": roots()}[name]
    assert list(missing_for({"k": asked}, {name: declared})) == [name]


def test_unknown_members_of_a_declaration_do_no_harm() -> None:
    assert missing_for({"k": roots()}, {"roots": {"listChanged": True}}) == {}
    assert missing_for({"k": sampling()}, {"sampling": {"x": 1}}) == {}


def test_everything_that_lacks_is_named_at_once() -> None:
    questions = {
        "a": form(),
        "b": url(),
        "c": sampling(tools=[]),
        "d": sampling(includeContext="allServers"),
        "e": roots(),
    }
    assert missing_for(questions, {}) == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {},
    }
    assert missing_for(questions, {"elicitation": {}, "sampling": {"tools": {}}, "roots": {}}) == {
        "elicitation": {"url": {}},
        "sampling": {"context": {}},
    }


def test_no_questions_need_nothing() -> None:
    assert missing_for({}, {}) == {}
