"""The task page and what is done from it, in a browser: quiet under a strict policy, readable, by keyboard alone."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import manage, serving

from .accessibility import faults
from .test_admin_list import OUR_FAINT, PHONE, SIDEWAYS, ZOOMED, Site, Visit
from .test_admin_list import visit as visit  # a fixture: it opens the site of this module

HOSTILE = "<script>alert(1)</script></pre>{{ 7|add:7 }}"
SECRET = "hunter2-secret"

SEED = """
import json
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.backends.db import SessionStore
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import get_store
from mcp_tasks.store.processes import janitor_name, report
from mcp_tasks.store.types import Owner
from mcp_tasks.testing.timetravel import rewind

def sign_in(user):
    session = SessionStore()
    session.update({SESSION_KEY: str(user.pk), BACKEND_SESSION_KEY: "django.contrib.auth.backends.ModelBackend",
                    HASH_SESSION_KEY: user.get_session_auth_hash()})
    session.save()
    return session.session_key

root = User.objects.create_superuser("root", password="x")
viewer = User.objects.create_user("viewer", is_staff=True)
viewer.user_permissions.set(Permission.objects.filter(codename__in=["view_task", "cancel_task"]))
store, owner, refs = get_store(), Owner(("alice",), "alice@example.com"), {}
form = {"method": "elicitation/create", "params": {"message": "Send to 5000 people?", "requestedSchema": {
    "type": "object", "properties": {"code": {"type": "string", "format": "password"}}}}}
text = "<script>alert(1)</script></pre>{{ 7|add:7 }}" + chr(0x202E) + "gnp.exe" + chr(0)

def make(name, tool="send_campaign", **options):
    arguments = {"text": text, "long": "x" * 3000, "api_key": "hunter2-secret",
                 "nested": {"credentials": ["hunter2-secret"]},
                 "headers": [{"name": "Authorization", "value": "hunter2-secret"}]}
    made = store.create_task(tool, arguments, owner=owner, max_attempts=3, trace_context="00-" + "a" * 60, **options)
    refs[name] = made.ref
    return made.ref

def run(name, **options):
    ref = make(name, **options)
    return ref, store.claim(ref, holder="web-2:870").leg

report(janitor_name(), "janitor")
report("web-1:12", "worker", slots=4, busy=1)
ref, leg = run("stalled")
store.set_status(ref, "Sending <b>now</b>", done=42, total=100, leg=leg)
store.note_refusal(ref, 2)
rewind(ref, 120)
ref, leg = run("parked")
store.require_input(ref, {"first": form, "second": form}, leg=leg)
store.apply_input_responses(ref, {"first": {"action": "accept", "content": {"code": "hunter2-secret"}}})
rewind(ref, 600)
ref, leg = run("completed")
store.complete_task(ref, {"content": [{"type": "text", "text": text}], "token": "hunter2-secret"}, leg=leg)
ref, leg = run("failed")
store.fail_task(ref, McpError(-32603, "It broke", {"password": "hunter2-secret"}), leg=leg,
                traceback="Traceback (most recent call last):\\n" + "  File " + "x" * 300)
ref, leg = run("cancelled")
store.cancel(ref, actor=f"operator:{root.pk}", reason="a runaway job")
for number in range(8):
    run(f"keyboard-{number}", tool="keyboard")
for number in range(6):
    make(f"bulk-{number}", tool="bulk")
    make(f"all-{number}", tool="all")
