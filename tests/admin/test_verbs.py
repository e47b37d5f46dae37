"""What operators do to one task: said before, done once, never to a task that is not what they looked at."""

import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client

from mcp_tasks.admin import detail, verbs
from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.store import get_store
from mcp_tasks.testing.timetravel import rewind

from .rows import add
from .test_detail import FORM, create, run, words

ROOT = "/admin/mcp_tasks/task/"
LOST = "The task changed while you were reading: it is now “{}”. Nothing was done."


def body(answer: Any) -> str:
    """The text of a page."""
    return str(answer.content.decode())


def revision(client: Client, ref: UUID, verb: str) -> str:
    """The revision that a confirmation page holds."""
    [found] = re.findall(r'name="revision" value="(\d+)"', body(client.get(f"{ROOT}{ref}/{verb}/")))
    return str(found)


def order(client: Client, ref: UUID, verb: str, *, follow: bool = True, **given: Any) -> Any:
    """Open the confirmation page, fill it in, and send it."""
    form = {"reason": "somebody asked for it", "revision": None, **given}
    if form["revision"] is None:
        form["revision"] = revision(client, ref, verb)
    return client.post(f"{ROOT}{ref}/{verb}/", form, follow=follow)


def stalled(**options: Any) -> UUID:
    """A task whose worker is gone."""
    ref = create(**options)
    run(ref)
    rewind(ref, 120)
    return ref


def parked() -> UUID:
    """A task that waits for two answers, one of them of a human."""
    ref = create()
    asks = {"approval": FORM, "sample": {"method": "sampling/createMessage", "params": {}}}
    get_store().require_input(ref, asks, leg=run(ref))
    return ref


def done(ref: UUID) -> UUID:
    """It has its result."""
    get_store().complete_task(ref, {"content": []})
    return ref


def row(ref: UUID) -> Task:
    """A task as it is now."""
    return Task.objects.get(pk=ref)


def last_event(ref: UUID) -> tuple[str, str, str]:
    """Kind, actor and detail of the newest entry of the timeline."""
    event = TaskEvent.objects.filter(task_id=ref).order_by("-id")[0]
    return event.kind, event.actor, event.detail or ""


# -- what each of them does -------------------------------------------------------------------------------------------


def test_cancel_says_what_it_means_and_does_it(superuser: Client) -> None:
    ref = create()
    run(ref)
    page = body(superuser.get(f"{ROOT}{ref}/cancel/"))
    assert "web-2:870 is told to stop" in page
    assert "<strong>not undone</strong>" in page
    assert "This cannot be taken back." in page
    assert 'name="share_reason" id="id_share_reason" checked' in page
    answer = order(superuser, ref, "cancel", reason="  a runaway job  ", share_reason="on")
    assert answer.redirect_chain == [(f"{ROOT}{ref}/#title", 302)]
    assert "Cancelled. The worker has been told to stop." in body(answer)
    assert (row(ref).status, row(ref).status_message) == ("cancelled", "a runaway job")
    kind, actor, detail = last_event(ref)
    assert (kind, detail) == ("cancelled", '{"reason":"a runaway job"}')
    assert re.fullmatch(r"operator:\d+", actor)
    assert "root · “a runaway job”" in words(superuser, ref)


def test_a_reason_that_is_not_shared_stays_among_operators(superuser: Client) -> None:
    ref = create()
    order(superuser, ref, "cancel", reason="they do not pay")
    assert row(ref).status_message is None
    assert "they do not pay" in last_event(ref)[2]


def test_mark_failed_gives_the_client_the_generic_text_unless_the_reason_is_shared(superuser: Client) -> None:
    kept, told = stalled(), stalled()
    assert "checked" not in body(superuser.get(f"{ROOT}{kept}/fail/"))
    assert "Marked failed." in body(order(superuser, kept, "fail", reason="our disk is full"))
    order(superuser, told, "fail", reason="our disk is full", share_reason="on")
    assert row(kept).status == row(told).status == "failed"
    assert "our disk is full" not in (row(kept).error_json or "")
    assert "our disk is full" in (row(told).error_json or "")


