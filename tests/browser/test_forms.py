"""Forms made from schemas that the demo's own tools do not have."""

from typing import Any

import pytest

from .console import Console, labelled
from .scripted import RefusedRequest, Script, console, script

__all__ = ["console", "script"]

COLOURS = {"type": "string", "enum": ["red", "green"]}
SIZES = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]}


def _ask(console: Console, script: Script, schema: dict[str, Any]) -> Any:
    """Start the tool and let it ask; returns the question."""
    card = console.start("odd")
    console.wait_for_state(card, "Working")
    console.page.wait_for_timeout(50)
    script.ask(schema)
    question = card.get_by_role("group", name="Question 0?")
    question.wait_for()
    return question


def _accepted(question: Any, script: Script) -> Any:
    """Accept, and return the content that was sent; None when nothing was."""
    before = len(script.of("tasks/update"))
    question.get_by_role("button", name="Accept").click()
    question.page.wait_for_timeout(100)
    updates = script.of("tasks/update")[before:]
    return updates[0]["inputResponses"]["q0"]["content"] if updates else None


def test_each_kind_of_value_is_sent_as_its_own_type(console: Console, script: Script) -> None:
    properties = {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
        "colour": COLOURS,
        "size": SIZES,
        "days": {"type": "array", "items": {"enum": ["mon", "tue", "wed"]}},
        "born": {"type": "string", "format": "date"},
    }
    question = _ask(console, script, {"properties": properties, "required": list(properties)})
    labelled(question, "text").fill("  spaces stay ")
    labelled(question, "count").fill("7")
    labelled(question, "share").fill("0.5")
    question.get_by_role("radiogroup", name="sure").get_by_label("No").check()
    labelled(question, "colour").select_option("green")
    labelled(question, "size").select_option("Large")
    for day in ("mon", "wed"):
        question.get_by_role("group", name="days").get_by_label(day).check()
    labelled(question, "born").fill("1815-12-10")
    assert _accepted(question, script) == {
        "text": "  spaces stay ",
        "count": 7,
        "share": 0.5,
        "sure": False,
        "colour": "green",
        "size": "l",
        "days": ["mon", "wed"],
        "born": "1815-12-10",
    }


def test_defaults_are_filled_in_and_what_is_optional_may_stay_empty(console: Console, script: Script) -> None:
    properties = {
        "text": {"type": "string", "default": "as it was"},
        "count": {"type": "integer", "default": 0},
        "sure": {"type": "boolean", "default": False},
        "size": {**SIZES, "default": "s"},
        "nothing": {"type": "string"},
        "none": {"type": "number"},
        "unsure": {"type": "boolean"},
        "no_colour": COLOURS,
    }
    question = _ask(console, script, {"properties": properties})
    assert _accepted(question, script) == {"text": "as it was", "count": 0, "sure": False, "size": "s"}


@pytest.mark.parametrize(
    ("schema", "wrong", "said", "right", "sent"),
    [
        ({"type": "integer", "minimum": 3}, "2", "Enter 3 or more.", "3", 3),
        ({"type": "number", "maximum": 1.5}, "1.6", "Enter 1.5 or less.", "1.5", 1.5),
        ({"type": "integer"}, "2.5", "Enter a whole number.", "-2", -2),
        ({"type": "integer"}, "9007199254740993", "This number is too large to be sent exactly.", "1", 1),
        ({"type": "string", "minLength": 3}, "ab", "Enter at least 3 characters.", "abc", "abc"),
        ({"type": "string", "maxLength": 2}, "abc", "Enter at most 2 characters; these are 3.", "🎈🎈", "🎈🎈"),
        ({"type": "string", "format": "email"}, "ada", "Enter an e-mail address", "ada@example.org", "ada@example.org"),
        ({"type": "string", "pattern": "^[a-c]+$"}, "abd", "Enter a text that fits", "abc", "abc"),
        ({"type": "string"}, "", "Enter a value.", "x", "x"),
    ],
)
def test_a_wrong_value_is_explained_beside_its_field(
    console: Console, script: Script, schema: dict[str, Any], wrong: str, said: str, right: str, sent: Any
) -> None:
    question = _ask(console, script, {"properties": {"value": schema}, "required": ["value"]})
    field = labelled(question, "value")
    field.fill(wrong)
    assert _accepted(question, script) is None
    assert question.locator(".field .problem").text_content().startswith(said)
    assert field.get_attribute("aria-invalid") == "true"
    assert field.evaluate("field => document.getElementById(field.getAttribute('aria-describedby')).textContent")
    field.fill(right)
    assert _accepted(question, script) == {"value": sent}


def test_titles_and_descriptions_name_and_explain_a_field(console: Console, script: Script) -> None:
    about = {"type": "string", "title": "Your name", "description": "As in your passport."}
    question = _ask(console, script, {"properties": {"name": about}})
    assert labelled(question, "Your name").get_attribute("aria-describedby").split()[0]
    assert question.get_by_text("As in your passport.").is_visible()


def test_a_refused_answer_is_explained_and_the_form_stays(console: Console, script: Script) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise RefusedRequest("that name is taken")

    script.answers["tasks/update"] = refuse
    question = _ask(console, script, {"properties": {"name": {"type": "string"}}})
    labelled(question, "name").fill("Ada")
    question.get_by_role("button", name="Accept").click()
    question.get_by_role("alert").filter(has_text="The server refused the answer: that name is taken").wait_for()
    assert labelled(question, "name").input_value() == "Ada"


def test_a_tool_with_arguments_of_every_shape_can_be_started(console: Console) -> None:
    schema = {
        "type": "object",
        "properties": {
            "level": {"$ref": "#/$defs/Level"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "options": {"type": "object"},
            "dry": {"type": "boolean"},
            "unsure": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        },
        "$defs": {"Level": {"enum": ["low", "high"], "type": "string"}},
        "required": ["level", "options", "dry"],
    }
    script = Script(console, tool={"name": "shapes", "inputSchema": schema})
    tool = console.tool("shapes")
    labelled(tool, "level").select_option("high")
    labelled(tool, "options").fill('{"deep": [1, null]}')
    tool.get_by_role("radiogroup", name="dry").get_by_label("Yes").check()
    tool.get_by_role("button").click()
    console.wait_for_state(console.card("shapes"), "Working")
    assert script.of("tools/call")[0]["arguments"] == {"level": "high", "options": {"deep": [1, None]}, "dry": True}