print(json.dumps({"session": sign_in(root), "viewer": sign_in(viewer), "refs": {k: str(v) for k, v in refs.items()}}))
"""

TASK = "admin/mcp_tasks/task/"
STATES = ("stalled", "parked", "completed", "failed", "cancelled")
PAGES = [
    *(f"{{{state}}}/" for state in STATES),
    "{stalled}/support/",
    "{stalled}/cancel/",
    "{stalled}/fail/",
    "{stalled}/extend/",
    "{stalled}/requeue/",
    "{parked}/dismiss/",
    "{completed}/delete/",
    "bulk-cancel/?everything=1",
    "bulk-cancel/?refs={stalled},{completed}",
]


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site for all of these tests; each uses tasks of its own."""
    folder = tmp_path_factory.mktemp("tasks")
    environment = {"DJANGO_SETTINGS_MODULE": "tests.admin.site", "MCP_TASKS_DEMO_DIR": str(folder)}
    manage(environment, "migrate", "-v", "0")
    made = json.loads(manage(environment, "shell", "-v", "0", "-c", SEED).splitlines()[-1])
    with serving(environment, folder) as server:
        yield Site(server, folder, made["session"], {**made["refs"], "of viewer": made["viewer"]})


@pytest.fixture
def open_task(visit: Callable[..., Visit]) -> Callable[..., Any]:
    """Opens a page by its address, in which names of tasks stand for their references."""

    def begin(path: str, **options: Any) -> Any:
        found = visit(**options)
        return found.to(TASK + path.format(**found.site.refs))

    return begin


def tab_to(page: Any, name: str, limit: int = 60) -> None:
    """Press Tab until this has the focus, by its name or its words."""
    for _step in range(limit):
        page.keyboard.press("Tab")
        at = page.evaluate("document.activeElement.name || document.activeElement.innerText || ''")
        if at.strip() == name:
            return
    raise AssertionError(f"{name} is not reached by the keyboard")


# -- how they look ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_and_break_no_rule_of_the_policy(
    visit: Callable[..., Visit], tmp_path: Path, scheme: str
) -> None:
    found = visit(color_scheme=scheme)
    found.expected = ("403",)  # dismissing questions is switched off here, and says so
    for number, path in enumerate(PAGES):
        page = found.to(TASK + path.format(**found.site.refs))
        page.screenshot(path=tmp_path / f"{number}.png", full_page=True)
        assert page.evaluate(OUR_FAINT) == [], path
        assert faults(page) == [], path
        assert page.evaluate(SIDEWAYS) == 0, path
        assert page.locator("h1").count() == 1
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(int(part) for part in background[4:-1].split(",")) < 64) == (scheme == "dark")


@pytest.mark.parametrize("viewport", [PHONE, ZOOMED])
def test_no_page_scrolls_sideways_on_a_phone_or_enlarged(visit: Callable[..., Visit], viewport: dict[str, int]) -> None:
    found = visit(viewport=viewport)
    found.expected = ("403",)
    for path in PAGES:
        page = found.to(TASK + path.format(**found.site.refs))
        assert page.evaluate(SIDEWAYS) <= 0, path


def test_the_dark_theme_of_the_admin_keeps_everything_readable(open_task: Callable[..., Any]) -> None:
    page = open_task("{stalled}/", color_scheme="light")
    while page.evaluate("document.documentElement.dataset.theme") != "dark":
        page.locator(".theme-toggle:visible").first.click()
    page.wait_for_timeout(400)  # links of the admin change their colour slowly
    assert page.evaluate(OUR_FAINT) == []


def test_what_is_clicked_is_large_enough_and_has_words(visit: Callable[..., Visit]) -> None:
    found = visit()
    found.expected = ("403",)
    for path in PAGES:
        page = found.to(TASK + path.format(**found.site.refs))
        for part in page.locator(".mcp-verb, .mcp-task textarea, .mcp-task .mcp-tick").all():
            assert part.bounding_box()["height"] >= 24
        for part in page.locator(".mcp-verb").all():
            assert part.inner_text().strip()
        for box in page.locator(".mcp-task textarea, .mcp-task input:not([type=hidden])").all():
            assert box.evaluate("box => box.labels.length") == 1


# -- text of strangers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_hostile_text_is_shown_and_secrets_are_not(visit: Callable[..., Visit], state: str) -> None:
    found, dialogs = visit(), []
    found.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page = found.to(f"{TASK}{found.site.refs[state]}/")
    shown = page.locator("pre", has_text="alert(1)").first.inner_text()
    assert HOSTILE + "\\u202egnp.exe\\u0000" in shown
    assert "\u202e" not in page.content()
    assert SECRET not in page.content()
    assert "••• masked •••" in page.content()
    assert dialogs == []


