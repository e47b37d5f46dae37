"""Servers that refuse, end and ask in ways that the demo does not."""

from typing import Any

import pytest

from .console import Console, labelled
from .scripted import TASK_ID, RefusedRequest, Script, console, questions, script

__all__ = ["console", "script"]

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_what_a_server_sends_is_never_markup(console: Console) -> None:
    tool = {
        "name": "odd",
        "description": MARKUP,
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "title": MARKUP, "default": MARKUP}}},
    }
    script = Script(console, tool=tool)
    card = console.start("odd")
    console.wait_for_state(card, "Working")
    script.tell(statusMessage=MARKUP)
    card.locator(".message", has_text=MARKUP).wait_for()
    script.tell(status="completed", result={"content": [{"type": "text", "text": MARKUP}]})
    console.wait_for_state(card, "Completed")
    assert card.locator(".outcome .text").text_content() == MARKUP
    assert console.page.locator("#console img, #console script").count() == 0


def test_a_call_that_asks_before_it_becomes_a_task_is_asked_again_with_the_answers(
    console: Console, script: Script
) -> None:
    def call(message: dict[str, Any]) -> dict[str, Any]:
        if "requestState" in message["params"]:
            return {"content": [{"type": "text", "text": "done"}]}
        form = {"properties": {"name": {"type": "string"}}}
        return {"resultType": "input_required", "inputRequests": questions(form, form), "requestState": "sealed"}

    script.answers["tools/call"] = call
    card = console.start("odd")
    console.wait_for_state(card, "Waiting for your answer")
    first = card.get_by_role("group", name="Question 0?")
    labelled(first, "name").fill("Ada")
    first.get_by_role("button", name="Accept").click()
    assert len(script.of("tools/call")) == 1
    card.get_by_role("group", name="Question 1?").get_by_role("button", name="Decline").click()
    console.wait_for_state(card, "Completed")
    answers = {"q0": {"action": "accept", "content": {"name": "Ada"}}, "q1": {"action": "decline"}}
    again = script.of("tools/call")[1]
    assert again == {"name": "odd", "arguments": {}, "inputResponses": answers, "requestState": "sealed"}


def test_a_refused_call_says_why(console: Console, script: Script) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise RefusedRequest("Too many tasks")

    script.answers["tools/call"] = refuse
    card = console.start("odd")
    console.wait_for_state(card, "Refused")
    assert "Too many tasks" in card.locator(".outcome.wrong").text_content()
    assert script.of("subscriptions/listen") == []


def test_a_call_without_an_answer_can_be_cancelled(console: Console, script: Script) -> None:
    script.answers["tools/call"] = lambda _: None
    card = console.start("odd")
    card.get_by_role("button", name="Cancel call").click()
    console.wait_for_state(card, "Cancelled")
    call = next(message for message in script.received if message["method"] == "tools/call")
    assert script.of("notifications/cancelled") == [{"requestId": call["id"]}]


def test_a_call_whose_answer_was_lost_says_that_it_may_have_run(console: Console, script: Script) -> None:
    script.answers["tools/call"] = lambda _: None
    card = console.start("odd")
    card.get_by_role("button", name="Cancel call").wait_for()
    script.cut(4503, "restarting")
    console.wait_for_state(card, "No answer")
    assert "The tool may have run, or not." in card.text_content()
    console.wait_for_words("^Connected$")


def test_a_reason_for_closing_is_shown(console: Console, script: Script) -> None:
    script.cut(4429, "too many connections")
    console.wait_for_words("The server ended the connection: too many connections. Next try in 1 second.")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (4500, "a problem of its own"),
        (4503, "busy or restarting"),
        (4429, "no room for more connections of this owner"),
    ],
)
def test_a_close_code_is_put_into_words(console: Console, script: Script, code: int, said: str) -> None:
    script.cut(code, "")
    console.wait_for_words(f"The server .*{said}. Next try in 1 second.")


def test_an_owner_who_may_not_come_in_is_not_tried_again(console: Console, script: Script) -> None:
    script.cut(4403, "")
    console.page.locator("#sign-in-problem", has_text="does not let the owner of this token in").wait_for()


def test_a_task_that_the_server_no_longer_has_is_marked(console: Console, script: Script) -> None:
    def unknown(_: dict[str, Any]) -> None:
        raise RefusedRequest("Task not found")

    script.answers["subscriptions/listen"] = lambda message: script.acknowledge(message, [])
    script.answers["tasks/get"] = unknown
    card = console.start("odd")
    console.wait_for_state(card, "Gone")
    assert "The server says: Task not found." in card.text_content()
    listen = next(message for message in script.received if message["method"] == "subscriptions/listen")
    assert script.of("notifications/cancelled") == [{"requestId": listen["id"]}]


def test_a_listen_that_the_server_ends_is_begun_again(console: Console, script: Script) -> None:
    card = console.start("odd")
    console.wait_for_state(card, "Working")
    listen = next(message for message in script.received if message["method"] == "subscriptions/listen")
    script.send({"id": listen["id"], "result": {"resultType": "complete"}})
    script.send({"method": "notifications/cancelled", "params": {"requestId": listen["id"]}})
    console.page.wait_for_timeout(1500)
    assert script.of("subscriptions/listen") == [{"notifications": {"taskIds": [TASK_ID]}}] * 2
    script.tell(status="cancelled")
    console.wait_for_state(card, "Cancelled")


def test_a_refused_listen_is_explained_beside_the_task(console: Console, script: Script) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise RefusedRequest("too many subscriptions")

    script.answers["subscriptions/listen"] = refuse
    card = console.start("odd")
    card.get_by_role("alert").filter(has_text="No live updates at the moment: too many subscriptions").wait_for()


def test_an_older_snapshot_does_not_undo_a_newer_one(console: Console, script: Script) -> None:
    card = console.start("odd")
    console.wait_for_state(card, "Working")
    script.tell(status="completed", result={"content": []})
    console.wait_for_state(card, "Completed")
    script.tell(status="working")
    console.page.wait_for_timeout(100)
    console.wait_for_state(card, "Completed")


def test_all_pages_of_the_tools_are_listed(console: Console, script: Script) -> None:
    def page(message: dict[str, Any]) -> dict[str, Any]:
        number = int(message["params"].get("cursor", "0"))
        more = {"nextCursor": str(number + 1)} if number < 2 else {}
        return {"tools": [{"name": f"tool-{number}", "inputSchema": {"type": "object"}}], **more}

    script.answers["tools/list"] = page
    console.page.reload()
    console.page.locator("#tools details").nth(2).wait_for()
    assert console.page.locator("#tools summary code").all_text_contents() == ["tool-0", "tool-1", "tool-2"]


def test_tools_that_cannot_be_listed_are_explained(console: Console, script: Script) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise RefusedRequest("not today")

    script.answers["tools/list"] = refuse
    console.page.reload()
    console.page.get_by_role("alert").filter(has_text="The tools could not be listed: not today").wait_for()