def test_queue_again_says_which_try_comes_next(superuser: Client) -> None:
    ref = stalled(max_attempts=3)
    assert "as try 2 of 3" in body(superuser.get(f"{ROOT}{ref}/requeue/"))
    assert "Queued again as try 2 of 3." in body(order(superuser, ref, "requeue"))
    assert (row(ref).phase, row(ref).attempts) == ("queued", 1)


def test_a_task_whose_tries_are_used_up_can_be_queued_again_as_its_last_one(superuser: Client) -> None:
    ref = stalled(max_attempts=1)
    assert "Queued again as try 1 of 1." in body(order(superuser, ref, "requeue"))
    assert get_store().claim(ref) is not None


def test_dismissing_answers_the_questions_for_humans_only(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"DISMISS_INPUT": True})
    ref = parked()
    assert "its question was cancelled" in body(superuser.get(f"{ROOT}{ref}/dismiss/"))
    assert "Dismissed 1 question." in body(order(superuser, ref, "dismiss"))
    assert set(get_store().outstanding_input_requests(ref) or {}) == {"sample"}


def test_deleting_removes_a_finished_task_and_goes_to_the_list(superuser: Client) -> None:
    ref = done(create())
    answer = order(superuser, ref, "delete")
    assert answer.redirect_chain == [(ROOT, 302)]
    assert "Deleted." in body(answer)
    assert not Task.objects.filter(pk=ref).exists()
    assert superuser.get(f"{ROOT}{ref}/").status_code == 404
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id) == (DELETION, str(ref))


# -- time to live -----------------------------------------------------------------------------------------------------


def times(client: Client, ref: UUID) -> list[str]:
    """The times that the page offers."""
    return re.findall(r'type="radio" name="until" value="(\w+)"', body(client.get(f"{ROOT}{ref}/extend/")))


def test_only_longer_times_within_the_settings_are_offered(superuser: Client, configure: Callable[..., None]) -> None:
    assert times(superuser, create(ttl_ms=60_000)) == ["1h", "6h", "1d", "most"]
    assert times(superuser, create(ttl_ms=7_200_000)) == ["6h", "1d", "most"]
    configure(MAX_TTL_MS=None)
    assert times(superuser, create(ttl_ms=60_000)) == ["1h", "6h", "1d", "7d"]


@pytest.mark.parametrize(("name", "hours"), [("1h", 1), ("6h", 6), ("1d", 24), ("most", 168)])
def test_a_task_is_kept_as_long_as_was_chosen(superuser: Client, name: str, hours: int) -> None:
    ref = create(ttl_ms=60_000)
    assert "Expires " in body(order(superuser, ref, "extend", until=name))
    expires_at = row(ref).expires_at
    assert expires_at is not None
    assert abs(expires_at - datetime.now(UTC) - timedelta(hours=hours)) < timedelta(seconds=30)
    assert last_event(ref)[0] == "ttl"


@pytest.mark.parametrize("until", [None, "", "1h", "2099-01-01", "never"])
def test_no_other_time_is_taken(superuser: Client, until: str | None) -> None:
    ref = create(ttl_ms=7_200_000)
    answer = order(superuser, ref, "extend", **({} if until is None else {"until": until}))
    assert answer.status_code == 200
    assert "errorlist" in body(answer)
    assert row(ref).ttl_ms == 7_200_000


def test_a_task_that_is_kept_as_long_as_can_be_says_so(superuser: Client) -> None:
    ref = create(ttl_ms=604_800_000)
    page = body(superuser.get(f"{ROOT}{ref}/extend/"))
    assert "It is kept as long as this server allows already." in page
    assert "Extend its time</button>" not in page


def test_a_task_without_a_ttl_has_nothing_to_extend(superuser: Client, configure: Callable[..., None]) -> None:
    configure(MAX_TTL_MS=None)
    ref = create(ttl_ms=None)
    assert "It is kept without end." in body(superuser.get(f"{ROOT}{ref}/extend/"))
    assert order(superuser, ref, "extend", until="6h").status_code == 200
    assert row(ref).ttl_ms is None