def test_a_download_is_a_file_without_secrets(open_task: Callable[..., Any]) -> None:
    page = open_task("{completed}/")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download", exact=True).last.click()
    assert re.fullmatch(r"send_campaign-[0-9a-f]{8}-result\.json", started.value.suggested_filename)
    text = Path(started.value.path()).read_text(encoding="utf-8")
    assert SECRET not in text
    assert json.loads(text)["token"] == "••• masked •••"
    answer = page.request.get(page.url + "download/result/")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "application/json"


def test_a_viewer_without_the_permission_gets_no_byte_of_a_payload(visit: Callable[..., Visit]) -> None:
    found = visit(signed_in=False)
    site = found.site
    found.page.context.add_cookies([{"name": "sessionid", "value": site.refs["of viewer"], "url": site.url}])
    for state in STATES:
        page = found.to(f"{TASK}{site.refs[state]}/")
        content = page.content()
        for part in ("alert(1)", "gnp.exe", "api_key", "masked", "5000 people", SECRET, "Traceback"):
            assert part not in content
        assert "You may not read arguments" in page.locator("#content").inner_text()
        verbs = [it.strip() for it in page.locator(".mcp-verbs a").all_inner_texts()]
        assert verbs == (["Cancel…"] if state in ("stalled", "parked") else []) + ["Support summary"]


# -- doing something --------------------------------------------------------------------------------------------------


