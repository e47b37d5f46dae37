"""Each demo tool, started from its form and seen to its end."""

import re
from typing import Any

from .console import Console, labelled

TOOLS = (
    "add",
    "slow_echo",
    "failing_job",
    "crashing_job",
    "needs_approval",
    "two_questions",
    "countdown",
    "build_report",
)


def test_the_tools_of_the_server_are_listed(alice: Console) -> None:
    assert tuple(alice.page.locator("#tools summary code").all_text_contents()) == TOOLS


def test_add_is_answered_at_once(alice: Console) -> None:
    card = alice.start("add", a="2", b="40")
    alice.wait_for_state(card, "Completed")
    assert card.locator(".outcome .text").text_content() == "42"
    assert "without a task" in card.text_content()
    assert card.get_by_role("button").count() == 0


def test_defaults_stand_in_the_form_and_may_stay(alice: Console) -> None:
    assert labelled(alice.tool("add"), "a").input_value() == "0"
    assert labelled(alice.tool("slow_echo"), "seconds").input_value() == "1"
    card = alice.start("add", b="7")
    assert card.locator(".outcome .text").text_content() == "7"


def test_slow_echo_gives_the_text_back(alice: Console) -> None:
    text = "one <b>two</b> & žluť 🎈"
    card = alice.start("slow_echo", text=text, seconds="0.5")
    alice.wait_for_state(card, "Working")
    alice.wait_for_state(card, "Completed")
    assert card.locator(".outcome .text").text_content() == text
    assert re.search(r"after \d+ ms|after \d+\.\d s", card.text_content())


def test_a_result_that_is_an_error_looks_like_one(alice: Console) -> None:
    card = alice.start("failing_job", message="no such warehouse")
    alice.wait_for_state(card, "Completed with an error")
    assert card.locator(".outcome.wrong").text_content() == "The tool reports an errorno such warehouse"
    assert _is_reddish(card)


def test_a_failed_task_says_why(alice: Console) -> None:
    card = alice.start("crashing_job")
    alice.wait_for_state(card, "Failed")
    said = card.locator(".outcome.wrong").text_content()
    assert "The job crashed" in said
    assert "JSON-RPC error -32603" in said
    assert '"reason": "demo"' in said
    assert _is_reddish(card)


def test_build_report_shows_its_structured_result_once(alice: Console) -> None:
    card = alice.start("build_report", rows="12")
    alice.wait_for_state(card, "Completed")
    assert card.locator(".outcome").text_content().count('"rows": 12') == 1
    assert card.locator("progress").is_hidden()


def test_a_countdown_runs_to_its_end(alice: Console) -> None:
    card = alice.start("countdown", n="3")
    alice.wait_for_state(card, "Completed")
    assert card.locator(".outcome .text").text_content() == "liftoff"


def test_a_task_is_cancelled_where_it_is(alice: Console) -> None:
    card = alice.start("countdown", n="500")
    card.locator(".message", has_text="left").wait_for()
    card.get_by_role("button", name="Cancel task").click()
    alice.wait_for_state(card, "Cancelled")
    assert card.get_by_role("button").count() == 0
    assert card.get_by_role("heading").evaluate("heading => heading === document.activeElement")


def test_a_missing_argument_is_named_beside_its_field_and_nothing_is_sent(alice: Console) -> None:
    tool = alice.tool("countdown")
    before = len(alice.sent)
    tool.get_by_role("button").click()
    field = labelled(tool, "n")
    assert field.get_attribute("aria-invalid") == "true"
    assert field.evaluate("field => field === document.activeElement")
    assert tool.locator(".field .problem").text_content() == "Enter a number."
    field.fill("1.5")
    tool.get_by_role("button").click()
    assert tool.locator(".field .problem").text_content() == "Enter a whole number."
    assert len(alice.sent) == before


def test_the_focus_goes_to_what_was_started(alice: Console) -> None:
    card = alice.start("countdown", n="2")
    assert card.get_by_role("heading").evaluate("heading => heading === document.activeElement")
    alice.wait_for_state(card, "Completed")


def test_the_newest_task_stands_first(alice: Console) -> None:
    for tool in ("add", "crashing_job", "add"):
        alice.start(tool)
    names = alice.page.locator("#calls h4").all_text_contents()
    assert names == ["add", "crashing_job", "add"]


def _is_reddish(card: Any) -> bool:
    """Measured, since a class name alone would not make it look like anything."""
    colour = card.locator(".chip").evaluate("chip => getComputedStyle(chip).color")
    red, green, blue = (int(number) for number in re.findall(r"\d+", colour)[:3])
    return red > 2 * max(green, blue)
