"""The overview: numbers, picture and table say the same; its cost is bounded; nobody learns more than he may."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mcp_tasks.admin.charts import STEPS, Column, chart, nice_step
from mcp_tasks.admin.finished import RANGES
from mcp_tasks.models import Process, TaskStat

from .rows import add, add_many, add_one_of_each

OVERVIEW = "/admin/mcp_tasks/task/overview/"


def page_of(client: Client, query: str = "") -> str:
    """The page, with no more white space than it needs."""
    answer = client.get(OVERVIEW + query)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


def count_hours(*, completed: int, failed: int = 0, hours: int = 23) -> None:
    """As the janitor leaves them: every hour counted, the running one not yet."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for index in range(1, hours + 1):
        hour = now - timedelta(hours=index)
        TaskStat.objects.create(hour=hour, tool="report", outcome="completed", count=completed, b2=completed)
        if failed:
            TaskStat.objects.create(hour=hour, tool="report", outcome="failed", count=failed, b0=failed)
        TaskStat.objects.create(hour=hour, tool="", outcome="")


def process(name: str, kind: str = "worker", *, ago: float = 1, **columns: Any) -> None:
    """A process that was heard of so many seconds ago."""
    at = datetime.now(UTC) - timedelta(seconds=ago)
    Process.objects.create(name=name, kind=kind, host="h", pid=1, started_at=at, seen_at=at, **columns)


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_cards_count_and_lead_to_the_list(superuser: Client) -> None:
    add_one_of_each()
    add("queued", phase_at=-7200)
    page = page_of(superuser)
    for words, number, query in (
        ("Queued", 2, "state=queued"),
        ("Running", 1, "state=running"),
        ("Need input", 1, "state=needs-input"),
        ("Stalled", 1, "state=stalled"),
        ("Expire in 10 min", 0, "expiry=10m"),
    ):
        link = rf'href="/admin/mcp_tasks/task/\?{query}">'
        card = rf'{link} <span class="mcp-card-words">{words}</span> <b [^>]*>{number}</b>'
        assert re.search(card, page), words
    assert "oldest 2 h" in page


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "columns"), [("24h", 24), ("7d", 28)])
def test_picture_and_table_say_the_same(superuser: Client, name: str, columns: int) -> None:
    count_hours(completed=1200, failed=30, hours=180)
    add("failed")
    page = page_of(superuser, f"?range={name}")
    label = r"(\d\d:\d\d)" if name == "24h" else r"(\d\d? \w+ \d\d:\d\d)"
    drawn = re.findall(rf"<title>{label}: ([\d\s]+) completed, ([\d\s]+) failed, ([\d\s]+) cancelled", page)
    table = page[page.index('class="mcp-hours"') :]
    rows = re.findall(rf"<tr> <th scope=\"row\">{label}.*?</th>(.*?)</tr>", table)
    assert len(drawn) == len(rows) == columns
    for (hour, completed, failed, rest), (row_hour, cells) in zip(drawn, rows, strict=True):
        numbers = [int(number) for number in re.findall(r">(\d+)</td>", cells)]
        assert hour == row_hour
        assert _number(completed) == numbers[0]
        assert _number(failed) == numbers[1] + numbers[2]
        assert _number(rest) == numbers[3] + numbers[4]
        assert sum(numbers[:5]) == numbers[5]
    assert _number(drawn[-1][2]) % 30 in (0, 1)  # the failed one ended in the hour before when a new one has just begun


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York"])
def test_of_a_week_every_column_but_the_last_has_six_hours(superuser: Client, settings: Any, zone: str) -> None:
    settings.TIME_ZONE = zone
    count_hours(completed=1, hours=180)
    page = page_of(superuser, "?range=7d")
    drawn = [int(number) for number in re.findall(r"<title>\d\d? \w+ \d\d:\d\d: (\d+) completed", page)]
    # Where a clock was changed a column has an hour more or less.
    assert {5, 6, 7} >= set(drawn[:-1])
    assert drawn[-1] <= 6
    assert f'Finished in 7 d</span> <b class="mcp-number">{sum(drawn)}</b>' in page
    assert "Tools, last 7 days" in page
    assert re.search(r'<a href="\?range=7d" aria-current="true">Last 7 days</a>', page)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York", "Europe/Vienna"])