def test_a_task_is_cancelled_by_keyboard_alone(open_task: Callable[..., Any]) -> None:
    page = open_task("{keyboard-0}/")
    tab_to(page, "Cancel…")
    page.keyboard.press("Enter")
    page.wait_for_url("**/cancel/")
    tab_to(page, "reason")
    page.keyboard.type("a runaway job")
    order = []
    for _step in range(3):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.name || document.activeElement.innerText"))
    assert order == ["share_reason", "Cancel the task", "Back, change nothing"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/#title")
    assert page.evaluate("document.activeElement.id") == "title"
    said = page.get_by_role("status")
    assert said.inner_text() == "Cancelled. The worker has been told to stop."
    assert page.locator("#title").get_attribute("aria-describedby") == said.get_attribute("id")
    assert said.bounding_box()["y"] >= 0, "what was done is out of sight"
    assert page.locator(".mcp-badge").inner_text().split() == ["⊘", "Cancelled"]
    assert "root · “a runaway job”" in page.locator(".mcp-timeline").inner_text().replace("\n", " ")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Delete…"


def test_where_the_keyboard_is_can_be_seen(open_task: Callable[..., Any]) -> None:
    page = open_task("{stalled}/cancel/")
    look = "at => { const s = getComputedStyle(at); return [s.outline, s.borderColor, s.boxShadow].join() }"
    for name in ("reason", "share_reason", "Cancel the task", "Back, change nothing"):
        tab_to(page, name)
        part = page.evaluate_handle("document.activeElement")
        focused = part.evaluate(look)
        part.evaluate("at => at.blur()")
        assert part.evaluate(look) != focused, name
        part.evaluate("at => at.focus()")


def test_without_a_reason_the_browser_and_the_server_say_what_is_missing(open_task: Callable[..., Any]) -> None:
    page = open_task("{keyboard-1}/cancel/")
    page.get_by_label("Reason", exact=True).fill("no")
    page.get_by_role("button", name="Cancel the task").click()
    field = page.get_by_label("Reason", exact=True)
    assert field.get_attribute("aria-invalid") == "true"
    described = field.get_attribute("aria-describedby").split()
    words = " ".join(page.locator(f"#{part}").inner_text() for part in described)
    assert "Give a reason of 3 to 500 characters." in words
    assert field.input_value() == "no"


def test_of_two_operators_on_one_page_the_second_sees_that_it_changed(visit: Callable[..., Visit]) -> None:
    first, second = visit(), visit()
    second.expected = ("409",)
    ref = first.site.refs["keyboard-2"]
    mine, theirs = (found.to(f"{TASK}{ref}/{verb}/") for found, verb in ((first, "cancel"), (second, "extend")))
    theirs.get_by_label("6 hours from now").check()
    theirs.get_by_label("Reason", exact=True).fill("they asked for it")
    first.expected = ("409",)
    theirs.get_by_role("button", name="Extend its time").click()
    theirs.wait_for_url("**/#title")
    mine.get_by_label("Reason", exact=True).fill("it takes too long")
    mine.get_by_role("button", name="Cancel the task").click()
    alert = mine.get_by_role("alert")
    changed = r"The task changed while you were reading: it is now “(Running|Stalled)”\. Nothing was done\."
    assert re.fullmatch(changed, alert.inner_text())
    assert mine.get_by_label("Reason", exact=True).input_value() == "it takes too long"
    mine.get_by_role("button", name="Cancel the task").click()
    mine.wait_for_url("**/#title")
    assert "Cancelled" in mine.locator(".mcp-badge").inner_text()


def test_without_scripts_a_task_is_cancelled_with_a_reason(open_task: Callable[..., Any]) -> None:
    page = open_task("{keyboard-3}/", java_script_enabled=False, color_scheme="dark")
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_label("Reason", exact=True).fill("no scripts here")
    page.get_by_label("Send the reason to the client").uncheck()
    page.get_by_role("button", name="Cancel the task").click()
    page.get_by_text("Cancelled. The worker has been told to stop.").wait_for()
    assert "no scripts here" in page.locator(".mcp-timeline").inner_text()
    assert "no scripts here" not in page.locator(".mcp-facts").inner_text()


def test_without_scripts_many_tasks_are_cancelled(open_task: Callable[..., Any]) -> None:
    page = open_task("?tool=bulk", java_script_enabled=False)
    for box in page.locator("#result_list tbody input[type=checkbox]").all()[:5]:
        box.check()
    page.locator("select[name=action]").select_option(label="Cancel selected tasks…")
    page.locator("button[name=index]").click()
    assert "5 tasks will be cancelled: 5 queued" in page.locator("#content").inner_text()
    page.get_by_label("Reason", exact=True).fill("too many of them")
    page.get_by_role("button", name="Cancel 5 tasks").click()
    page.get_by_text("Cancelled 5 tasks.").wait_for()
    assert page.url.endswith(TASK)


def test_everything_that_matches_is_cancelled_from_the_list(open_task: Callable[..., Any]) -> None:
    page = open_task("?tool=all&state=live")
    page.goto(page.url.replace("?", "bulk-cancel/?everything=1&"))
    words = page.locator("#content").inner_text()
    number = int(re.search(r"(\d+) tasks will be cancelled", words)[1])  # type: ignore[index]
    assert "write CANCEL" not in words
    page.get_by_label("Reason", exact=True).fill("all of them")
    page.get_by_role("button", name=f"Cancel {number} tasks").click()
    page.get_by_text(f"Cancelled {number} tasks.").wait_for()


def test_a_deleted_task_leads_back_to_the_list(visit: Callable[..., Visit]) -> None:
    found = visit()
    ref = found.site.refs["keyboard-4"]
    found.expected = ("404",)
    page = found.to(f"{TASK}{ref}/cancel/")
    page.get_by_label("Reason", exact=True).fill("to delete it")
    page.get_by_role("button", name="Cancel the task").click()
    page.get_by_role("link", name="Delete…").click()
    page.get_by_label("Reason", exact=True).fill("its text is private")
    page.get_by_role("button", name="Delete it for good").click()
    page.get_by_text("Deleted.", exact=True).wait_for()
    assert found.page.request.get(f"{found.site.url}{TASK}{ref}/").status == 404
