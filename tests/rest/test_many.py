"""Look-up, bulk cancel, overview, processes."""

import logging
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client

from mcp_tasks.dbtime import current
from mcp_tasks.models import Process, Task, TaskEvent
from mcp_tasks.operators import bulk as bulk_module
from mcp_tasks.store import get_store
from mcp_tasks.store.types import Outcome
from mcp_tasks.testing import rewind
from mcp_tasks.transports.rest import many
from tests.store.statements import counted

from .api import Answer, Api, at
from .conftest import ALICE, Tasks, row, user

pytestmark = pytest.mark.django_db

REASON = {"reason": "for a test"}


# -- look-up ------------------------------------------------------------------------------------------------------


def test_an_id_leads_to_its_reference_and_reaches_no_log(
    root: Api, tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = tasks.made()
    assert root.post("operator/lookup/", {"task_id": made.task_id}).json == {"ref": str(made.ref)}
    unknown = [root.post("operator/lookup/", {"task_id": text}) for text in ("A" * 43, "x", str(made.ref), "nul'\"")]
    assert {answer.said for answer in unknown} == {(404, "not_found")}
    assert len({answer.body for answer in unknown}) == 1
    records: list[Any] = [record for record in caplog.records if record.name == "mcp_tasks.operator"]
    assert [(it.event, it.code) for it in records] == [("lookup", "hit"), *[("lookup", "miss")] * 4]
    logged = "".join(str(vars(record)) for record in caplog.records if record.name.startswith("mcp_tasks"))
    assert not any(text in logged for text in (made.task_id, "A" * 43, "nul'"))


@pytest.mark.parametrize("body", [None, {}, [], {"task_id": 7.5}, {"task_id": None}, {"task_id": ""}, {"id": "A" * 43}])
def test_a_look_up_that_asks_nothing_is_refused_without_an_echo(root: Api, body: Any) -> None:
    answer = root.post("operator/lookup/", body)
    assert answer.status in (400, 404)
    assert b"AAAA" not in answer.body


def test_an_id_in_the_address_is_refused(root: Api) -> None:
    answer = root.post("operator/lookup/?task_id=" + "A" * 43, {"task_id": "A" * 43})
    assert answer.said == (400, "invalid_filter")
    assert b"AAAA" not in answer.body


# -- bulk ---------------------------------------------------------------------------------------------------------


def bulk(api: Api, **order: Any) -> Answer:
    return api.post("operator/bulk-cancel/", {"filter": {"state": "live"}, **REASON, **order})


def counts(answer: Answer) -> tuple[int, int, int, bool]:
    found = answer.json
    assert answer.status == 200, found
    assert set(found) == {"cancelled", "finished_meanwhile", "refused", "more", "as_of", "dry_run"}
    return found["cancelled"], found["finished_meanwhile"], found["refused"], found["more"]


def test_what_matches_is_cancelled_and_nothing_else(root: Api, tasks: Tasks, boss: int) -> None:
    wanted = [tasks.queued(tool="add"), tasks.running(tool="add")]
    other, done = tasks.queued(), tasks.completed()
    assert counts(bulk(root, filter={"tool": ["add"]}, reason="they run away")) == (2, 0, 0, False)
    assert {row(ref).status for ref in wanted} == {"cancelled"}
    assert {row(ref).status_message for ref in wanted} == {"they run away"}
    assert (row(other).status, row(done).status) == ("working", "completed")
    assert {TaskEvent.objects.filter(task_id=ref).latest("id").actor for ref in wanted} == {f"operator:{boss}"}


def test_the_reason_is_kept_from_clients_when_asked(root: Api, tasks: Tasks) -> None:
    ref = tasks.queued()
    bulk(root, share_reason=False)
    assert row(ref).status_message is None


def test_a_dry_run_only_counts(root: Api, tasks: Tasks) -> None:
    refs = [tasks.queued() for _ in range(3)]
    answer = bulk(root, dry_run=True, limit=2)
    assert counts(answer) == (2, 0, 0, True)
    assert answer.json["dry_run"] is True
    assert {row(ref).status for ref in refs} == {"working"}


def test_the_oldest_come_first_and_the_rest_may_follow(root: Api, tasks: Tasks) -> None:
    refs = [tasks.queued() for _ in range(5)]
    for index, ref in enumerate(refs):
        rewind(ref, 100 + index)
    first = bulk(root, limit=2)
    assert counts(first) == (2, 0, 0, True)
    assert [row(ref).status for ref in refs] == ["working"] * 3 + ["cancelled"] * 2
    assert counts(bulk(root, limit=3, as_of=first.json["as_of"])) == (3, 0, 0, False)
    assert counts(bulk(root)) == (0, 0, 0, False)


def test_what_was_created_later_is_never_swept_in(root: Api, tasks: Tasks) -> None:
    old = tasks.queued()
    rewind(old, 10)
    as_of = bulk(root, dry_run=True).json["as_of"]
    rewind(old, 10)
    new = tasks.queued()
    Task.objects.filter(pk=new).update(created_at=current("default") + timedelta(seconds=5))
    assert counts(bulk(root, as_of=as_of)) == (1, 0, 0, False)
    assert counts(bulk(root, as_of="2036-01-01T00:00:00Z")) == (0, 0, 0, False)
    assert row(new).status == "working"


def test_a_moment_is_all_of_its_millisecond(root: Api, tasks: Tasks) -> None:
    # SQLite compares times as text, and Django writes a whole second without its zeros.
    ref = tasks.queued()
    second = (row(ref).created_at - timedelta(seconds=60)).replace(microsecond=0)
    with connection.cursor() as cursor:
        written = f"{second:%Y-%m-%d %H:%M:%S}.000000" + ("" if connection.vendor == "sqlite" else "+00:00")
        cursor.execute("UPDATE mcp_tasks_task SET created_at = %s", [written])
    assert counts(bulk(root, as_of=at(second - timedelta(milliseconds=1)))) == (0, 0, 0, False)
    answer = bulk(root, as_of=at(second))
    assert counts(answer) == (1, 0, 0, False)
    assert answer.json["as_of"] == at(second)


def test_what_the_policy_keeps_is_counted_and_does_not_stand_in_the_way(root: Api, tasks: Tasks, policy: None) -> None:
    kept = [tasks.queued(tool="kept") for _ in range(5)]
    for ref in kept:
        rewind(ref, 100)
    refs = [tasks.queued() for _ in range(3)]
    assert counts(bulk(root, limit=2)) == (2, 0, 5, True)
    assert counts(bulk(root, limit=2)) == (1, 0, 5, False)
    assert {row(ref).status for ref in refs} == {"cancelled"}
    assert {row(ref).status for ref in kept} == {"working"}


def test_a_search_among_what_is_kept_has_an_end(
    root: Api, tasks: Tasks, policy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "_MOST_LOOKED_AT", 4)
    for _ in range(6):
        tasks.queued(tool="kept")
    assert counts(bulk(root, limit=1)) == (0, 0, 4, True)


def test_what_others_did_meanwhile_is_counted(root: Api, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    refs = [tasks.queued() for _ in range(4)]
    for index, ref in enumerate(refs):
        rewind(ref, 100 - index)
    store, original = get_store(), get_store().cancel
    reasons = iter([None, "terminal", "gone", "not_applicable"])

    def cancel(ref: Any, **options: Any) -> Outcome:
        why: Any = next(reasons)
        return original(ref, **options) if why is None else Outcome(False, why)

    monkeypatch.setattr(store, "cancel", cancel)
    assert counts(bulk(root)) == (1, 2, 1, False)


def test_a_request_ends_when_its_time_is_up(root: Api, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(refs: Any, **options: Any) -> Any:
        return bulk_module.cancel_all(refs, **options, most_seconds=0)

    monkeypatch.setattr(many, "cancel_all", none)
    tasks.queued()
    assert counts(bulk(root)) == (0, 0, 0, True)


@pytest.mark.parametrize(
    ("order", "code", "fields"),
    [
        ({"filter": {}}, "invalid", ["filter"]),
        ({"filter": None}, "invalid", ["filter"]),
        ({"filter": "live"}, "invalid", ["filter"]),
        ({"filter": {"stat": "live"}}, "invalid_filter", ["stat"]),
        ({"filter": {"state": "live", "creaed_before": "2026-01-01T00:00:00Z"}}, "invalid_filter", ["creaed_before"]),
        ({"filter": {"state": "alive"}}, "invalid_filter", ["state"]),
        ({"filter": {"state": None}}, "invalid_filter", ["state"]),
        ({"filter": {"state": ["live", "queued"]}}, "invalid_filter", ["state"]),
        ({"filter": {"tool": []}}, "invalid_filter", ["tool"]),
        ({"filter": {"tool": [1]}}, "invalid_filter", ["tool"]),
        ({"filter": {"created_before": 5}}, "invalid_filter", ["created_before"]),
        ({"filter": {"limit": "5"}}, "invalid_filter", ["limit"]),
        ({"reason": "x"}, "invalid", ["reason"]),
        ({"reason": None}, "invalid", ["reason"]),
        ({"limit": 0}, "invalid", ["limit"]),
        ({"limit": 501}, "invalid", ["limit"]),
        ({"as_of": "now"}, "invalid", ["as_of"]),
        ({"dry_run": "perhaps"}, "invalid", ["dry_run"]),
        ({"dryRun": True}, "invalid", ["dryRun"]),
    ],
)
def test_an_order_that_could_mean_more_than_was_meant_is_refused(
    root: Api, tasks: Tasks, order: dict[str, Any], code: str, fields: list[str]
) -> None:
    ref = tasks.queued()
    answer = bulk(root, **order)
    assert answer.said == (400, code)
    assert answer.fields == fields
    assert row(ref).status == "working"


def test_a_filter_must_be_given(root: Api, tasks: Tasks) -> None:
    ref = tasks.queued()
    assert root.post("operator/bulk-cancel/", REASON).fields == ["filter"]
    assert root.post("operator/bulk-cancel/?state=live", REASON).said == (400, "invalid_filter")
    assert row(ref).status == "working"


# -- overview and processes ---------------------------------------------------------------------------------------


def process(name: str, kind: str, seconds: float, **more: Any) -> None:
    seen = current("default") - timedelta(seconds=seconds)
    Process.objects.create(name=name, kind=kind, host="web-1", pid=7, started_at=seen, seen_at=seen, **more)


def test_the_overview_has_the_numbers_of_its_page(root: Api, tasks: Tasks) -> None:
    queued, stalled = tasks.queued(), tasks.stalled()
    tasks.running(tool="add", owner=None)
    parked = tasks.parked()
    tasks.completed()
    tasks.cancelled()
    process("web-1:7", "web", 1, slots=4, busy=1, info='{"version": "1"}')
    found = root.get("operator/overview/").json
    assert set(found) == {
        *("at", "live", "ended", "hours", "tools", "owners", "oldest_queued", "stalled", "processes"),
    }
    assert found["live"] == {
        "queued": 1,
        "running": 1,
        "needs_input": 1,
        "stalled": 1,
        "expire_soon": 0,
        "oldest_queued_at": at(row(queued).phase_at),
        "oldest_input_at": at(row(parked).phase_at),
    }
    ended = found["ended"]
    assert (ended["count"], ended["completed"], ended["cancelled"], ended["failed_share"]) == (2, 1, 1, 0.0)
    assert len(found["hours"]) == 24
    assert [hour["hour"] for hour in found["hours"]] == sorted(hour["hour"] for hour in found["hours"])
    assert sum(hour["count"] for hour in found["hours"]) == 2
    assert [(tool["tool"], tool["count"]) for tool in found["tools"]] == [("echo", 2)]
    alice = {"key": ALICE.key, "label": "alice@example.com"}
    assert found["owners"] == [{"owner": alice, "live": 3}, {"owner": None, "live": 1}]
    assert [task["ref"] for task in found["oldest_queued"]] == [str(queued)]
    assert [task["ref"] for task in found["stalled"]] == [str(stalled)]
    assert [it["name"] for it in found["processes"]] == ["web-1:7"]


def test_the_overview_of_nothing_is_all_zeros(root: Api) -> None:
    found = root.get("operator/overview/", hours=1).json
    assert found["live"]["oldest_queued_at"] is None
    assert (found["ended"]["count"], found["ended"]["failed_share"], found["ended"]["p95_seconds"]) == (0, None, None)
    assert (len(found["hours"]), found["tools"], found["owners"], found["processes"]) == (1, [], [], [])


@pytest.mark.parametrize("hours", ["0", "169", "x", "-1", "1.5"])
def test_the_overview_reaches_back_a_week_at_most(root: Api, hours: str) -> None:
    answer = root.get("operator/overview/", hours=hours)
    assert (answer.said, answer.fields) == ((400, "invalid_filter"), ["hours"])


def test_the_overview_of_a_week_has_every_hour(root: Api) -> None:
    assert len(root.get("operator/overview/", hours=168).json["hours"]) == 168


def test_the_overview_takes_nine_statements_however_many_tasks_there_are(tasks: Tasks) -> None:
    client = Client()
    client.force_login(user("clara", is_superuser=True))
    api, numbers = Api(client=client), []
    process("web-1:7", "web", 1)
    for number in (1, 30):
        for _ in range(number):
            tasks.queued(owner=type(ALICE)(("issuer", uuid4().hex)))
            tasks.completed()
        with counted() as statements:
            api.get("operator/overview/")
        numbers.append(len(statements))
        assert not any("_json" in text or "traceback" in text for text in statements)
    assert numbers[0] == numbers[1] <= 9


def test_processes_say_when_they_were_heard_of(root: Api) -> None:
    process("a", "worker", 59, slots=4, busy=2, info="no JSON")
    process("b", "web", 61)
    process("c", "janitor", 299)
    process("d", "janitor", 301)
    found = root.get("operator/processes/").json["results"]
    assert [(it["name"], it["is_silent"]) for it in found] == [("a", False), ("b", True), ("c", False), ("d", True)]
    assert (found[0]["slots"], found[0]["busy"], found[0]["info"]) == (4, 2, {})