@pytest.mark.parametrize("now", ["2026-03-10T15:20", "2026-04-06T03:59", "2026-10-06T00:00", "2026-11-03T05:10"])
def test_a_week_has_28_whole_columns_also_where_clocks_were_changed(settings: Any, zone: str, now: str) -> None:
    settings.TIME_ZONE = zone
    at, week = datetime.fromisoformat(now).replace(tzinfo=UTC), RANGES["7d"]
    running = at.replace(minute=0)
    columns = [week.column_of(running - back * timedelta(hours=1)) for back in range(week.hours(at) + 1)]
    assert len(set(columns[:-1])) == 28
    assert columns[-1] not in columns[:-1]  # the hour before the first is of another


@pytest.mark.django_db
@pytest.mark.parametrize("query", ["", "?range=", "?range=1y", "?range=24h", "?other=1"])
def test_a_range_that_is_none_is_a_day(superuser: Client, query: str) -> None:
    assert "Finished per hour, last 24 hours" in page_of(superuser, query)


def _number(text: str) -> int:
    return int(re.sub(r"\s", "", text))


@pytest.mark.django_db
def test_tools_owners_waiting_and_stalled_tasks_are_named(superuser: Client) -> None:
    count_hours(completed=75, failed=25)
    queued = add("queued", tool="waiting_tool", owner_key="c" * 64, owner_label="carol <x>")
    stalled = add("stalled", tool="stuck_tool", owner_key=None, owner_label=None)
    page = page_of(superuser)
    assert 'href="/admin/mcp_tasks/task/?tool=report">report</a>' in page
    assert "25.0 %" in page
    assert f'owner={"c" * 64}"><bdi>carol &lt;x&gt;</bdi>' in page
    assert "owner=anonymous" in page
    assert f'href="/admin/mcp_tasks/task/{queued}/">waiting_tool</a>' in page
    assert f'href="/admin/mcp_tasks/task/{stalled}/">stuck_tool</a>' in page


@pytest.mark.django_db
def test_what_has_waited_longest_stands_first_however_old_it_is(superuser: Client) -> None:
    add("queued", tool="queued_again", age=9000, phase_at=-5)
    add("queued", tool="new", age=600, phase_at=-600)
    page = page_of(superuser)
    assert page.index(">new</a></th>") < page.index(">queued_again</a></th>")


@pytest.mark.django_db
def test_processes_that_are_silent_are_marked(superuser: Client) -> None:
    process("web-1:1", ago=5, slots=4, busy=3)
    process("web-2:2", ago=90)
    process("janitor@a", "janitor", ago=90, info='{"changed": 3}')
    process("janitor@b", "janitor", ago=400, info="[broken")
    process("web-3:3", ago=5, tools_hash="f" * 64)
    rows = dict(re.findall(r'class="mcp-mono mcp-nowrap">([^<]+)</th>(.*?)</tr>', page_of(superuser)))
    assert {name for name, row in rows.items() if "silent" in row} == {"web-2:2", "janitor@b"}
    assert "3 of 4 slots busy" in rows["web-1:1"]
    assert "knows other tools" in rows["web-3:3"]
    assert "last changed 3 rows" in rows["janitor@a"]


@pytest.mark.django_db
def test_a_new_site_is_told_how_to_begin(superuser: Client) -> None:
    page = page_of(superuser)
    assert "No worker has reported yet." in page
    assert "manage.py run_task_worker" in page
    assert "Nothing has finished" in page


