"""What operators do to one task: done once, a repeat is 200, and every reason why not has its code."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mcp_tasks.models import Task, TaskEvent, TaskInput
from mcp_tasks.store import Unsupported, get_store
from mcp_tasks.store.types import Outcome
from mcp_tasks.testing import rewind
from mcp_tasks.transports.rest import verbs

from .api import Answer, Api, at
from .conftest import Tasks, row

pytestmark = pytest.mark.django_db

VERBS = ("cancel", "fail", "extend", "requeue", "dismiss-inputs", "delete")


@pytest.fixture(autouse=True)
def _dismissing(configure: Callable[..., None]) -> None:
    configure(OPERATOR={"DISMISS_INPUT": True})


def fitting(tasks: Tasks, verb: str) -> UUID:
    """A task that the verb can be used on."""
    make: dict[str, Callable[[], UUID]] = {
        "cancel": tasks.running,
        "fail": tasks.parked,
        "extend": tasks.queued,
        "requeue": tasks.stalled,
        "dismiss-inputs": tasks.parked,
        "delete": tasks.completed,
    }
    return make[verb]()


def later(ref: UUID, **by: float) -> dict[str, str]:
    task = row(ref)
    assert task.expires_at is not None
    return {"expires_at": at(task.expires_at + timedelta(**by))}


def order_for(verb: str, ref: UUID, **more: Any) -> dict[str, Any]:
    return {**(later(ref, hours=1) if verb == "extend" else {}), **more}


# -- done ---------------------------------------------------------------------------------------------------------


def test_a_cancelled_task_tells_its_client_the_reason_unless_it_is_kept(root: Api, tasks: Tasks, boss: int) -> None:
    shared, kept = tasks.running(), tasks.queued()
    found = root.do("cancel", shared, reason="  it runs away ").json
    assert (found["state"], found["status_message"], found["verbs"]) == ("cancelled", "it runs away", ["delete"])
    assert found["is_still_stopping"] is True
    assert root.do("cancel", kept, share_reason=False).json["status_message"] is None
    event = TaskEvent.objects.filter(task_id=shared).latest("id")
    assert (event.actor, event.detail) == (f"operator:{boss}", '{"reason":"it runs away"}')


def test_a_failed_task_tells_its_client_the_reason_only_when_asked(root: Api, tasks: Tasks) -> None:
    neutral, shared = tasks.parked(), tasks.stalled()
    assert "mine alone" not in root.do("fail", neutral, reason="mine alone").json["status_message"]
    found = root.do("fail", shared, reason="the disk is full", share_reason=True).json
    assert (found["state"], found["status_message"]) == ("failed", "the disk is full")


def test_an_extended_task_is_kept_until_then(root: Api, tasks: Tasks) -> None:
    ref = tasks.queued()
    until = later(ref, hours=1)["expires_at"]
    kept = root.do("extend", ref, expires_at=until).json["expires_at"]
    assert timedelta(0) <= datetime.fromisoformat(until) - datetime.fromisoformat(kept) <= timedelta(milliseconds=1)


def test_a_stalled_task_is_queued_again(root: Api, tasks: Tasks) -> None:
    found = root.do("requeue", tasks.stalled()).json
    assert (found["state"], found["worker"]) == ("queued", None)


def test_dismissed_questions_are_answered_with_cancel(root: Api, tasks: Tasks) -> None:
    ref = tasks.parked("a", "b")
    assert root.do("dismiss-inputs", ref).json["state"] == "queued"
    answers = TaskInput.objects.filter(task_id=ref).values_list("state", "answer_json")
    assert set(answers) == {("answered", '{"action":"cancel"}')}


def test_a_deleted_task_is_gone(root: Api, tasks: Tasks) -> None:
    ref = tasks.completed()
    answer = root.do("delete", ref, revision=row(ref).revision)
    assert (answer.status, answer.body) == (204, b"")
    assert not Task.objects.filter(pk=ref).exists()
    assert root.do("delete", ref).said == (404, "not_found")


# -- repeats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_revision", [True, False])
@pytest.mark.parametrize("verb", VERBS[:-1])
def test_a_repeat_is_two_hundred_and_changes_nothing(root: Api, tasks: Tasks, verb: str, with_revision: bool) -> None:
    ref = fitting(tasks, verb)
    order = order_for(verb, ref, **({"revision": row(ref).revision} if with_revision else {}))
    first = root.do(verb, ref, **order)
    events = TaskEvent.objects.count()
    second = root.do(verb, ref, **order)
    assert (first.status, second.status) == (200, 200)
    assert second.json["revision"] == first.json["revision"]
    assert TaskEvent.objects.count() == events


@pytest.mark.parametrize("verb", ["requeue", "dismiss-inputs", "extend"])
def test_a_repeat_with_its_revision_is_recognised_after_the_task_went_on(root: Api, tasks: Tasks, verb: str) -> None:
    ref = fitting(tasks, verb)
    order = order_for(verb, ref, revision=row(ref).revision)
    assert root.do(verb, ref, **order).status == 200
    get_store().claim(ref)
    get_store().set_status(ref, "on and on", leg=row(ref).leg)
    assert root.do(verb, ref, **order).status == 200
    get_store().complete_task(ref, Tasks.result)
    assert root.do(verb, ref, **order).status == 200


def test_what_another_operator_did_is_no_repeat(root: Api, staff: Callable[..., Api], tasks: Tasks) -> None:
    ref = tasks.stalled()
    revision = row(ref).revision
    assert root.do("requeue", ref, revision=revision).status == 200
    get_store().claim(ref)
    other = staff("view_task", "requeue_task")
    assert other.do("requeue", ref, revision=revision).said == (409, "not_applicable")


# -- not done -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["cancel", "fail", "extend", "requeue", "dismiss-inputs"])
def test_a_finished_task_does_not_change(root: Api, tasks: Tasks, verb: str) -> None:
    ref = tasks.completed()
    before = row(ref).revision
    answer = root.do(verb, ref, **order_for(verb, ref))
    assert answer.said == (409, "already_finished")
    assert answer.json["task_status"] == "completed"
    assert row(ref).revision == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_task_that_changed_since_is_left_alone(root: Api, tasks: Tasks, verb: str) -> None:
    ref = fitting(tasks, verb)
    now = row(ref).revision
    answer = root.do(verb, ref, **order_for(verb, ref, revision=now + 5))
    assert answer.said == (409, "revision_conflict")
    assert answer.json["revision"] == now
    assert row(ref).revision == now


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        *(("fail", state) for state in ("queued", "running")),
        *(("requeue", state) for state in ("running", "parked")),
        *(("dismiss-inputs", state) for state in ("queued", "running", "stalled")),
        *(("delete", state) for state in ("queued", "running", "stalled", "parked")),
    ],
)
def test_a_verb_that_makes_no_sense_now_is_refused(root: Api, tasks: Tasks, verb: str, state: str) -> None:
    ref = getattr(tasks, state)()
    before = row(ref).revision
    answer = root.do(verb, ref)
    assert answer.said == (409, "not_applicable")
    assert answer.json["state"] == ("needs-input" if state == "parked" else state)
    assert row(ref).revision == before


def test_what_only_a_human_may_dismiss_is_a_form(root: Api, tasks: Tasks) -> None:
    assert root.do("dismiss-inputs", tasks.parked(ask={"method": "roots/list"})).said == (409, "not_applicable")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("swept", [True, False])
def test_an_expired_task_is_not_there(root: Api, tasks: Tasks, verb: str, swept: bool) -> None:
    ref = tasks.queued(ttl_ms=10_000)
    rewind(ref, 11)
    if swept:
        get_store().expire()
    assert root.do(verb, ref, **order_for(verb, ref)).said == (404, "not_found")


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("terminal", (409, "not_applicable")),
        ("changed", (409, "revision_conflict")),
        ("not_applicable", (409, "not_applicable")),
        ("expired", (409, "not_applicable")),
    ],
)
def test_a_store_that_will_not_is_believed(
    root: Api, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, why: Any, said: tuple[int, str]
) -> None:
    monkeypatch.setattr(verbs, "act", lambda *_: Outcome(False, why))
    assert root.do("cancel", tasks.queued()).said == said


def test_a_store_without_verbs_says_so(root: Api, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> Any:
        raise Unsupported("this store has no verbs for operators")

    monkeypatch.setattr(verbs, "act", unsupported)
    assert root.do("cancel", tasks.queued()).said == (409, "not_applicable")


def test_a_task_that_finishes_meanwhile_is_already_finished(
    root: Api, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = tasks.running()

    def late(request: Any, task: Any, order: Any, act: Any = verbs.act) -> Outcome:
        get_store().complete_task(ref, Tasks.result, leg=1)
        return act(request, task, order)  # type: ignore[no-any-return]

    monkeypatch.setattr(verbs, "act", late)
    assert root.do("cancel", ref).said == (409, "already_finished")
    assert row(ref).status == "completed"


def test_a_task_that_is_deleted_meanwhile_is_gone(root: Api, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = tasks.completed()

    def late(request: Any, task: Any, order: Any, act: Any = verbs.act) -> Outcome:
        Task.objects.filter(pk=ref).delete()
        return act(request, task, order)  # type: ignore[no-any-return]

    monkeypatch.setattr(verbs, "act", late)
    assert root.do("delete", ref).said == (404, "not_found")


def test_another_operator_who_was_faster_with_the_same_is_no_conflict(
    root: Api, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = tasks.running()

    def late(request: Any, task: Any, order: Any, act: Any = verbs.act) -> Outcome:
        get_store().cancel(ref, actor="operator:999", reason="me first")
        return act(request, task, order)  # type: ignore[no-any-return]

    monkeypatch.setattr(verbs, "act", late)
    answer = root.do("cancel", ref, reason="me too")
    assert (answer.status, answer.json["status_message"]) == (200, "me first")


# -- wrong orders -------------------------------------------------------------------------------------------------


def invalid(answer: Answer) -> list[str]:
    assert answer.said == (400, "invalid"), answer.body
    return answer.fields


@pytest.mark.parametrize(
    ("order", "fields"),
    [
        ({"reason": "no"}, ["reason"]),
        ({"reason": "  no  "}, ["reason"]),
        ({"reason": ""}, ["reason"]),
        ({"reason": None}, ["reason"]),
        ({"reason": "x" * 501}, ["reason"]),
        ({"reason": "turned \u202e around"}, ["reason"]),
        ({"reason": "two\nlines"}, ["reason"]),
        ({"reason": "nul\x00"}, ["reason"]),
        ({"reason": {"a": 1}}, ["reason"]),
        ({"revision": 0}, ["revision"]),
        ({"revision": "two"}, ["revision"]),
        ({"revision": 2**63}, ["revision"]),
        ({"revision": 1.5}, ["revision"]),
        ({"share_reason": "perhaps"}, ["share_reason"]),
        ({"shareReason": False}, ["shareReason"]),
        ({"expires_at": "2036-01-31T12:00:00Z"}, ["expires_at"]),
    ],
)
def test_a_wrong_order_names_what_is_wrong_and_does_nothing(
    root: Api, tasks: Tasks, order: dict[str, Any], fields: list[str]
) -> None:
    ref = tasks.queued()
    assert invalid(root.do("cancel", ref, **order)) == fields
    assert row(ref).status == "working"


@pytest.mark.parametrize("body", [None, [], "x", 7, [{"reason": "for a test"}]])
def test_an_order_is_an_object(root: Api, tasks: Tasks, body: Any) -> None:
    ref = tasks.queued()
    assert root.post(f"operator/tasks/{ref}/cancel/", body).said == (400, "invalid")
    assert row(ref).status == "working"


@pytest.mark.parametrize(
    "until",
    ["soon", None, "2036-01-31", "2036-01-31T12:00:00", "2020-01-31T12:00:00Z", "2036-01-31T12:00:00Z", 7],
)
def test_a_time_that_is_none_or_too_short_or_too_long_is_refused(root: Api, tasks: Tasks, until: Any) -> None:
    ref = tasks.queued()
    assert invalid(root.do("extend", ref, expires_at=until)) == ["expires_at"]


def test_only_what_settles_can_share_its_reason(root: Api, tasks: Tasks) -> None:
    assert invalid(root.do("requeue", tasks.stalled(), share_reason=True)) == ["share_reason"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"reason": "no"}, (400, "invalid")),
        ({"revision": "x"}, (400, "invalid")),
        ({"share_reason": "1"}, (400, "invalid_filter")),
        ({"reason": ["for a test", "for another"]}, (400, "invalid_filter")),
    ],
)
def test_a_deletion_takes_its_reason_from_the_query(
    root: Api, tasks: Tasks, query: dict[str, Any], said: tuple[int, str]
) -> None:
    ref = tasks.completed()
    assert root.do("delete", ref, **query).said == said
    assert root.send("DELETE", f"operator/tasks/{ref}/").fields == ["reason"]
    assert Task.objects.filter(pk=ref).exists()


def test_no_query_parameter_is_taken_for_an_order(root: Api, tasks: Tasks) -> None:
    ref = tasks.queued()
    answer = root.post(f"operator/tasks/{ref}/cancel/?reason=abc", {"reason": "for a test"})
    assert answer.said == (400, "invalid_filter")
    assert row(ref).status == "working"


# -- what is noted ------------------------------------------------------------------------------------------------


def test_the_audit_log_says_who_and_what_but_not_why(
    root: Api, tasks: Tasks, boss: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcp_tasks.operator")
    ref = tasks.queued()
    root.do("cancel", ref, reason="because of Mrs Smith")
    records: list[Any] = [it for it in caplog.records if it.name == "mcp_tasks.operator"]
    assert [(it.code, it.actor, it.ref) for it in records] == [("ok", f"operator:{boss}", str(ref))]
    assert "Smith" not in str([vars(it) for it in records])