# -- reasons ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "  ",
        "no",
        "x" * 501,
        "bell\x07here",
        "turned \u202eround",
        "hidden\u200btext",
        "nul\0here",
        "\u2028ab\u2028cd",
    ],
)
def test_a_reason_that_says_nothing_or_disguises_itself_does_nothing(superuser: Client, reason: str) -> None:
    ref = create()
    answer = order(superuser, ref, "cancel", reason=reason)
    assert answer.status_code == 200
    page = body(answer)
    assert 'aria-invalid="true"' in page
    assert 'class="errorlist"' in page
    assert row(ref).status == "working"


@pytest.mark.parametrize(
    ("reason", "kept"), [("yes", "yes"), ("é" * 500, "é" * 500), ("one\r\ntwo\nthree", "one two three")]
)
def test_a_reason_may_be_short_long_or_on_several_lines(superuser: Client, reason: str, kept: str) -> None:
    ref = create()
    order(superuser, ref, "cancel", reason=reason, share_reason="on")
    assert row(ref).status_message == kept


def test_what_was_written_is_still_there_when_something_was_wrong(superuser: Client) -> None:
    ref = create()
    page = body(order(superuser, ref, "extend", reason="for the <audit>"))
    assert "for the &lt;audit&gt;</textarea>" in page


# -- somebody else was there ------------------------------------------------------------------------------------------


def test_the_second_of_two_operators_on_one_page_sees_that_it_changed(operator: Callable[..., Client]) -> None:
    first = operator("view_task", "extend_task", name="first")
    second = operator("view_task", "cancel_task", name="second")
    ref = create(ttl_ms=60_000)
    seen = revision(second, ref, "cancel")
    order(first, ref, "extend", until="6h")
    answer = order(second, ref, "cancel", revision=seen, reason="my own reason")
    assert answer.status_code == 409
    page = body(answer)
    assert LOST.format("Queued") in page
    assert 'role="alert"' in page
    assert "my own reason</textarea>" in page
    assert "checked" not in page.split('name="share_reason"')[1].split(">")[0]
    assert row(ref).status == "working"
    [current] = re.findall(r'name="revision" value="(\d+)"', page)
    order(second, ref, "cancel", revision=current)
    assert row(ref).status == "cancelled"


# -- a run that tells of its progress ---------------------------------------------------------------------------------


def held(client: Client, ref: UUID, verb: str) -> dict[str, str]:
    """All that a confirmation page holds, as a browser sends it."""
    return dict(re.findall(r'name="(revision|run)" value="([^"]*)"', body(client.get(f"{ROOT}{ref}/{verb}/"))))


def a_run() -> UUID:
    ref = create()
    run(ref)
    return ref


def test_progress_keeps_nobody_from_stopping_a_task(superuser: Client) -> None:
    ref = a_run()
    seen = held(superuser, ref, "cancel")
    get_store().set_status(ref, "half of it", done=1, total=2, leg=1)
    order(superuser, ref, "cancel", **seen)
    assert row(ref).status == "cancelled"


