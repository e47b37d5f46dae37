"""The list of tasks: what it shows, what it reads, and what it costs."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.asserts import assertHTMLEqual

from mcp_tasks.admin.list import MOST_ROWS
from mcp_tasks.models import Task
from mcp_tasks.operators.states import FILTERS

from .rows import SECRET, STATES, add, add_many, add_one_of_each, task

pytestmark = pytest.mark.django_db

LIST = "/admin/mcp_tasks/task/"


def listed(client: Client, query: str = "") -> set[str]:
    """The references in a list."""
    return set(re.findall(r'data-ref="([0-9a-f-]{36})"', client.get(f"{LIST}?{query}").content.decode()))


def asked(client: Client, address: str) -> list[str]:
    """The statements of a page, the second time somebody looks."""
    client.get(address)
    with CaptureQueriesContext(connection) as seen:
        assert client.get(address).status_code == 200
    return [query["sql"] for query in seen.captured_queries]


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_every_state_has_its_badge(superuser: Client) -> None:
    add_one_of_each()
    page = superuser.get(LIST).content.decode()
    words = {"stopping": "Cancelled", "needs-input": "Needs input", "tool-error": "Tool error"}
    for state in STATES:
        shown = "cancelled" if state == "stopping" else state
        word = words.get(state, state.capitalize())
        assert re.search(rf'class="mcp-badge mcp-is-{shown}">.*?<span class="mcp-word">{word}</span>', page)
    assert "worker still stopping" in page
    assert "web-3:654 · 1/3" in page


def test_progress_is_a_bar_a_percentage_and_the_message_of_the_tool(superuser: Client) -> None:
    add("running", progress_done=58.4, progress_total=100, status_message="Waiting for <upstream>")
    page = superuser.get(LIST).content.decode()
    assert '<progress max="100" value="58" aria-label="Progress"></progress>' in page
    assert ">58 %<" in page
    assert "Waiting for &lt;upstream&gt;" in page


def test_progress_without_a_total_is_a_number(superuser: Client) -> None:
    add("running", progress_done=7, progress_total=None)
    page = superuser.get(LIST).content.decode()
    assert " hidden></progress>" in page
    assert 'class="mcp-amount">7<' in page


def test_a_time_to_live_under_ten_minutes_is_marked_while_the_task_is_unfinished(superuser: Client) -> None:
    add("running", expires_at=300)
    add("completed", expires_at=300)
    assert superuser.get(LIST).content.decode().count("mcp-left mcp-short") == 1


def test_times_are_shown_in_the_zone_of_the_site_and_in_utc(superuser: Client, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kolkata"
    add("queued")
    page = superuser.get(LIST).content.decode()
    assert re.search(r'title="\d{4}-\d\d-\d\d \d\d:\d\d:\d\d IST · \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"', page)


@pytest.mark.parametrize("query", ["", "?state=running&p=1"])
def test_a_tool_leads_to_the_page_of_its_task(superuser: Client, query: str) -> None:
    ref = add("running")
    [link] = re.findall(r'<a class="mcp-tool" href="([^"]+)">report</a>', superuser.get(LIST + query).content.decode())
    address = urljoin(f"http://testserver{LIST}{query}", link).removeprefix("http://testserver")
    assert address == f"{LIST}{ref}/"
    assert superuser.get(address).status_code == 200


def test_the_newest_stands_first(superuser: Client) -> None:
    refs = [str(add(age=age)) for age in (30, 10, 20)]
    page = superuser.get(LIST).content.decode()
    assert re.findall(r'data-ref="([0-9a-f-]{36})"', page) == [refs[1], refs[2], refs[0]]


def test_chips_count_what_is_unfinished(superuser: Client) -> None:
    add_one_of_each()
    add("queued", expires_at=60)
    page = superuser.get(LIST).content.decode()
    for query, number, words in (
        ("state=queued", 2, "queued"),
        ("state=stalled", 1, "stalled"),
        ("state=needs-input", 1, "need input"),
        ("expiry=10m", 1, "expire in 10 min"),
    ):
        assert re.search(rf'href="\?{query}"[^>]*><b>{number}</b> {words}</a>', page)


def test_empty_lists_say_why_they_are_empty(superuser: Client) -> None:
    assert "No tasks yet." in superuser.get(LIST).content.decode()
    page = superuser.get(f"{LIST}?state=failed").content.decode()
    assert "Nothing matches." in page
    assert "Clear all filters" in page


# -- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", FILTERS)
def test_a_state_filter_finds_the_rows_of_its_state(superuser: Client, state: str) -> None:
    refs = add_one_of_each()
    live = ("queued", "running", "needs-input", "stalled")
    expected = {"live": live, "cancelled": ("cancelled", "stopping")}.get(state, (state,))
    assert listed(superuser, f"state={state}") == {str(refs[name]) for name in expected}


def test_filters_by_tool_time_expiry_owner_and_reference(superuser: Client) -> None:
    old = str(add("queued", tool="old", age=7200, expires_at=None, owner_key=None))
    new = str(add("queued", tool="new", expires_at=120, owner_key="b" * 64))
    done = str(add("completed", tool="new", expires_at=120))
    assert listed(superuser, "tool=old") == {old}
    assert listed(superuser, "created=1h") == {new, done}
    assert listed(superuser, "created=24h") == {old, new, done}
    assert listed(superuser, "expiry=never") == {old}
    assert listed(superuser, "expiry=10m") == {new}
    assert listed(superuser, "owner=anonymous") == {old}
    assert listed(superuser, f"owner={'b' * 64}&tool=new") == {new}
    assert listed(superuser, f"ref={old},{done}") == {old, done}


@pytest.mark.parametrize(
    "query",
    [
        "state=nonsense",
        "tool=unheard-of",
        "created=2h",
        "expiry=x",
        "owner=alice",
        "ref=1",
        "colour=red",
        "arguments_json__contains=secret",
        "status__exact=working",
        "state=queued&stat=failed",
        "q=abc",
        "o=1",
        "tool=%00",
    ],
)
def test_an_unknown_filter_gives_a_warning_all_tasks_and_no_action(superuser: Client, query: str) -> None:
    refs = {str(ref) for ref in add_one_of_each().values()}
    page = superuser.get(f"{LIST}?{query}").content.decode()
    assert set(re.findall(r'data-ref="([0-9a-f-]{36})"', page)) == refs
    assert "a filter that does not exist" in page
    assert "Cancel selected" not in page
    assert 'name="_selected_action"' not in page


def test_a_page_that_is_no_longer_there_is_the_last_one(superuser: Client) -> None:
    add_many(60)
    assert len(listed(superuser, "p=9")) == 10


# -- what it may not do -----------------------------------------------------------------------------------------------


def test_there_is_no_payload_and_no_traceback_in_the_list(superuser: Client) -> None:
    add_one_of_each()
    add("failed", traceback=SECRET)
    assert SECRET not in superuser.get(LIST).content.decode()
    for sql in asked(superuser, LIST):
        assert not re.search(r"_json|traceback", sql)


def test_nothing_is_counted_without_a_bound(superuser: Client) -> None:
    add_many(60)
    for query in ("", "state=live", "created=1h"):
        for sql in asked(superuser, f"{LIST}?{query}"):
            # COUNT over rows of a table; the numbers of chips have conditions and look at unfinished rows alone.
            if re.search(r"COUNT\(\*\)(?! FILTER)", sql):
                assert re.search(rf"LIMIT {MOST_ROWS + 1}\)", sql), sql


def test_only_the_newest_ten_thousand_can_be_paged(superuser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_tasks.admin.list.MOST_ROWS", 70)
    add_many(75)
    page = superuser.get(LIST).content.decode()
    assert "More than 70 match; only the newest 70 can be paged." in page
    assert len(listed(superuser, "p=2")) == 20
    assert "Select everything that matches these filters" in page
    assert "Select all 70" not in page


@pytest.mark.parametrize("rows", [10, 1000])
def test_the_list_takes_five_statements_for_a_superuser(superuser: Client, rows: int) -> None:
    add_many(rows)
    for query in ("", *(f"state={name}" for name in FILTERS), "created=1h", "expiry=10m", "tool=report", "p=2"):
        assert len(asked(superuser, f"{LIST}?{query}")) <= 5, query


@pytest.mark.parametrize("rows", [10, 1000])
def test_the_list_takes_seven_statements_for_staff(operator: Callable[..., Client], rows: int) -> None:
    add_many(rows)
    client = operator("view_task", "cancel_task")
    assert len(asked(client, LIST)) == 7
    assert len(asked(client, f"{LIST}?state=live")) == 7


def test_stock_pages_for_adding_changing_and_deleting_do_not_exist(superuser: Client) -> None:
    ref = add("completed")
    for address in ("add/", f"{ref}/change/", f"{ref}/history/"):
        assert superuser.get(LIST + address).status_code == 404
        assert superuser.post(LIST + address, {"post": "yes"}).status_code == 404
    superuser.post(f"{LIST}{ref}/delete/", {"post": "yes"})
    assert Task.objects.count() == 1


def test_deleting_is_no_action_not_even_for_a_superuser(superuser: Client) -> None:
    ref = add("completed")
    page = superuser.get(LIST).content.decode()
    assert "delete_selected" not in page
    superuser.post(LIST, {"action": "delete_selected", "_selected_action": str(ref), "index": "0", "post": "yes"})
    assert Task.objects.filter(pk=ref).exists()


# -- the action -------------------------------------------------------------------------------------------------------


def test_cancelling_leads_to_the_page_that_confirms_it(superuser: Client) -> None:
    refs = [str(add()), str(add())]
    answer = superuser.post(LIST, {"action": "cancel_selected", "_selected_action": refs, "index": "0"})
    assert answer.status_code == 302
    assert answer["Location"] == f"{LIST}bulk-cancel/?refs={'%2C'.join(refs)}"
    assert Task.objects.filter(status="working").count() == 2


def test_everything_that_matches_travels_as_filters(superuser: Client) -> None:
    ref = add()
    answer = superuser.post(
        f"{LIST}?state=live&p=1",
        {"action": "cancel_selected", "_selected_action": str(ref), "index": "0", "select_across": "1"},
    )
    assert answer["Location"] == f"{LIST}bulk-cancel/?everything=1&state=live"


def test_something_else_than_a_reference_is_no_task(superuser: Client) -> None:
    answer = superuser.post(LIST, {"action": "cancel_selected", "_selected_action": "1", "index": "0"}, follow=True)
    assert "Nothing was done." in answer.content.decode()


def test_the_action_needs_its_permission(operator: Callable[..., Client]) -> None:
    ref = add()
    client = operator("view_task")
    assert "Cancel selected" not in client.get(LIST).content.decode()
    answer = client.post(LIST, {"action": "cancel_selected", "_selected_action": str(ref), "index": "0"})
    assert answer.status_code == 200


# -- who may look -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("permissions", [(), ("change_task", "add_task", "delete_task"), ("cancel_task",)])
def test_other_permissions_do_not_open_the_list(operator: Callable[..., Client], permissions: tuple[str, ...]) -> None:
    add()
    client = operator(*permissions)
    assert client.get(LIST).status_code == 403
    assert LIST not in client.get("/admin/").content.decode()


def test_who_may_view_finds_the_list_on_the_index(operator: Callable[..., Client]) -> None:
    client = operator("view_task")
    assert LIST in client.get("/admin/").content.decode()
    page = client.get("/admin/mcp_tasks/").content.decode()
    assert f"{LIST}overview/" in page
    assert f"{LIST}add/" not in page


class OnlyAlice:
    """A policy that hides every task but those of alice."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(owner_label="alice")

    def may(self, request: Any, verb: str, task: Any) -> bool:
        return True

    def mask(self, request: Any, task: Any, path: str, key: str) -> None:
        return None


def test_the_policy_hides_rows_and_their_number(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": "tests.admin.test_list.OnlyAlice"})
    mine, other = str(add("queued")), str(add("queued", owner_label="bob"))
    assert listed(superuser) == {mine}
    assert listed(superuser, f"ref={other}") == set()
    assert "<b>1</b> queued" in superuser.get(LIST).content.decode()


def test_the_box_of_a_row_is_the_one_of_django() -> None:
    pages, row = admin.site._registry[Task], task("running", tool="<b>'tool'\"")
    assertHTMLEqual(pages.action_checkbox(row), admin.ModelAdmin.action_checkbox(pages, row))  # type: ignore[arg-type]


def test_a_row_takes_no_template_of_its_own(superuser: Client) -> None:
    add()
    one = len(superuser.get(LIST).templates)
    add_many(40)
    assert len(superuser.get(LIST).templates) == one