@pytest.mark.django_db
def test_numbers_in_the_picture_are_those_of_svg_in_every_language(superuser: Client, settings: Any) -> None:
    settings.LANGUAGE_CODE = "de"
    count_hours(completed=1500)
    page = page_of(superuser)
    picture = page[page.index("<svg class=") : page.index("</svg> </div>")]
    for value in re.findall(r' (?:x|y|x1|x2|y1|y2|width|height)="([^"]*)"', picture):
        float(value)


@pytest.mark.django_db
def test_what_failed_is_hatched_and_what_still_grows_is_faint(superuser: Client) -> None:
    count_hours(completed=5, failed=2)
    add("failed")
    page = page_of(superuser)
    bars = re.findall(r'<g class="mcp-bar"( opacity="0.45")?>(.*?)</g>', page)
    assert [bool(faint) for faint, _ in bars] == [False] * 23 + [True]
    failed = [rect for _, bar in bars for rect in re.findall(r'<rect class="mcp-bar-failed".*?/>', bar)]
    assert len(failed) >= 23
    assert all('fill="url(#mcp-hatch)"' in rect for rect in failed)


@pytest.mark.django_db
def test_nothing_in_the_pages_needs_an_inline_script_or_style(superuser: Client) -> None:
    count_hours(completed=3)
    add_one_of_each()
    for address in (OVERVIEW, "/admin/mcp_tasks/task/"):
        page = superuser.get(address).content.decode()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
        assert not re.search(r"<script(?![^>]*\ssrc=)", page)


# -- cost, and who may look -------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("rows", [10, 1000])
def test_it_takes_nine_statements(superuser: Client, operator: Callable[..., Client], rows: int) -> None:
    add_many(rows)
    count_hours(completed=3)
    process("web-1:1")
    for client, query, most in ((superuser, "", 9), (superuser, "?range=7d", 9), (operator("view_task"), "", 11)):
        with CaptureQueriesContext(connection) as seen:
            page_of(client, query)
        assert len(seen) <= most
        assert not any(re.search(r"_json|traceback", query["sql"]) for query in seen.captured_queries)


@pytest.mark.django_db
def test_who_may_not_view_is_refused(operator: Callable[..., Client]) -> None:
    assert operator("cancel_task", "change_task").get(OVERVIEW).status_code == 403
    assert Client().get(OVERVIEW).status_code == 302


@pytest.mark.django_db
def test_the_policy_narrows_what_is_counted(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": "tests.admin.test_list.OnlyAlice"})
    count_hours(completed=1234)
    add("queued")
    add("queued", owner_label="bob", owner_key="b" * 64)
    add("stalled", owner_label="bob", tool="tool_of_bob")
    page = page_of(superuser)
    assert re.search(r"Queued</span> <b [^>]*>1</b>", page)
    assert "bob" not in page
    assert "1 234" not in page
    assert "1234" not in page
    assert "for all owners together" in page


# -- the picture ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "step"), [(0, 1), (1, 1), (4, 1), (5, 2), (9, 3), (43, 12), (45, 12), (859, 250), (12_000, 3000)]
)
def test_steps_of_the_axis_are_round(most: int, step: int) -> None:
    assert nice_step(most) == step


def test_steps_are_whole_and_reach_the_highest_bar() -> None:
    for most in range(1, 3000, 7):
        step = nice_step(most)
        assert step * 4 >= most
        assert any(str(step).rstrip("0") == str(each).replace(".", "").rstrip("0") for each in STEPS)


def test_bars_stand_on_each_other_and_on_the_base() -> None:
    drawn = chart([Column("a", [("completed", 6), ("failed", 0), ("cancelled", 2)], "a"), Column("b", [], "b")])
    lower, upper = drawn.bars[0].blocks
    assert (lower.kind, upper.kind) == ("completed", "cancelled")
    assert lower.y + lower.height == pytest.approx(drawn.base, abs=0.05)
    assert upper.y + upper.height == pytest.approx(lower.y, abs=0.05)
    assert drawn.top <= upper.y
    assert drawn.bars[1].blocks == []
