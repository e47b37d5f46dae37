"""Questions of a task, answered in a form."""

from typing import Any

import pytest

from .console import Console, labelled


def test_an_accepted_question_lets_the_task_go_on(alice: Console) -> None:
    card = alice.start("needs_approval", service="web")
    alice.wait_for_state(card, "Waiting for your answer")
    assert "needs_approval asks: Deploy web?" in alice.announcements
    question = card.get_by_role("group", name="Deploy web?")
    question.get_by_label("Yes").check()
    question.get_by_role("button", name="Accept").click()
    alice.wait_for_state(card, "Completed")
    assert card.locator(".outcome .text").text_content() == "deployed web"
    assert _answers(alice) == [{"approval": {"action": "accept", "content": {"approve": True}}}]


def test_no_is_an_answer_too(alice: Console) -> None:
    card = alice.start("needs_approval", service="mail")
    question = card.get_by_role("group", name="Deploy mail?")
    question.get_by_label("No").check()
    question.get_by_role("button", name="Accept").click()
    alice.wait_for_state(card, "Completed")
    assert card.locator(".outcome .text").text_content() == "declined"
    assert _answers(alice) == [{"approval": {"action": "accept", "content": {"approve": False}}}]


@pytest.mark.parametrize(("button", "action"), [("Decline", "decline"), ("Cancel question", "cancel")])
def test_a_question_need_not_be_answered(alice: Console, button: str, action: str) -> None:
    card = alice.start("needs_approval", service="web")
    card.get_by_role("button", name=button).click()
    alice.wait_for_state(card, "Completed")
    assert card.locator(".outcome .text").text_content() == "declined"
    assert _answers(alice) == [{"approval": {"action": action}}]


def test_a_required_answer_is_asked_for_beside_its_field(alice: Console) -> None:
    card = alice.start("needs_approval", service="web")
    card.get_by_role("button", name="Accept").click()
    assert card.locator(".field .problem").text_content() == "Choose one."
    assert card.get_by_label("Yes").evaluate("field => field === document.activeElement")
    assert _answers(alice) == []
    card.get_by_role("button", name="Cancel task").click()
    alice.wait_for_state(card, "Cancelled")
    assert card.locator("form").count() == 0


def test_two_questions_are_answered_one_after_the_other(alice: Console) -> None:
    card = alice.start("two_questions")
    name, region = (card.get_by_role("group", name=text) for text in ("Your name?", "Which region?"))
    labelled(region, "region").fill("half-typed")
    labelled(name, "name").fill("Ada")
    name.get_by_role("button", name="Accept").click()
    name.wait_for(state="detached")
    alice.wait_for_state(card, "Waiting for your answer")
    kept = labelled(region, "region")
    assert kept.input_value() == "half-typed"
    assert kept.evaluate("field => field === document.activeElement")
    kept.fill("eu")
    kept.press("Enter")
    alice.wait_for_state(card, "Completed")
    assert card.locator(".outcome .text").text_content() == "Ada in eu"
    assert [list(answer) for answer in _answers(alice)] == [["name"], ["region"]]
    assert card.get_by_role("heading").evaluate("heading => heading === document.activeElement")


def test_a_question_can_be_answered_by_keyboard_alone(console: Console) -> None:
    keyboard = console.page.keyboard
    _tab_to(console, "#token")
    keyboard.type(console.site.tokens["alice"])
    keyboard.press("Enter")
    console.page.locator("summary:focus").wait_for()
    _tab_to(console, "summary", text="needs_approval")
    keyboard.press("Enter")
    _tab_to(console, "details[open] input")
    keyboard.type("web")
    keyboard.press("Enter")
    console.page.locator("#calls h4:focus").wait_for()
    console.wait_for_state(console.card("needs_approval"), "Waiting for your answer")
    _tab_to(console, ".question input", at_most=1)
    keyboard.press("Space")
    _tab_to(console, ".question button", text="Accept", at_most=2)
    keyboard.press("Enter")
    console.wait_for_state(console.card("needs_approval"), "Completed")
    assert console.card("needs_approval").locator(".outcome .text").text_content() == "deployed web"
    console.page.locator("#calls h4:focus").wait_for()


def _tab_to(console: Console, selector: str, *, text: str = "", at_most: int = 30) -> None:
    """Press Tab until the focus is there; each stop on the way must show that it has the focus."""
    for _ in range(at_most):
        console.page.keyboard.press("Tab")
        at = console.page.evaluate(
            """([selector, text]) => {
                const focused = document.activeElement;
                const seen = getComputedStyle(focused).outlineStyle !== 'none' || focused === document.body;
                return { there: focused.matches(selector) && focused.textContent.includes(text), seen };
            }""",
            [selector, text],
        )
        assert at["seen"]
        if at["there"]:
            return
    raise AssertionError(f"{selector} {text} is not reached by {at_most} tabs")


def _answers(console: Console) -> list[dict[str, Any]]:
    updates = [message for message in console.sent if message.get("method") == "tasks/update"]
    return [message["params"]["inputResponses"] for message in updates]
