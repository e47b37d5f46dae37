"""The list and the overview of the admin in a browser: quiet under a strict policy, readable, and true while open."""

import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from mcp_tasks.store.types import ref_of
from tests.support.servers import Server, manage, serving

from .accessibility import faults
from .console import PATIENCE_MS, REPORT
from .test_appearance import TOO_FAINT

LIST, OVERVIEW = "admin/mcp_tasks/task/", "admin/mcp_tasks/task/overview/"
WIDE, PHONE, ZOOMED = {"width": 1400, "height": 900}, {"width": 420, "height": 800}, {"width": 700, "height": 450}
#: Only what is ours: the frame around it belongs to Django.
OUR_FAINT = TOO_FAINT.replace("'body *'", "'#content *'")
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FINISHED = (
    "phase = 'done', status = 'completed', result_json = '{}', due_at = NULL, finished_at = phase_at, revision = 9, "
    "progress_done = 100, progress_total = 100"
)

SEED = """
import json, sys
from datetime import timedelta
from django.contrib.auth.models import User
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from mcp_tasks.models import Process, Task, TaskStat
from tests.admin.rows import add, add_many, add_one_of_each

user = User.objects.create_superuser("root", password="x")
session = SessionStore()
session.update({SESSION_KEY: str(user.pk), BACKEND_SESSION_KEY: "django.contrib.auth.backends.ModelBackend",
                HASH_SESSION_KEY: user.get_session_auth_hash()})
session.save()
refs = add_one_of_each()
add("running", tool="send_campaign", owner_key="b" * 64, owner_label="nightly-reconciliation@finance.example.com",
    progress_done=40, progress_total=100, status_message="Waiting for upstream, which takes its time", expires_at=300)
add_many(120, tool="many")
Task.objects.filter(phase="running", due_at__gt=timezone.now()).update(due_at=timezone.now() + timedelta(days=1))
now = timezone.now().replace(minute=0, second=0, microsecond=0)
for index in range(1, 24):
    hour = now - timedelta(hours=index)
    for outcome, number in (("completed", 40 * index), ("failed", 6 * index), ("cancelled", 20)):
        TaskStat.objects.create(hour=hour, tool="many", outcome=outcome, count=number, b3=number)
    TaskStat.objects.create(hour=hour, tool="", outcome="")
for name, ago in (("web-1:311", 4), ("web-2:870", 300)):
    seen = timezone.now() - timedelta(seconds=ago)
    Process.objects.create(name=name, kind="worker", host="h", pid=1, started_at=seen, seen_at=seen, slots=4, busy=2)
print(json.dumps({"session": session.session_key, "refs": {state: str(ref) for state, ref in refs.items()}}))
"""