def test_progress_in_the_very_moment_keeps_nobody_either(superuser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = a_run()
    between(monkeypatch, *(lambda done=done: get_store().set_status(ref, "on", done=done) for done in range(4)))
    order(superuser, ref, "cancel", **held(superuser, ref, "cancel"))
    assert row(ref).status == "cancelled"


def test_a_task_that_never_stands_still_is_said_to_have_changed(
    superuser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = a_run()
    between(monkeypatch, *(lambda done=done: get_store().set_status(ref, "on", done=done) for done in range(9)))
    answer = order(superuser, ref, "cancel", **held(superuser, ref, "cancel"))
    assert LOST.format("Running") in body(answer)


@pytest.mark.parametrize(
    "change",
    [
        lambda ref: get_store().set_ttl(ref, 86_400_000),
        lambda ref: get_store().require_input(ref, {"k": FORM}, leg=1),
        lambda ref: (rewind(ref, 61), get_store().recover(), get_store().claim(ref), get_store().set_status(ref, "x")),
    ],
    ids=["another time to live", "a question", "another leg"],
)
def test_every_other_change_of_a_run_is_said(superuser: Client, change: Callable[[UUID], object]) -> None:
    ref = create(max_attempts=3)
    run(ref)
    seen = held(superuser, ref, "cancel")
    change(ref)
    answer = order(superuser, ref, "cancel", **seen)
    assert answer.status_code == 409
    assert row(ref).status != "cancelled"
    order(superuser, ref, "cancel", **held(superuser, ref, "cancel"))
    assert row(ref).status == "cancelled"


@pytest.mark.parametrize("given", ["", "x", "-1", "99999999999999999999999", "1 or 1"])
def test_a_page_without_the_revision_that_was_looked_at_does_nothing(superuser: Client, given: str) -> None:
    ref = create()
    answer = order(superuser, ref, "cancel", revision=given)
    assert answer.status_code == 409
    assert row(ref).status == "working"


def test_cancelling_what_is_cancelled_is_no_error(superuser: Client) -> None:
    ref = create()
    seen = revision(superuser, ref, "cancel")
    order(superuser, ref, "cancel")
    answer = order(superuser, ref, "cancel", revision=seen)
    assert answer.redirect_chain == [(f"{ROOT}{ref}/#title", 302)]
    assert '<li class="info">It is “Cancelled” already. Nothing was done.</li>' in body(answer)
    assert LogEntry.objects.count() == 1


def test_queueing_again_what_is_queued_is_no_error(superuser: Client) -> None:
    ref = stalled()
    seen = revision(superuser, ref, "requeue")
    order(superuser, ref, "requeue")
    assert "It is “Queued” already. Nothing was done." in body(order(superuser, ref, "requeue", revision=seen))
    assert row(ref).phase == "queued"


def test_a_task_that_finished_while_somebody_read_stays_as_it_is(superuser: Client) -> None:
    ref = create()
    seen = revision(superuser, ref, "cancel")
    done(ref)
    answer = order(superuser, ref, "cancel", revision=seen)
    assert answer.status_code == 409
    page = body(answer)
    assert LOST.format("Completed") in page
    assert "<textarea" not in page
    assert row(ref).status == "completed"


@pytest.mark.parametrize("verb", ["cancel", "fail", "extend", "requeue", "dismiss"])
def test_no_verb_changes_a_finished_task(superuser: Client, verb: str, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"DISMISS_INPUT": True})
    ref = done(create())
    before = Task.objects.filter(pk=ref).values().get()
    assert "not possible while the task is “Completed”" in body(superuser.get(f"{ROOT}{ref}/{verb}/", follow=True))
    order(superuser, ref, verb, revision=2, until="6h")
    assert Task.objects.filter(pk=ref).values().get() == before


@pytest.mark.parametrize("state", ["queued", "running", "needs-input", "stalled", "expired"])
def test_only_what_is_finished_can_be_deleted(superuser: Client, state: str) -> None:
    ref = add(state)
    superuser.get(f"{ROOT}{ref}/delete/")
    order(superuser, ref, "delete", revision=1)
    assert Task.objects.filter(pk=ref).exists()


def test_what_is_past_its_time_cannot_be_touched(superuser: Client) -> None:
    ref = add("running", expires_at=-1)
    for verb in ("cancel", "fail", "extend", "requeue", "delete"):
        assert "is “Expired”" in body(superuser.get(f"{ROOT}{ref}/{verb}/", follow=True)) or verb == "delete"
        order(superuser, ref, verb, revision=1, until="6h")
    assert row(ref).revision == 1


def between(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], Any]) -> None:
    """Let something happen after the page has read the task and before the store is asked, each time something else."""
    real, waiting = verbs.act, list(acts)

    def late(*arguments: Any) -> Any:
        if waiting:
            waiting.pop(0)()
        return real(*arguments)

    monkeypatch.setattr(verbs, "act", late)


