"""The socket is cut and comes back; what runs is seen again."""

import signal
from collections.abc import Callable

import pytest

from .console import Console
from .demo import Demo

#: Chromium itself reports a socket that could not be opened, whatever a page does.
CUT = ("WebSocket connection to", "ERR_CONNECTION_REFUSED")

#: How long the page may wait between two tries.
LONGEST_WAIT_MS = 15_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_console_comes_back_by_itself_after_the_server_was_restarted(
    other_demo: Demo, open_console: Callable[..., Console], number: int
) -> None:
    console = open_console(other_demo)
    console.expected = CUT
    console.sign_in_as("alice")
    waiting = console.start("needs_approval", service="web")
    console.wait_for_state(waiting, "Waiting for your answer")
    running = console.start("countdown", n="60")
    running.locator(".message", has_text="left").wait_for()
    other_demo.stop(number)
    console.wait_for_words(r"(The connection was cut|The server cannot be reached|ended the connection).*Next try in")
    console.start("add", a="1", b="1")
    console.page.get_by_text("Not started: there is no connection to the server.").wait_for()
    other_demo.start()
    console.wait_for_words("^Connected$", LONGEST_WAIT_MS + 10_000)
    waiting.get_by_label("Yes").check()
    waiting.get_by_role("button", name="Accept").click()
    console.wait_for_state(waiting, "Completed")
    console.page.locator("#calls .card", has_text="countdown").get_by_role("button", name="Cancel task").click()
    console.wait_for_state(running, "Cancelled")
    listens = [m["params"]["notifications"]["taskIds"] for m in console.sent if m["method"] == "subscriptions/listen"]
    assert len(listens[-1]) == 2
    assert "tasks/get" not in console.sent_methods()


def test_a_try_can_be_asked_for_at_once(other_demo: Demo, open_console: Callable[..., Console]) -> None:
    console = open_console(other_demo)
    console.expected = CUT
    console.sign_in_as("alice")
    other_demo.stop(signal.SIGKILL)
    console.wait_for_words("Next try in [3-9] seconds")
    other_demo.start()
    console.button("Try now").click()
    console.wait_for_words("^Connected$")


def test_the_waits_between_tries_grow(other_demo: Demo, open_console: Callable[..., Console]) -> None:
    console = open_console(other_demo)
    console.expected = CUT
    console.sign_in_as("alice")
    other_demo.stop(signal.SIGKILL)
    for words in ("Next try in 1 second", "Next try in 2 seconds", "Next try in [34] seconds"):
        console.wait_for_words(words)
    assert len([text for text in console.announcements if "Next try" in text]) == 1