@dataclass(slots=True)
class Site:
    """A running site with tasks in every state, and the session of somebody who may see them."""

    server: Server
    folder: Path
    session: str
    refs: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/"

    def change(self, ref: str, columns: str) -> None:
        """What happens to a row elsewhere, while a page is open."""
        with closing(sqlite3.connect(self.folder / "demo.sqlite3", timeout=20)) as connection, connection:
            changed = connection.execute(f"UPDATE mcp_tasks_task SET {columns} WHERE ref = ?", [UUID(ref).hex])
            assert changed.rowcount == 1

    def add(self, task_id: str) -> str:
        """A copy of a row, under the reference of a client's id; returns the reference."""
        ref = ref_of(task_id)
        with closing(sqlite3.connect(self.folder / "demo.sqlite3", timeout=20)) as connection, connection:
            columns = [row[1] for row in connection.execute("PRAGMA table_info(mcp_tasks_task)")][1:]
            names = ", ".join(columns)
            connection.execute(
                f"INSERT INTO mcp_tasks_task (ref, {names}) SELECT ?, {names} FROM mcp_tasks_task WHERE ref = ?",
                [ref.hex, UUID(self.refs["completed"]).hex],
            )
        return str(ref)


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site for all of these tests."""
    folder = tmp_path_factory.mktemp("operators")
    environment = {"DJANGO_SETTINGS_MODULE": "tests.admin.site", "MCP_TASKS_DEMO_DIR": str(folder)}
    manage(environment, "migrate", "-v", "0")
    made = json.loads(manage(environment, "shell", "-v", "0", "-c", SEED).splitlines()[-1])
    with serving(environment, folder) as server:
        yield Site(server, folder, made["session"], made["refs"])


@dataclass
class Visit:
    """A page in a profile of its own, and everything it complained of."""

    site: Site
    page: Any
    complaints: list[str] = field(default_factory=list)
    requested: list[Any] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def to(self, path: str) -> Any:
        """Go to a page of the site."""
        self.page.goto(self.site.url + path)
        return self.page

    def row(self, ref: str) -> Any:
        """The line of a task."""
        return self.page.locator("#result_list tbody tr", has=self.page.locator(f"[data-ref='{ref}']"))

    def asked(self) -> int:
        """How often the page asked what has changed."""
        return sum("live.json" in request.url for request in self.requested)

    def complain(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.complaints.append(text)

    def note_console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not message.location["url"].endswith("/favicon.ico"):
            self.complain(message.text)

    def note_request(self, request: Any) -> None:
        self.requested.append(request)
        if urlsplit(request.url).netloc != urlsplit(self.site.url).netloc:
            self.complain(f"a request to another host: {request.url}")


@pytest.fixture
def visit(browser: Any, site: Site) -> Iterator[Callable[..., Visit]]:
    """Opens a browser, signed in unless said otherwise. At the end of the test each page must have been quiet."""
    visits = []

    def begin(*, signed_in: bool = True, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": WIDE, **options})
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(REPORT)
        if signed_in:
            context.add_cookies([{"name": "sessionid", "value": site.session, "url": site.url}])
        found = Visit(site, context.new_page())
        found.page.on("console", found.note_console)
        found.page.on("pageerror", lambda problem: found.complain(str(problem)))
        found.page.on("request", found.note_request)
        visits.append(found)
        return found

    yield begin
    for found in visits:
        found.page.context.close()
    for found in visits:
        assert found.complaints == []


# -- how it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", [LIST, f"{LIST}?state=failed&created=15m", OVERVIEW, f"{OVERVIEW}?range=7d"])
def test_pages_can_be_read_and_break_no_rule_of_the_policy(
    visit: Callable[..., Visit], tmp_path: Path, path: str, scheme: str
) -> None:
    page = visit(color_scheme=scheme).to(path)
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert page.evaluate(OUR_FAINT) == []
    assert faults(page) == []
    assert page.evaluate(SIDEWAYS) == 0
    assert page.locator("h1").count() == 1
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(int(part) for part in background[4:-1].split(",")) < 64) == (scheme == "dark")


@pytest.mark.parametrize("viewport", [PHONE, ZOOMED])
def test_no_page_scrolls_sideways_on_a_phone_or_enlarged(
    visit: Callable[..., Visit], viewport: dict[str, int], tmp_path: Path
) -> None:
    found = visit(viewport=viewport)
    for path in (LIST, OVERVIEW):
        page = found.to(path)
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        assert page.evaluate(SIDEWAYS) <= 0


def test_the_table_fits_a_common_screen(visit: Callable[..., Visit]) -> None:
    page = visit().to(LIST)
    assert (
        page.evaluate(
            "(() => { const r = document.querySelector('.results'); return r.scrollWidth - r.clientWidth })()"
        )
        == 0
    )


def test_every_state_can_be_told_apart_in_the_other_theme_too(visit: Callable[..., Visit]) -> None:
    page = visit(color_scheme="light").to(LIST)
    while page.evaluate("document.documentElement.dataset.theme") != "dark":
        page.locator(".theme-toggle:visible").first.click()
    page.wait_for_timeout(400)  # Django fades the colours of links
    assert page.evaluate(OUR_FAINT) == []
    words = set(page.locator(".mcp-word").all_text_contents())
    assert {"Queued", "Running", "Needs input", "Stalled", "Completed", "Tool error", "Failed", "Cancelled"} <= words
    assert all(glyph.strip() for glyph in page.locator(".mcp-glyph").all_text_contents())


def test_what_is_clicked_is_large_enough_and_has_a_name(visit: Callable[..., Visit]) -> None:
    found = visit()
    for path in (LIST, OVERVIEW):
        page = found.to(path)
        for part in page.locator(".mcp-chips a, .mcp-cards a, .mcp-field button, .mcp-field input").all():
            box = part.bounding_box()
            assert box["height"] >= 24
            assert part.get_attribute("placeholder") or part.inner_text().strip()
    page = found.to(LIST)
    assert page.get_by_role("link", name=re.compile(r"^\d+ queued$")).count() == 1
    assert page.get_by_label("Find a task").count() == 1


# -- without scripts --------------------------------------------------------------------------------------------------


def test_without_scripts_one_can_filter_turn_pages_and_look_up(visit: Callable[..., Visit]) -> None:
    found = visit(java_script_enabled=False)
    page = found.to(LIST)
    assert page.locator("#mcp-live").is_hidden()
    page.locator(".paginator a", has_text="2").first.click()
    assert "p=2" in page.url
    page.locator("#changelist-filter a", has_text=re.compile("^Needs input$")).click()
    assert set(page.locator(".mcp-word").all_text_contents()) == {"Needs input"}
    page.get_by_label("Find a task").fill(found.site.refs["failed"])
    page.get_by_role("button", name="Find").click()
    assert page.url.endswith(f"/{found.site.refs['failed']}/")
    page = found.to(OVERVIEW)
    page.locator("summary").click()
    assert page.locator(".mcp-hours tbody tr").count() == 24


# -- looking up -------------------------------------------------------------------------------------------------------


def test_a_pasted_id_finds_its_task_and_leaves_no_trace(visit: Callable[..., Visit]) -> None:
    known, unknown = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    found = visit()
    ref = found.site.add(known)
    page = found.to(LIST)
    for task_id, address in ((unknown, LIST), (known, f"{ref}/")):
        page.get_by_label("Find a task").fill(task_id)
        with page.expect_navigation(url=f"**/{address}"):
            page.keyboard.press("Enter")
        assert task_id not in page.content()
    page.go_back()
    assert page.get_by_label("Find a task").input_value() == ""
    page.go_forward()
    log = found.site.server.log.read_text()
    assert "mcp_tasks.operator" in log
    for task_id in (known, unknown):
        assert task_id not in log
        assert not any(task_id in request.url for request in found.requested)
        assert not any(task_id in str(request.headers) for request in found.requested)
        assert task_id not in page.evaluate(
            "JSON.stringify([localStorage, sessionStorage, history.state, location.href])"
        )


# -- selecting --------------------------------------------------------------------------------------------------------


def test_everything_that_matches_can_be_selected_in_these_words(visit: Callable[..., Visit]) -> None:
    page = visit().to(f"{LIST}?tool=many")
    page.locator("#action-toggle").check()
    page.get_by_role("button", name="Select everything that matches these filters").click()
    page.get_by_text("Everything that matches is selected.").wait_for()
    page.locator("select[name=action]").select_option(label="Cancel selected tasks…")
    page.locator("button[name=index]").click()
    page.wait_for_url(re.compile(r"bulk-cancel/\?everything=1&tool=many"))


# -- true while open --------------------------------------------------------------------------------------------------


def test_a_badge_changes_in_its_place_while_the_list_is_open(visit: Callable[..., Visit]) -> None:
    found = visit()
    ref = found.site.refs["running"]
    page = found.to(f"{LIST}?ref={ref},{found.site.refs['failed']}")
    row = found.row(ref)
    box = row.locator("input[type=checkbox]")
    box.check()
    box.focus()
    place = row.bounding_box()["y"]
    try:
        found.site.change(ref, FINISHED)
        row.locator(".mcp-badge.mcp-is-completed", has_text="Completed").wait_for(timeout=6500)
        assert row.locator(".mcp-amount").text_content() == "100 %"
        assert page.locator(".mcp-checked").text_content().startswith("Live · checked ")
        assert row.bounding_box()["y"] == place
        assert box.is_checked()
        assert box.evaluate("box => box === document.activeElement")
    finally:
        running = "phase = 'running', status = 'working', result_json = NULL, due_at = expires_at, finished_at = NULL"
        found.site.change(ref, running)


def test_newer_tasks_are_counted_and_not_pushed_in(visit: Callable[..., Visit]) -> None:
    found = visit()
    page = found.to(f"{LIST}?state=completed&tool=tool-completed")
    shown = page.locator("#result_list tbody tr").count()
    ref = found.site.add(secrets.token_urlsafe(32))
    found.site.change(ref, "created_at = STRFTIME('%Y-%m-%d %H:%M:%f000', 'NOW')")
    newer = page.locator(".mcp-newer", has_text="1 newer task · show")
    newer.wait_for(timeout=6500)
    assert page.locator("#result_list tbody tr").count() == shown
    newer.click()
    found.row(ref).wait_for()
    assert page.locator("#result_list tbody tr").count() == shown + 1


HIDE = """(hidden) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
}"""


def on_a_clock(visit: Callable[..., Visit], path: str = LIST) -> Visit:
    """A page whose time goes on only when the test says so."""
    found = visit()
    found.page.clock.install(time=0)
    found.page.clock.pause_at(1)
    found.to(path)
    return found


def test_it_asks_every_five_seconds_and_not_while_nobody_looks(visit: Callable[..., Visit]) -> None:
    found = on_a_clock(visit)
    page = found.page
    with page.expect_response(re.compile("live.json")):
        page.clock.run_for(5_000)
    page.get_by_text("Live · checked").wait_for()
    page.evaluate(HIDE, True)
    asked = found.asked()
    page.clock.run_for(60_000)
    assert found.asked() == asked
    with page.expect_response(re.compile("live.json")):
        page.evaluate(HIDE, False)
        page.clock.run_for(10)


def test_it_asks_ever_more_rarely_while_the_server_is_in_trouble(visit: Callable[..., Visit]) -> None:
    found = on_a_clock(visit)
    found.expected = ("500",)
    page = found.page
    page.route("**/live.json*", lambda route: route.fulfill(status=500))
    early = []
    with page.expect_response(re.compile("live.json")):
        page.clock.run_for(5_000)
    for wait in (10, 20, 40, 60, 60):
        page.get_by_text("The server does not answer; trying again.").wait_for()
        page.wait_for_timeout(50)
        asked = found.asked()
        page.clock.run_for(wait * 1000 - 100)
        early.append(found.asked() - asked)
        with page.expect_response(re.compile("live.json")):
            page.clock.run_for(200)
    assert early == [0] * 5
    page.unroute("**/live.json*")
    with page.expect_response(re.compile("live.json")):
        page.clock.run_for(60_000)
    page.get_by_text("Live · checked").wait_for()


def test_it_stops_when_nobody_does_anything_for_half_an_hour(visit: Callable[..., Visit]) -> None:
    found = on_a_clock(visit)
    page = found.page
    page.clock.fast_forward(31 * 60_000)
    page.get_by_text("Live updates stopped after 30 minutes.").wait_for()
    asked = found.asked()
    page.clock.run_for(60_000)
    assert found.asked() == asked
    with page.expect_response(re.compile("live.json")):
        page.get_by_role("button", name="Resume").click()
        page.clock.run_for(10)
    page.get_by_text("Live · checked").wait_for()


def test_it_pauses_when_the_session_is_over(visit: Callable[..., Visit]) -> None:
    found = on_a_clock(visit)
    page = found.page
    page.context.clear_cookies()
    page.clock.run_for(5_100)
    page.get_by_text("Live updates paused: sign in again").wait_for()
    asked = found.asked()
    page.clock.run_for(120_000)
    assert found.asked() == asked


# -- told at once -----------------------------------------------------------------------------------------------------

OPERATORS = re.compile(r"/mcp/operators$")


def test_what_one_operator_does_the_other_sees_within_a_second(visit: Callable[..., Visit]) -> None:
    """By the clock of a page that may not ask by itself before five seconds are over."""
    here, there = visit(), visit()
    ref = here.site.refs["queued"]
    page = here.page
    page.clock.install(time=0)
    page.clock.pause_at(1)
    with page.expect_websocket(lambda socket: OPERATORS.search(socket.url)) as opened:
        page.goto(f"{here.site.url}{LIST}?ref={ref}")
    frames: list[Any] = []
    opened.value.on("framereceived", lambda payload: frames.append(json.loads(payload)))
    with opened.value.expect_event("framereceived"):
        pass  # the row is watched
    form = there.to(f"{LIST}{ref}/cancel/")
    form.get_by_label("Reason", exact=True).fill("a runaway job")
    with opened.value.expect_event("framereceived"):
        form.get_by_role("button", name="Cancel the task").click()
    badge, milliseconds = here.row(ref).locator(".mcp-badge.mcp-is-cancelled"), 0
    while badge.count() == 0 and milliseconds < 1000:
        page.clock.run_for(100)
        page.wait_for_timeout(100)
        milliseconds += 100
    assert badge.count() == 1
    assert {frozenset(frame) for frame in frames} == {frozenset({"ref", "revision"})}


@pytest.mark.parametrize(("code", "tries"), [(4403, 1), (1011, 3)], ids=["forbidden", "restarted"])
def test_without_the_socket_it_asks_as_ever(visit: Callable[..., Visit], code: int, tries: int) -> None:
    found = visit()
    page, opened = found.page, []
    page.clock.install(time=0)
    page.clock.pause_at(1)

    def serve(socket: Any) -> None:
        opened.append(socket)
        socket.on_message(lambda rows: socket.close(code=code))

    page.route_web_socket(OPERATORS, serve)
    found.to(LIST)
    for asked in range(1, 15):  # seventy seconds
        with page.expect_response(re.compile("live.json")):
            page.clock.run_for(5_000)
        page.get_by_text("Live · checked").wait_for()
        page.wait_for_timeout(50)
        assert found.asked() == asked
    assert len(opened) == tries


def test_nothing_moves_for_who_wants_no_motion(visit: Callable[..., Visit]) -> None:
    for motion, name in (("reduce", "none"), ("no-preference", "mcp-changed")):
        page = visit(reduced_motion=motion).to(LIST)
        badge = page.locator(".mcp-badge").first
        badge.evaluate("badge => badge.classList.add('mcp-changed')")
        assert badge.evaluate("badge => getComputedStyle(badge).animationName") == name