def test_an_outcome_that_comes_in_between_wins(superuser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = create()
    between(monkeypatch, lambda: done(ref))
    assert "not possible while the task is “Completed”" in body(order(superuser, ref, "cancel"))
    assert row(ref).status == "completed"
    assert LogEntry.objects.count() == 0


def test_a_cancel_that_comes_in_between_is_what_was_wished_for(
    superuser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = create()
    between(monkeypatch, lambda: get_store().cancel_task(ref))
    assert "It is “Cancelled” already." in body(order(superuser, ref, "cancel"))


def test_a_change_that_comes_in_between_is_said(superuser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = create()
    between(monkeypatch, lambda: get_store().set_status(ref, "on its way"))
    answer = order(superuser, ref, "cancel")
    assert answer.status_code == 409
    assert LOST.format("Queued") in body(answer)
    assert row(ref).status == "working"


def test_a_worker_that_comes_back_in_between_keeps_its_task(superuser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = stalled()
    between(monkeypatch, lambda: get_store().heartbeat(ref, 1))
    answer = order(superuser, ref, "requeue")
    assert LOST.format("Running") in body(answer)
    assert row(ref).phase == "running"


def test_a_task_that_is_removed_in_between_is_said_on_the_list(
    superuser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = create()
    between(monkeypatch, lambda: get_store().discard_task(ref))
    answer = order(superuser, ref, "cancel")
    assert answer.redirect_chain == [(ROOT, 302)]
    assert "The task was removed meanwhile. Nothing was done." in body(answer)


# -- what is written down ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["cancel", "fail", "extend", "requeue"])
def test_each_deed_is_entered_once_in_the_log_of_the_admin(superuser: Client, verb: str) -> None:
    ref = stalled(ttl_ms=600_000)
    order(superuser, ref, verb, until="6h", reason="because")
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.action_flag, entry.user.username) == (str(ref), CHANGE, "root")
    assert entry.change_message.endswith(": because")
    assert entry.object_repr == f"send_campaign {ref}"


def test_the_log_for_auditors_has_every_try_and_no_reason(
    superuser: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", logger="mcp_tasks.operator")
    ref = create()
    order(superuser, ref, "cancel", reason="not for the log")
    other = create()
    between(monkeypatch, lambda: done(other))
    order(superuser, other, "cancel", reason="not for the log")
    noted = [(record.event, record.ref, record.code) for record in caplog.records]  # type: ignore[attr-defined]
    assert noted == [("operator_cancel", str(ref), "ok"), ("operator_cancel", str(other), "already_finished")]
    assert "not for the log" not in "".join(repr(vars(record)) for record in caplog.records)


# -- transactions and threads -----------------------------------------------------------------------------------------


@pytest.fixture
def root(transactional_db: None) -> Client:
    """A superuser in a database that other threads see."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_verbs_work_where_every_request_is_a_transaction(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    seen = []

    def look(*arguments: Any) -> Any:
        seen.append(connection.in_atomic_block)
        return real(*arguments)

    real = verbs.act
    monkeypatch.setattr(verbs, "act", look)
    ref = create(ttl_ms=60_000)
    monkeypatch.setattr(detail, "why", lambda task, facts: f"in a transaction: {connection.in_atomic_block}")
    assert "in a transaction: True" in body(root.get(f"{ROOT}{ref}/"))
    order(root, ref, "extend", until="6h")
    assert "Cancelled." in body(order(root, ref, "cancel"))
    assert seen == [False, False]
    assert row(ref).status == "cancelled"


def test_a_store_inside_of_a_transaction_would_have_said_no(root: Client) -> None:
    ref = create()
    with transaction.atomic(), pytest.raises(RuntimeError):
        get_store().cancel(ref, actor="operator:1", reason="because")


def test_of_a_cancel_and_an_outcome_at_the_same_moment_one_wins(root: Client) -> None:
    results = []
    for _round in range(15):
        ref = create()
        seen = revision(root, ref, "cancel")
        barrier = threading.Barrier(2)

        def settle(ref: UUID = ref, barrier: threading.Barrier = barrier) -> None:
            try:
                barrier.wait(10)
                get_store().complete_task(ref, {"content": []})
            finally:
                connection.close()

        thread = threading.Thread(target=settle)
        thread.start()
        barrier.wait(10)
        answer = order(root, ref, "cancel", revision=seen)
        thread.join(10)
        is_cancelled = row(ref).status == "cancelled"
        assert ("Cancelled." in body(answer)) is is_cancelled
        ends = TaskEvent.objects.filter(task_id=ref, kind__in=("cancelled", "completed")).values_list("kind", flat=True)
        assert list(ends) == [row(ref).status]
        results.append(is_cancelled)
    assert LogEntry.objects.count() == sum(results)
