"""Cancelling many tasks: what is meant, what is said first, and counts that add up whatever others do meanwhile."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from mcp_tasks.admin import bulk
from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.operators.policy import Policy
from mcp_tasks.store import get_store

from .rows import add, add_one_of_each

LIST = "/admin/mcp_tasks/task/"
PAGE = f"{LIST}bulk-cancel/"


@pytest.fixture
def root(transactional_db: None) -> Client:
    """A superuser in a database that other threads see."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def _five_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MOST_AT_ONCE", 5)


def text(answer: Any) -> str:
    """A page as text, without the furniture around it."""
    content = answer.content.decode().split('id="content-main"')[1].split("</main>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", content))


def query_of(answer: Any) -> str:
    """What the form of the page stands for."""
    [found] = re.findall(r'name="query" value="([^"]*)"', answer.content.decode())
    return unescape(found)


def send(client: Client, query: str, **given: Any) -> Any:
    """Open the page, fill it in, and send it."""
    form = {"query": query_of(client.get(f"{PAGE}?{query}")), "reason": "all of them", **given}
    return client.post(PAGE, form, follow=True)


def said(answer: Any) -> str:
    """The message after a deed."""
    [found] = re.findall(r'<li class="(?:success|warning|info)">(.*?)</li>', answer.content.decode())
    return str(unescape(found))


def counted(message: str) -> dict[str, int]:
    """The numbers of a message."""
    words = {
        "Cancelled": r"Cancelled (\d+)",
        "finished": r"(\d+) had",
        "refused": r"(\d+) could not",
        "gone": r"(\d+) (?:is|are) not",
    }
    found = {name: re.search(pattern, message) for name, pattern in words.items()}
    return {name: int(match[1]) for name, match in found.items() if match}


def refs(*of: UUID) -> str:
    """Ticked tasks as part of an address."""
    return "refs=" + ",".join(str(ref) for ref in of)


def cancelled() -> int:
    """How many tasks are cancelled."""
    return Task.objects.filter(status="cancelled").count()


# -- what is meant ----------------------------------------------------------------------------------------------------


def test_the_action_of_the_list_leads_to_the_page_and_does_nothing_itself(superuser: Client) -> None:
    ticked = [add("running"), add("queued"), add("completed")]
    form = {"action": "cancel_selected", "_selected_action": [str(ref) for ref in ticked]}
    answer = superuser.post(LIST, form, follow=True)
    assert answer.redirect_chain[0][0].startswith(PAGE)
    assert "2 tasks will be cancelled: 1 queued, 1 running, 0 waiting for input." in text(answer)
    assert "1 has finished already: it is left alone." in text(answer)
    assert cancelled() == 0


def test_everything_that_matches_the_list_leads_to_the_page_with_its_filters(superuser: Client) -> None:
    add("running", tool="one")
    add("running", tool="two")
    form = {"action": "cancel_selected", "select_across": "1", "_selected_action": [str(uuid4())]}
    answer = superuser.post(f"{LIST}?tool=one", form, follow=True)
    assert "1 task will be cancelled" in text(answer)
    found = parse_qs(query_of(answer))
    assert found["tool"] == ["one"]
    assert found["everything"] == ["1"]
    assert "as_of" in found


def test_ticked_tasks_are_cancelled_one_by_one_each_with_its_reason(superuser: Client) -> None:
    ticked = [add("running"), add("queued"), add("needs-input"), add("stalled")]
    other = add("running")
    answer = send(superuser, refs(*ticked), share_reason="on", reason="the region is down")
    assert answer.redirect_chain == [(LIST, 302)]
    assert said(answer) == "Cancelled 4 tasks."
    assert Task.objects.get(pk=other).status == "working"
    for ref in ticked:
        assert Task.objects.get(pk=ref).status_message == "the region is down"
        event = TaskEvent.objects.get(task_id=ref)
        assert json.loads(event.detail or "") == {"reason": "the region is down"}
        assert re.fullmatch(r"operator:\d+", event.actor)
    entries = LogEntry.objects.values_list("object_id", "change_message", "user__username")
    assert set(entries) == {(str(ref), "Cancel: the region is down", "root") for ref in ticked}


