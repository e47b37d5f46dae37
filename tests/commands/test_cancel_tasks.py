"""``cancel_tasks``: what it takes and leaves alone, what it prints, and that no slip of the hand cancels everything."""

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.types import Outcome, Owner
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)

store = DatabaseTaskStore()
ASK = {"k": {"method": "elicitation/create", "params": {"message": "?"}}}


class Terminal(StringIO):
    """Standard input that somebody sits at."""

    def isatty(self) -> bool:
        return True


def run(*arguments: str, **options: Any) -> tuple[str, str, int]:
    """What it printed, what it complained of, and the exit status."""
    out, err = StringIO(), StringIO()
    status = 0
    try:
        call_command("cancel_tasks", *arguments, stdout=out, stderr=err, **options)
    except SystemExit as ended:
        status = int(ended.code or 0)
    except CommandError as refused:
        err.write(str(refused))
        status = refused.returncode
    return out.getvalue(), err.getvalue(), status


def make(tool: str = "report", **options: Any) -> UUID:
    return store.create_task(tool, {}, **options).ref


def statuses() -> dict[UUID, str]:
    return dict(Task.objects.values_list("pk", "status"))


def three_states() -> tuple[UUID, UUID, UUID]:
    running, parked = make(), make()
    store.claim(running)
    store.require_input(parked, ASK)
    return make(), running, parked


REASON = ("--reason", "runaway client")


def test_everything_that_matches_is_cancelled() -> None:
    tasks, other = three_states(), make("convert")
    assert run("--tool", "report", *REASON, "--yes") == (
        "cancelled 3, finished meanwhile 0, refused 0, left 0\n",
        "",
        0,
    )
    assert statuses() == {**dict.fromkeys(tasks, "cancelled"), other: "working"}
    assert Task.objects.get(pk=tasks[0]).status_message == "runaway client"
    event = TaskEvent.objects.filter(task_id=tasks[0]).latest("id")
    assert event.actor.startswith("command")
    assert json.loads(event.detail or "")["reason"] == "runaway client"


def test_the_clients_need_not_be_told_the_reason() -> None:
    ref = make()
    run("--tool", "report", *REASON, "--yes", "--private-reason")
    assert Task.objects.get(pk=ref).status_message is None


def test_a_dry_run_counts_and_writes_nothing() -> None:
    three_states()
    store.complete_task(make(), {"content": []})
    before = list(Task.objects.order_by("pk").values())
    assert run("--state", "live", *REASON, "--dry-run") == (
        "would cancel 3 tasks (1 queued, 1 running, 1 waiting for input)\n",
        "",
        0,
    )
    assert list(Task.objects.order_by("pk").values()) == before


def test_a_dry_run_as_json() -> None:
    three_states()
    assert json.loads(run("--state", "live", *REASON, "--dry-run", "--format", "json")[0]) == {
        "dry_run": True,
        "database": "default",
        "matching": 3,
        "queued": 1,
        "running": 1,
        "needs_input": 1,
    }


def test_the_result_as_json() -> None:
    three_states()
    assert json.loads(run("--state", "live", *REASON, "--yes", "--format", "json")[0]) == {
        "dry_run": False,
        "database": "default",
        "cancelled": 3,
        "finished_meanwhile": 0,
        "refused": 0,
        "left": 0,
    }


@pytest.mark.parametrize(("state", "index"), [("queued", 0), ("running", 1), ("needs-input", 2)])
def test_a_state_is_what_operators_see(state: str, index: int) -> None:
    tasks = three_states()
    run("--state", state, *REASON, "--yes")
    assert [ref for ref, status in statuses().items() if status == "cancelled"] == [tasks[index]]


def test_stalled_tasks_can_be_told_from_running_ones() -> None:
    stalled, running = make(ttl_ms=86_400_000), make()
    store.claim(stalled)
    store.claim(running)
    rewind(stalled, 600)
    run("--state", "stalled", *REASON, "--yes")
    assert statuses() == {stalled: "cancelled", running: "working"}


def test_filters_narrow_each_other() -> None:
    alice = Owner(("a",))
    old = make(owner=alice, ttl_ms=86_400_000)
    rewind(old, 7200)
    make(owner=alice)
    other = make(ttl_ms=86_400_000)
    rewind(other, 7200)
    before = (Task.objects.get(pk=old).created_at + timedelta(hours=1)).isoformat()
    run("--owner", alice.key, "--created-before", before, *REASON, "--yes")
    assert [ref for ref, status in statuses().items() if status == "cancelled"] == [old]
    run("--owner", "anonymous", *REASON, "--yes")
    assert statuses()[other] == "cancelled"


