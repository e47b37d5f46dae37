"""Who may use the console, and what happens to the token."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from .console import Console
from .demo import Demo


def test_a_token_opens_the_console(console: Console) -> None:
    console.sign_in_as("alice")
    console.wait_for_words("^Connected$")
    assert console.page.locator("#sign-in").is_hidden()
    assert "Connected" in console.announcements


def test_the_focus_goes_on_to_the_tools_after_signing_in(alice: Console) -> None:
    alice.page.locator("summary:focus").wait_for()


def test_a_wrong_token_is_refused_in_words_beside_the_field(console: Console) -> None:
    console.sign_in("wrong")
    console.page.locator("#sign-in-problem", has_text="The server does not accept this token.").wait_for()
    assert console.page.locator("#workbench").is_hidden()
    assert console.token_field.evaluate("field => field === document.activeElement")
    assert console.page.evaluate("sessionStorage.length") == 0


def test_a_refused_token_is_not_tried_again(console: Console) -> None:
    console.sign_in("wrong")
    console.page.locator("#sign-in-problem", has_text="does not accept").wait_for()
    console.page.wait_for_timeout(1500)
    assert console.sockets == 1


def test_what_cannot_be_a_token_is_not_sent(console: Console) -> None:
    for text, said in (("", "Enter a token."), ("two words", "A token has no spaces")):
        console.sign_in(text)
        console.page.locator("#sign-in-problem", has_text=said).wait_for()
    assert console.sockets == 0


def test_the_token_is_kept_in_the_session_storage_and_nowhere_else(alice: Console) -> None:
    token = alice.site.tokens["alice"]
    assert alice.page.evaluate("Object.values(sessionStorage)").count(token) == 1
    assert alice.page.evaluate("localStorage.length") == 0
    assert alice.page.context.cookies() == []
    assert token not in alice.page.content()
    assert not any(token in url or quote(token) in url for url in [*alice.requested, alice.page.url])
    assert alice.token_field.count() == 0 or alice.token_field.input_value() == ""


def test_a_reload_stays_signed_in_and_shows_the_tasks_started_before(alice: Console) -> None:
    card = alice.start("countdown", n="200")
    alice.wait_for_state(card, "Working")
    alice.page.reload()
    alice.wait_for_words("^Connected$")
    alice.wait_for_state(alice.card("countdown"), "Working")
    alice.card("countdown").get_by_role("button", name="Cancel task").click()
    alice.wait_for_state(alice.card("countdown"), "Cancelled")


def test_signing_out_forgets_the_token_and_the_tasks(alice: Console) -> None:
    alice.start("add", a="1", b="2")
    alice.button("Sign out").click()
    assert alice.token_field.evaluate("field => field === document.activeElement")
    assert alice.page.evaluate("sessionStorage.length") == 0
    assert alice.page.locator("#calls > li").count() == 0
    alice.page.reload()
    assert alice.token_field.is_visible()
    alice.sign_in_as("bob")
    assert alice.page.locator("#calls > li").count() == 0


def test_a_token_revoked_meanwhile_leads_back_to_the_form(
    other_demo: Demo, open_console: Callable[..., Console]
) -> None:
    console = open_console(other_demo)
    console.sign_in_as("bob")
    other_demo.withdraw_token("bob")
    console.start("add", a="1", b="2")
    console.page.locator("#sign-in-problem", has_text="The server does not accept this token.").wait_for()
    assert console.page.evaluate("sessionStorage.length") == 0


def test_without_scripts_the_page_says_so_and_still_reads(browser: Any, demo: Demo) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(demo.url)
    # Playwright's search by text passes over what stands in a noscript element.
    assert page.locator(".notice").is_visible()
    assert page.locator(".notice").text_content().startswith("The console needs JavaScript, which is off")
    assert page.locator("#sign-in").is_hidden()
    assert page.get_by_role("heading", name="Connect a client").is_visible()
    assert page.get_by_role("rowheader", name="needs_approval").is_visible()
    page.context.close()