def test_a_reason_is_needed(superuser: Client) -> None:
    ref = add("running")
    answer = send(superuser, refs(ref), reason="no")
    assert "Give a reason of 3 to 500 characters." in text(answer)
    assert cancelled() == 0


def test_a_post_without_the_form_only_shows_the_page(superuser: Client) -> None:
    answer = superuser.post(PAGE, {"query": refs(add("running"))})
    assert "1 task will be cancelled" in text(answer)
    assert cancelled() == 0


def test_more_ticked_tasks_than_a_page_can_hold_are_refused(superuser: Client) -> None:
    assert superuser.get(f"{PAGE}?{refs(*(uuid4() for _ in range(200)))}").status_code == 200
    assert superuser.get(f"{PAGE}?{refs(*(uuid4() for _ in range(201)))}").status_code == 400


@pytest.mark.parametrize(
    "query",
    [
        "refs=x",
        "refs=",
        "everything=1&as_of=yesterday",
        "everything=1&as_of=2026-01-01T00:00:00",
        "everything=1&as_of=2026-99-01T00:00:00Z",
        "everything=1&as_of=9999-12-31T23:59:59.999999Z",
        "everything=1&as_of=0001-01-01T00:00:00%2B14:00",
        "everything=1&after=x",
        "everything=1&after=2026-01-01T00:00:00Z,x",
    ],
)
def test_what_the_page_could_not_have_said_is_a_bad_request(superuser: Client, query: str) -> None:
    add("running")
    assert superuser.get(f"{PAGE}?{query}").status_code == 400
    assert superuser.post(PAGE, {"query": query, "reason": "all of them", "word": "CANCEL"}).status_code == 400
    assert cancelled() == 0


@pytest.mark.parametrize("query", ["everything=1&stat=queued", "everything=1&state=nonsense", "everything=1&tool=none"])
def test_a_filter_that_does_not_exist_cancels_nothing(superuser: Client, query: str) -> None:
    add("running")
    for answer in (
        superuser.get(f"{PAGE}?{query}", follow=True),
        superuser.post(PAGE, {"query": query, "reason": "all of them", "word": "CANCEL"}, follow=True),
    ):
        assert said(answer) == "The address asks for a filter that does not exist. Nothing was done."
    assert cancelled() == 0


def test_nothing_selected_goes_back_to_the_list(superuser: Client) -> None:
    add("running")
    assert said(superuser.get(PAGE, follow=True)) == "No tasks were selected."
    assert superuser.post(PAGE, {"reason": "all of them", "word": "CANCEL"}).status_code == 400


def test_a_selection_without_unfinished_tasks_offers_nothing(superuser: Client) -> None:
    answer = superuser.get(f"{PAGE}?{refs(add('completed'), add('expired'))}")
    assert "There is nothing to cancel among these tasks." in text(answer)
    assert "<textarea" not in answer.content.decode()


# -- everything -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [None, "", "cancel", "CANCEL IT"])
def test_who_means_all_tasks_has_to_write_the_word(superuser: Client, word: str | None) -> None:
    add("running")
    answer = send(superuser, "everything=1", **({} if word is None else {"word": word}))
    assert answer.status_code == 200
    assert 'class="errorlist"' in answer.content.decode()
    assert cancelled() == 0


def test_with_the_word_all_unfinished_tasks_are_cancelled(superuser: Client) -> None:
    add_one_of_each()
    answer = send(superuser, "everything=1", word="CANCEL")
    assert counted(said(answer)) == {"Cancelled": 4}
    assert not Task.objects.filter(phase__in=("queued", "running", "parked")).exists()
    assert set(Task.objects.filter(phase="done").values_list("status", flat=True)) == {
        "completed",
        "failed",
        "cancelled",
    }


def test_filters_narrow_what_is_cancelled_and_need_no_word(superuser: Client) -> None:
    one, two = add("queued"), add("running")
    assert "write CANCEL" not in text(superuser.get(f"{PAGE}?everything=1&state=queued"))
    assert said(send(superuser, "everything=1&state=queued")) == "Cancelled 1 task."
    assert Task.objects.get(pk=one).status == "cancelled"
    assert Task.objects.get(pk=two).status == "working"