def test_several_tools_can_be_named() -> None:
    for name in ("a", "b", "c"):
        make(name)
    run("--tool", "a", "--tool", "b", *REASON, "--yes")
    assert sorted(Task.objects.filter(status="cancelled").values_list("tool", flat=True)) == ["a", "b"]


def test_nothing_that_matches_is_fine_and_asks_nobody() -> None:
    assert run("--tool", "nothing", *REASON) == ("cancelled 0, finished meanwhile 0, refused 0, left 0\n", "", 0)


# -- who else works on them -----------------------------------------------------------------------------------------


def racing(monkeypatch: pytest.MonkeyPatch, race: Callable[[UUID], Outcome | None]) -> None:
    """Do something to each task just before it is cancelled; its outcome, if any, stands for that of the cancel."""
    cancel = DatabaseTaskStore.cancel

    def slower(self: Any, ref: UUID, **options: Any) -> Outcome:
        outcome = race(ref)
        return cancel(self, ref, **options) if outcome is None else outcome

    monkeypatch.setattr(DatabaseTaskStore, "cancel", slower)


def test_what_finished_meanwhile_is_counted_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make(), make()

    def finish(ref: UUID) -> None:
        if ref == first:
            store.complete_task(ref, {"content": []})

    racing(monkeypatch, finish)
    assert run("--tool", "report", *REASON, "--yes") == (
        "cancelled 1, finished meanwhile 1, refused 0, left 0\n",
        "",
        0,
    )
    assert statuses() == {first: "completed", second: "cancelled"}


def test_a_task_that_cannot_be_cancelled_makes_the_status_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = make(), make()
    racing(monkeypatch, lambda ref: Outcome(False, "not_applicable") if ref == first else None)
    out, _, status = run("--tool", "report", *REASON, "--yes")
    assert (out, status) == ("cancelled 1, finished meanwhile 0, refused 1, left 0\n", 1)


def test_it_stops_after_the_task_that_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        make()
    racing(monkeypatch, lambda ref: os.kill(os.getpid(), signal.SIGTERM))
    out, _, status = run("--tool", "report", *REASON, "--yes")
    assert (out, status) == ("cancelled 1, finished meanwhile 0, refused 0, left 2\n", 1)
    assert sorted(statuses().values()) == ["cancelled", "working", "working"]


def test_refs_are_told_on_demand_and_success_can_be_silent() -> None:
    ref = make()
    assert f"cancel {ref}\n" in run("--tool", "report", *REASON, "--dry-run", verbosity=2)[0]
    assert f"cancelled {ref}\n" in run("--tool", "report", *REASON, "--yes", verbosity=2)[0]
    make()
    assert run("--tool", "report", *REASON, "--yes", verbosity=0) == ("", "", 0)


# -- asking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "expected"), [("yes", 0), ("YES ", 0), ("y", 1), ("", 1), ("no", 1)])
def test_it_asks_and_takes_only_a_whole_yes(monkeypatch: pytest.MonkeyPatch, answer: str, expected: int) -> None:
    ref = make()
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda prompt: answer)
    out, _, status = run("--tool", "report", *REASON)
    assert status == expected
    assert out.startswith("1 task (1 queued, 0 running, 0 waiting for input) will be cancelled")
    assert statuses()[ref] == ("working" if expected else "cancelled")


def test_where_nobody_can_be_asked_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    ref = make()
    monkeypatch.setattr(sys, "stdin", StringIO("yes\n"))
    _, err, status = run("--tool", "report", *REASON)
    assert status == 2
    assert "--yes" in err
    assert statuses()[ref] == "working"


@pytest.mark.parametrize(
    "wrong",
    [
        [*REASON],
        ["--tool", "report"],
        ["--tool", "report", "--reason", "x"],
        ["--tool", "report", "--reason", "turned \u202e around"],
        ["--owner", "alice", *REASON],
        ["--owner", "", *REASON],
        ["--created-before", "yesterday", *REASON],
        ["--created-before", "", *REASON],
        ["--created-before", "0001-01-01T00:00:00+14:00", *REASON],
        ["--created-before", "9999-12-31T23:59:59.999999", *REASON],
        ["--state", "completed", *REASON],
        ["--database", "nowhere", "--tool", "report", *REASON],
        ["--tol", "report", *REASON],
    ],
)
def test_wrong_usage_cancels_nothing(wrong: list[str]) -> None:
    ref = make()
    with pytest.raises(CommandError):
        call_command("cancel_tasks", *wrong, "--yes", stdout=StringIO())
    assert statuses()[ref] == "working"
