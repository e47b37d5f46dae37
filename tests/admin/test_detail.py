"""The page of one task: what it says, in which order, and what it costs."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

import mcp_tasks
from mcp_tasks.dbtime import DbNow
from mcp_tasks.models import Process, Task, TaskEvent, TaskInput
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import get_store
from mcp_tasks.store.processes import janitor_name, report, tools_hash
from mcp_tasks.store.types import Owner
from mcp_tasks.testing.timetravel import rewind
from mcp_tasks.tools.registry import registry

from .rows import SECRET, STATES, add, add_many

pytestmark = pytest.mark.django_db

ROOT = "/admin/mcp_tasks/task/"
FORM = {"method": "elicitation/create", "params": {"message": "Send to 5000 people?"}}


def page(client: Client, ref: UUID, query: str = "") -> str:
    """The page of a task."""
    answer = client.get(f"{ROOT}{ref}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def words(client: Client, ref: UUID) -> str:
    """The page of a task as text, spaces drawn together."""
    content = page(client, ref).split('id="content-main"')[1].split("</main>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", content))


def statements(client: Client, address: str) -> list[str]:
    """The statements of a page, the second time somebody looks."""
    client.get(address)
    with CaptureQueriesContext(connection) as seen:
        assert client.get(address).status_code == 200
    return [query["sql"] for query in seen.captured_queries]


def create(tool: str = "send_campaign", arguments: dict[str, Any] | None = None, **options: Any) -> UUID:
    """A queued task of alice."""
    owner = Owner(("alice",), "alice@example.com")
    return get_store().create_task(tool, arguments or {}, owner=owner, **options).ref


def run(ref: UUID, holder: str = "web-2:870") -> int:
    """Its next leg."""
    claim = get_store().claim(ref, holder=holder)
    assert claim is not None
    return claim.leg


# -- what it costs ----------------------------------------------------------------------------------------------------

EXTRA = {"queued": 1, "running": 2, "needs-input": 1, "stalled": 2}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("others", [0, 300])
def test_a_page_costs_five_statements_and_an_unfinished_task_what_its_sentence_needs(
    superuser: Client, state: str, others: int
) -> None:
    add_many(others)
    report("web-1:1", "worker", slots=4, busy=2)
    assert len(statements(superuser, f"{ROOT}{add(state)}/")) == 5 + EXTRA.get(state, 0)


def test_a_queued_task_behind_busy_workers_costs_one_more_for_how_many_are_before_it(superuser: Client) -> None:
    report("web-1:1", "worker", slots=4, busy=4, tools=tools_hash([tool.name for tool in registry]))
    add_many(30, tool="other")
    ref = add("queued", age=0)
    assert len(statements(superuser, f"{ROOT}{ref}/")) == 7
    assert "1 process is busy in every slot. About 3 tasks are to run first" in words(superuser, ref)


def test_names_of_operators_in_the_timeline_cost_one_statement_however_many(superuser: Client) -> None:
    ref = add("completed")
    for number in range(1, 20):
        event(ref, "ttl", actor=f"operator:{number}", detail={"reason": "again"})
    assert len(statements(superuser, f"{ROOT}{ref}/")) == 6


def test_a_member_of_staff_costs_two_more_for_the_permissions(operator: Callable[..., Client]) -> None:
    client = operator("view_task", "view_task_payload", "cancel_task")
    assert len(statements(client, f"{ROOT}{add('completed')}/")) == 7


def test_without_the_permission_no_statement_reads_a_payload(operator: Callable[..., Client]) -> None:
    client = operator("view_task", "cancel_task", "extend_task")
    for state in ("needs-input", "running", "completed", "failed"):
        for path in ("", "support/", "cancel/", "extend/"):
            with CaptureQueriesContext(connection) as seen:
                client.get(f"{ROOT}{add(state)}/{path}")
            for query in seen.captured_queries:
                assert not re.search(r"SELECT .*(_json|traceback).* FROM", query["sql"].split("WHERE")[0]), query


def test_the_request_of_the_client_and_its_own_meta_are_never_read(superuser: Client) -> None:
    for sql in statements(superuser, f"{ROOT}{add('running')}/"):
        assert "context_json" not in sql
        assert "meta_json" not in sql


# -- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "words_"),
    [
        ("queued", "No process that runs tasks has ever been seen."),
        ("running", "web-3:654 has run it for"),
        ("needs-input", "It has waited for its client for"),
        ("stalled", "web-2:870 let its lease lapse 1 min ago, at try 1 of 3. The janitor has never run"),
        ("stopping", "web-1:11 was told to stop"),
    ],
)
def test_an_unfinished_task_says_why_it_is_where_it_is(superuser: Client, state: str, words_: str) -> None:
    said = words(superuser, add(state))
    assert "Why is it in this state?" in said
    assert words_ in said


@pytest.mark.parametrize("state", ["completed", "tool-error", "failed", "cancelled", "expired"])
def test_a_task_that_is_over_has_no_such_sentence(superuser: Client, state: str) -> None:
    assert "Why is it in this state?" not in words(superuser, add(state))


@pytest.mark.parametrize("state", ["completed", "tool-error", "failed", "cancelled"])
def test_a_finished_task_says_why_it_cannot_be_run_again(superuser: Client, state: str) -> None:
    said = words(superuser, add(state))
    assert "can no longer change: its client may have read the outcome already" in said
    assert "the client has to call it again" in said
    assert "Queue again" not in said


def test_facts_name_who_when_how_often_and_by_whom(superuser: Client) -> None:
    ref = add("running", leg=2, status_message="Sending to <b>all</b>", progress_done=3, progress_total=4)
    body, said = page(superuser, ref), words(superuser, ref)
    for fact in ("Owner alice", "30 s ago", "29 min", "2 · 1 of 3", "web-3:654", "59 s left", "tools/call", "75 %"):
        assert fact in said, fact
    assert "Sending to &lt;b&gt;all&lt;/b&gt;" in body
    assert '<progress max="100" value="75"' in body
    assert str(ref) in body


def test_a_task_of_nobody_is_anonymous(superuser: Client) -> None:
    assert "Owner anonymous" in words(superuser, add("running", owner_key=None, owner_label=None))
    assert f"Owner {'a' * 8}…" in words(superuser, add("running", owner_label=""))


def test_a_task_that_a_job_of_the_project_has_shows_no_lease(superuser: Client) -> None:
    said = words(superuser, add("running", due_at=None, lease_holder=None))
    assert "none: handed over" in said
    assert "A job of the project has had it for" in said


def test_times_are_in_the_zone_of_the_site_with_utc_beside_them(superuser: Client, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    ref = add("completed", created_at=datetime(2026, 3, 1, 23, 30, tzinfo=UTC))
    assert 'title="2026-03-02 08:30:00 JST · 2026-03-01 23:30:00 UTC"' in page(superuser, ref)


def test_the_time_is_told_by_what_it_went_into(superuser: Client) -> None:
    ref = add("completed", queue_ms=4_500, run_ms=123_000, wait_ms=0)
    body, said = page(superuser, ref), words(superuser, ref)
    assert "in the queue 4.5 s" in said
    assert "running 2 min 3 s" in said
    assert "waiting 0.0 s" in said
    assert '<rect class="mcp-span-queued" x="0.0%" y="0" width="3.53%" height="18"/>' in body
    assert '<rect class="mcp-span-running" x="3.53%" y="0" width="96.47%" height="18"/>' in body
    assert 'class="mcp-span-parked" x=' not in body


def test_the_phase_that_lasts_counts_as_far_as_it_has_come(superuser: Client) -> None:
    said = words(superuser, add("needs-input", phase_at=-3600, wait_ms=60_000, run_ms=1000))
    assert "waiting 1 h 1 min" in said


def test_widths_have_points_in_every_language(superuser: Client, settings: Any) -> None:
    settings.LANGUAGE_CODE = "de"
    body = page(superuser, add("completed", queue_ms=1_000, run_ms=2_000))
    assert 'width="33.33%"' in body


def test_sections_are_in_their_fixed_order(superuser: Client) -> None:
    ref = create(arguments={"campaign": "spring"})
    leg = run(ref)
    get_store().require_input(ref, {"first": FORM}, leg=leg)
    get_store().apply_input_responses(ref, {"first": {"action": "accept", "content": {}}})
    leg = run(ref)
    get_store().require_input(ref, {"second": FORM}, leg=leg)
    said = words(superuser, ref)
    places = [said.index(it) for it in ("Owner", "Where the time went", "second open", "first answered", "Arguments")]
    assert places == sorted(places)
    assert said.index("Timeline") > places[-1]


def test_a_failed_task_shows_its_error_and_its_traceback_after_its_arguments(superuser: Client) -> None:
    ref = create(arguments={"n": 1})
    error = McpError(-32603, "It broke", {"because": "<of that>"})
    get_store().fail_task(ref, error, leg=run(ref), traceback="Traceback\n  File </pre><b>\u202e")
    body = page(superuser, ref)
    places = [body.index(it) for it in (">Arguments<", ">Error sent to the client<", ">Traceback <", ">Timeline<")]
    assert places == sorted(places)
    assert "&lt;of that&gt;" in body
    assert "File &lt;/pre&gt;&lt;b&gt;\\u202e" in body


def test_questions_are_open_answered_replaced_or_withdrawn(superuser: Client) -> None:
    ref = create()
    leg = run(ref)
    get_store().require_input(ref, {"one": FORM, "two": FORM}, leg=leg)
    get_store().apply_input_responses(ref, {"one": {"action": "decline"}})
    get_store().require_input(ref, {"three": FORM})
    said = words(superuser, ref)
    assert "three open" in said
    assert "one answered" in said
    assert "two replaced by another" in said
    get_store().cancel_task(ref)
    assert "three withdrawn" in words(superuser, ref)


def test_fifty_questions_are_shown_the_open_ones_first(superuser: Client) -> None:
    ref = create()
    leg = run(ref)
    get_store().require_input(ref, {f"old-{number}.": FORM for number in range(40)}, leg=leg)
    get_store().require_input(ref, {f"open-{number}.": FORM for number in range(20)})
    shown = re.findall(r"(old|open)-\d+\.", words(superuser, ref).partition("Question")[2])
    assert shown == ["open"] * 20 + ["old"] * 30


def test_what_is_past_its_time_is_no_longer_shown_although_nobody_swept_it(superuser: Client) -> None:
    ref = add("completed", expires_at=-5, traceback="the line of the fault", status_message="told to the client")
    said = words(superuser, ref)
    assert "Expired" in said
    assert "the line of the fault" not in said
    assert "told to the client" not in said
    assert SECRET not in said
    assert "no longer shown" in said
    assert superuser.get(f"{ROOT}{ref}/download/result/").status_code == 404
    assert superuser.get(f"{ROOT}{ref}/download/result/?unmasked=1").status_code == 404


def test_a_silent_janitor_is_named_where_a_lease_lapsed(superuser: Client) -> None:
    ref = add("stalled")
    report(janitor_name(), "janitor")
    assert "The janitor, which ran 0 s ago, queues it again." in words(superuser, ref)
    Process.objects.update(seen_at=datetime.now(UTC) - timedelta(minutes=20))
    assert "The janitor has not run for 20 min" in page(superuser, ref)


def test_what_somebody_has_to_look_into_is_marked(superuser: Client) -> None:
    assert "mcp-urgent" in page(superuser, add("stalled"))
    assert "mcp-urgent" in page(superuser, add("queued"))
    report("web-1:1", "worker", slots=4, busy=2)
    assert "mcp-urgent" not in page(superuser, add("queued"))
    assert "mcp-urgent" not in page(superuser, add("running"))


def test_pages_of_a_task_are_never_stored_by_a_cache(superuser: Client) -> None:
    ref = add("running")
    for path in ("", "support/", "cancel/", "extend/", "download/arguments/"):
        assert "no-store" in superuser.get(f"{ROOT}{ref}/{path}").headers["Cache-Control"]
    assert "no-store" in superuser.get(f"{ROOT}bulk-cancel/?refs={ref}").headers["Cache-Control"]


# -- the timeline -----------------------------------------------------------------------------------------------------


def event(ref: UUID, kind: str, *, actor: str = "worker", detail: Any = None, **columns: Any) -> None:
    """An event, written past the store."""
    text = None if detail is None else json.dumps(detail)
    TaskEvent.objects.create(
        **{"task_id": ref, "revision": 1, "kind": kind, "actor": actor, "at": DbNow(), "detail": text, **columns}
    )


def kinds() -> set[str]:
    """Every kind of event that the store writes."""
    found: set[str] = set()
    for path in (Path(mcp_tasks.__file__).parent / "store").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'record(?:_all)?\(\s*using,(?: (?:task\.)?ref,)?\s*"([a-z_]+)"', text))
        found |= set(re.findall(r'kind(?:: str)? ?= ?"([a-z_]+)"', text))
        found |= set(re.findall(r'_requeue\([^)]*?"([a-z_]+)"', text))
    return found


def test_every_kind_of_event_has_words(superuser: Client) -> None:
    found = kinds()
    assert {"created", "claimed", "asked", "expired", "dismissed", "late_result", "access_refused"} <= found
    ref = add("completed")
    for kind in found:
        event(ref, kind)
    body = page(superuser, ref)
    for what in re.findall(r'<span class="mcp-what">(.*?)</span>', body, re.DOTALL):
        assert what.strip() not in found
        assert what.strip()[0].isupper(), what
    event(ref, "something_new")
    assert "something_new" in page(superuser, ref)


def test_the_timeline_says_who_why_and_how_much_later(superuser: Client, django_user_model: Any) -> None:
    ref, now = add("completed"), datetime.now(UTC)
    who = django_user_model.objects.create(username="<admin>@example.com")
    event(ref, "created", actor="client", at=now - timedelta(seconds=100))
    event(ref, "claimed", leg=1, at=now - timedelta(seconds=98))
    event(ref, "access_refused", actor="client", detail={"count": 2}, at=now - timedelta(seconds=97))
    event(ref, "ttl", actor=f"operator:{who.pk}", detail={"ttl_ms": 7_200_000, "reason": "they <asked>"}, at=now)
    event(ref, "cancelled", actor="operator:999999", detail={"reason": "runaway"}, at=now)
    said, body = words(superuser, ref), page(superuser, ref)
    assert "Created" in said
    assert "+2.0 s · worker · leg 1" in said
    assert "client · 2 times" in said
    assert "&lt;admin&gt;@example.com · 2 h · “they &lt;asked&gt;”" in said
    assert "operator:999999 · “runaway”" in said
    assert re.search(r'mcp-event mcp-bad">\s*<span class="mcp-what">\s*Access refused', body)


@pytest.mark.parametrize("detail", ["not json", '["a"]', '{"reason": {"a": 1}, "keys": "x", "ttl_ms": null}', "1e400"])
def test_details_that_nobody_foresaw_break_nothing(superuser: Client, detail: str) -> None:
    ref = add("completed")
    TaskEvent.objects.create(task_id=ref, revision=1, kind="ttl", actor="operator:x", at=DbNow(), detail=detail)
    assert "Time to live changed" in words(superuser, ref)


def test_the_newest_events_come_first_and_older_ones_behind_a_link(superuser: Client) -> None:
    ref = add("completed")
    TaskEvent.objects.bulk_create(
        TaskEvent(task_id=ref, revision=1, kind=f"kind-{number}.", actor="worker", at=datetime.now(UTC))
        for number in range(450)
    )
    body = page(superuser, ref)
    shown = re.findall(r"kind-(\d+)\.", body)
    assert shown == [str(number) for number in range(250, 450)]
    for expected in (range(50, 250), range(50)):
        [link] = re.findall(r'href="(\?before=\d+)"', body)
        body = page(superuser, ref, link)
        assert re.findall(r"kind-(\d+)\.", body) == [str(number) for number in expected]
        assert f'<a href="{ROOT}{ref}/">Back to the newest</a>' in body
    assert "?before=" not in body


@pytest.mark.parametrize("before", ["x", "-1", "9" * 40, "1;drop", "٣"])
def test_a_wrong_place_in_the_timeline_is_ignored(superuser: Client, before: str) -> None:
    ref = add("completed")
    event(ref, "created")
    assert "Created" in page(superuser, ref, f"?before={before}")


# -- the support summary ----------------------------------------------------------------------------------------------


def test_the_summary_for_a_ticket_holds_no_payload_no_owner_and_nobodys_words(superuser: Client) -> None:
    ref = create(arguments={"secret": "payload-text"}, trace_context="00-trace-01")
    leg = run(ref)
    get_store().set_status(ref, "message-text", leg=leg)
    get_store().require_input(ref, {"approval": FORM}, leg=leg)
    get_store().cancel(ref, actor="operator:1", reason="reason-text")
    rewind(ref, 60)
    body = superuser.get(f"{ROOT}{ref}/support/").content.decode()
    for there in (
        str(ref),
        "send_campaign",
        "Cancelled",
        "claimed 1",
        "asked",
        "cancelled",
        mcp_tasks.__version__,
    ):
        assert there in body
    for absent in ("payload-text", "message-text", "reason-text", "alice", "5000 people"):
        assert absent not in body


# -- no id ------------------------------------------------------------------------------------------------------------


def test_the_clients_id_of_a_task_is_on_no_page_in_no_log_and_in_no_row(
    superuser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    from django.contrib.admin.models import LogEntry

    caplog.set_level("DEBUG")
    made = get_store().create_task("report", {"a": 1}, owner=Owner(("alice",), "alice"))
    ref, seen = made.ref, []
    for path in ("", "support/", "download/arguments/", "cancel/", "extend/"):
        answer = superuser.get(f"{ROOT}{ref}/{path}")
        seen += [answer.getvalue().decode(), str(answer.headers)]
    answer = superuser.post(
        f"{ROOT}{ref}/cancel/", {"reason": "no more", "revision": 1, "share_reason": "on"}, follow=True
    )
    seen += [answer.content.decode(), str(answer.headers), str(answer.redirect_chain), caplog.text]
    seen += [repr(vars(record)) for record in caplog.records]
    for model in (Task, TaskInput, TaskEvent, LogEntry):
        seen += [repr(row) for row in model._base_manager.values()]
    assert answer.redirect_chain
    assert not [text for text in seen if made.task_id in text]