def test_tasks_that_are_created_after_the_page_was_opened_are_not_touched(superuser: Client) -> None:
    old = add("queued")
    query = query_of(superuser.get(f"{PAGE}?everything=1"))
    new = add("queued", age=-5)
    answer = superuser.post(PAGE, {"query": query, "reason": "all of them", "word": "CANCEL"}, follow=True)
    assert said(answer) == "Cancelled 1 task."
    assert Task.objects.get(pk=old).status == "cancelled"
    assert Task.objects.get(pk=new).status == "working"


@pytest.mark.usefixtures("_five_at_once")
def test_a_step_takes_the_oldest_and_the_next_goes_on_with_the_same_reason(superuser: Client) -> None:
    found = [add("queued", age=100 - number) for number in range(12)]
    first = superuser.get(f"{PAGE}?everything=1&state=queued")
    assert "5 tasks will be cancelled: 5 queued" in text(first)
    assert "More than 5 match. This step takes the oldest 5, and you can go on after it." in text(first)
    answer = superuser.post(PAGE, {"query": query_of(first), "reason": "too many of them"}, follow=True)
    assert answer.redirect_chain[0][0].startswith(PAGE)
    assert said(answer) == "Cancelled 5 tasks. More are left."
    assert set(Task.objects.filter(status="cancelled").values_list("pk", flat=True)) == set(found[:5])
    assert "Cancel the next 5" in text(answer)
    assert "too many of them</textarea>" in answer.content.decode()
    later = add("queued", age=-5)
    for expected in ("Cancelled 5 tasks. More are left.", "Cancelled 2 tasks."):
        answer = superuser.post(PAGE, {"query": query_of(answer), "reason": "too many of them"}, follow=True)
        assert said(answer) == expected
    assert answer.redirect_chain == [(LIST, 302)]
    assert cancelled() == 12
    assert Task.objects.get(pk=later).status == "working"
    assert bulk.SESSION_KEY not in superuser.session


@pytest.mark.usefixtures("_five_at_once")
def test_tasks_of_the_same_instant_are_neither_passed_over_nor_taken_twice(
    superuser: Client, configure: Callable[..., None]
) -> None:
    configure(OPERATOR={"POLICY": f"{__name__}.OddOnes"})
    now = datetime.now(UTC)
    refs = sorted(uuid4() for _ in range(13))
    # The last one is theirs to take: a page on which nothing is left to be done has no form to go on with.
    for number, ref in enumerate(refs):
        add("queued", ref=ref, created_at=now, tool="theirs" if number % 2 else "mine")
    page, totals = superuser.get(f"{PAGE}?everything=1&state=queued"), {"Cancelled": 0, "refused": 0}
    while 'name="query"' in page.content.decode():
        page = superuser.post(PAGE, {"query": query_of(page), "reason": "all of them"}, follow=True)
        for name, number in counted(said(page)).items():
            totals[name] += number
    assert totals == {"Cancelled": 7, "refused": 6}


class OddOnes(Policy):
    """Lets operators act on tasks of the tool ``mine`` only."""

    def may(self, request: Any, verb: str, task: Task) -> bool | str:
        return task.tool == "mine"


@pytest.mark.usefixtures("_five_at_once")
def test_tasks_that_are_not_theirs_keep_nobody_from_going_on(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": f"{__name__}.OddOnes"})
    for number in range(7):
        add("queued", age=100 - number, tool="theirs")
    mine = [add("queued", age=50 - number, tool="mine") for number in range(4)]
    page = superuser.get(f"{PAGE}?everything=1&state=queued")
    assert "5 are not yours to act on: they are left alone." in text(page)
    totals = {"Cancelled": 0, "refused": 0}
    for _step in range(5):
        answer = superuser.post(PAGE, {"query": query_of(page), "reason": "all of them"}, follow=True)
        for name, number in counted(said(answer)).items():
            totals[name] += number
        page = answer
        if not answer.redirect_chain[0][0].startswith(PAGE):
            break
    assert totals == {"Cancelled": 4, "refused": 7}
    assert set(Task.objects.filter(status="cancelled").values_list("pk", flat=True)) == set(mine)


# -- others at work ---------------------------------------------------------------------------------------------------


def test_counts_add_up_to_what_was_ticked(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": f"{__name__}.OddOnes"})
    ticked = [add("running", tool="mine") for _ in range(6)] + [add("running", tool="theirs") for _ in range(2)]
    ticked += [add("completed", tool="mine"), add("expired", tool="mine"), uuid4(), add("queued", tool="mine")]
    query = query_of(superuser.get(f"{PAGE}?{refs(*ticked)}"))
    get_store().complete_task(ticked[0], {"content": []})
    get_store().cancel_task(ticked[1])
    get_store().discard_task(ticked[-1])
    answer = superuser.post(PAGE, {"query": query, "reason": "all of them"}, follow=True)
    found = counted(said(answer))
    assert found == {"Cancelled": 4, "finished": 4, "refused": 2, "gone": 2}
    assert sum(found.values()) == len(ticked)


def test_counts_add_up_when_rows_finish_in_the_middle_of_it(superuser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ticked = [add("running") for _ in range(12)]
    store = get_store()
    real, calls = store.cancel, []

    def cancel(ref: UUID, **options: Any) -> Any:
        calls.append(ref)
        if len(calls) % 3 == 0:
            store.complete_task(ref, {"content": []})
        return real(ref, **options)

    monkeypatch.setattr(store, "cancel", cancel)
    found = counted(said(send(superuser, refs(*ticked))))
    assert found == {"Cancelled": 8, "finished": 4}
    assert LogEntry.objects.count() == cancelled() == 8


def clock(step: float) -> Callable[[], float]:
    """A clock that goes on by so many seconds each time somebody looks."""
    times: Iterator[float] = iter(number * step for number in range(10_000))
    return lambda: next(times)


@pytest.mark.parametrize("query", ["everything=1&state=queued", "ticked"])
def test_when_time_is_up_the_rest_can_be_gone_on_with(
    superuser: Client, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    found = [add("queued", age=100 - number) for number in range(10)]
    query = refs(*found) if query == "ticked" else query
    monkeypatch.setattr("mcp_tasks.operators.bulk.time", SimpleNamespace(monotonic=clock(5.0)))
    answer = send(superuser, query)
    assert said(answer).endswith("More are left.")
    assert counted(said(answer)) == {"Cancelled": 3}
    assert set(Task.objects.filter(status="cancelled").values_list("pk", flat=True)) == set(found[:3])
    monkeypatch.undo()
    answer = superuser.post(PAGE, {"query": query_of(answer), "reason": "the rest"}, follow=True)
    assert counted(said(answer))["Cancelled"] == 7


def test_bulk_works_where_every_request_is_a_transaction(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    ticked = [add("running"), add("queued")]
    assert said(send(root, refs(*ticked))) == "Cancelled 2 tasks."
    form = {"action": "cancel_selected", "_selected_action": [str(add("running"))]}
    assert "1 task will be cancelled" in text(root.post(LIST, form, follow=True))


# -- its cost ---------------------------------------------------------------------------------------------------------


def test_the_page_reads_no_payload_and_costs_the_same_for_many(
    superuser: Client, django_assert_max_num_queries: Any
) -> None:
    for number in (1, 60):
        ticked = [add("running") for _ in range(number)]
        with django_assert_max_num_queries(5) as seen:
            assert superuser.get(f"{PAGE}?{refs(*ticked)}").status_code == 200
        assert not [query for query in seen.captured_queries if "_json" in query["sql"].split("WHERE")[0]]


def test_the_time_of_the_look_is_the_databases(superuser: Client) -> None:
    answer = superuser.get(f"{PAGE}?everything=1&state=queued")
    assert urlsplit(answer.request["PATH_INFO"]).path == PAGE
    add("queued")
    answer = superuser.get(f"{PAGE}?everything=1&state=queued")
    as_of = datetime.fromisoformat(parse_qs(query_of(answer))["as_of"][0])
    assert abs(as_of - datetime.now(UTC)) < timedelta(seconds=5)
