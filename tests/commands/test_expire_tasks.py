"""``expire_tasks``: what it prints, how it ends, and that it stops where it is told to."""

import json
import os
import signal
import time
from collections.abc import Callable
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from mcp_tasks.models import Process, Task
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)

store = DatabaseTaskStore()
NOTHING = "recovered 0, failed 0, redelivered 0, timed out 0, expired 0, rolled up 0 h, purged 0"


def run(*arguments: str, **options: Any) -> tuple[str, int]:
    """What it printed, and the exit status."""
    out = StringIO()
    try:
        call_command("expire_tasks", *arguments, stdout=out, stderr=StringIO(), **options)
    except SystemExit as ended:
        return out.getvalue(), int(ended.code or 0)
    return out.getvalue(), 0


def expired(number: int = 1) -> list[UUID]:
    refs = [store.create_task("report", {}, ttl_ms=60_000).ref for _ in range(number)]
    for ref in refs:
        rewind(ref, 61)
    return refs


def stalled(max_attempts: int) -> UUID:
    ref = store.create_task("report", {}, max_attempts=max_attempts).ref
    store.claim(ref)
    rewind(ref, 61)
    return ref


def phases() -> list[str]:
    return sorted(Task.objects.values_list("phase", flat=True))


def test_one_line_says_what_was_done() -> None:
    expired(2)
    stalled(1)
    stalled(2)
    printed, status = run()
    assert status == 0
    assert printed.startswith(
        "recovered 1, failed 1, redelivered 0, timed out 0, expired 2, rolled up 0 h, purged 0, left 0, "
    )
    assert printed.count("\n") == 1


def test_a_second_run_finds_nothing() -> None:
    expired(2)
    run()
    assert run()[0].startswith(NOTHING)


def test_a_dry_run_says_the_same_and_writes_nothing() -> None:
    expired(2)
    stalled(1)
    stalled(2)
    before = list(Task.objects.order_by("pk").values())
    printed, status = run("--dry-run")
    assert (printed, status) == (
        "would have recovered 1, failed 1, redelivered 0, timed out 0, expired 2, rolled up 0 h, purged 0\n",
        0,
    )
    assert list(Task.objects.order_by("pk").values()) == before
    assert not Process.objects.exists()


def test_json_has_the_same_numbers_and_where_they_come_from() -> None:
    expired(3)
    found = json.loads(run("--format", "json")[0])
    seconds = found.pop("seconds")
    assert seconds >= 0
    assert found == {
        "recovered": 0,
        "failed": 0,
        "redelivered": 0,
        "timed_out": 0,
        "expired": 3,
        "purged": 0,
        "rolled_up": 0,
        "left": 0,
        "errors": [],
        "dry_run": False,
        "database": "default",
    }


def test_only_the_named_steps_run() -> None:
    expired()
    stalled(2)
    assert run("--only", "recover,purge")[0].startswith("recovered 1,")
    assert phases() == ["queued", "queued"]


def test_a_bound_on_rows_leaves_the_rest_and_says_so() -> None:
    expired(5)
    printed, status = run("--max-rows", "2", "--batch-size", "1")
    assert "expired 2" in printed
    assert "left 3" in printed
    assert status == 0
    assert phases() == ["expired", "expired", "queued", "queued", "queued"]


class Terminal(StringIO):
    """Somebody who reads along, and at these words does something."""

    def __init__(self, words: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._words, self._act = words, act

    def write(self, text: str) -> int:
        if text.startswith(self._words):
            self._act()
        return super().write(text)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_out_of_time_it_ends_with_the_batch_and_says_what_is_left() -> None:
    expired(3)
    out = Terminal("expire ", lambda: time.sleep(1.1))
    call_command("expire_tasks", "--batch-size", "1", "--max-seconds", "1", stdout=out, stderr=StringIO(), verbosity=2)
    assert "expired 1, " in out.getvalue()
    assert "left 2, " in out.getvalue()


def test_it_stops_after_the_batch_that_it_is_at() -> None:
    expired(5)
    out = Terminal("expire ", stop)
    call_command("expire_tasks", "--batch-size", "2", stdout=out, stderr=StringIO(), verbosity=2)
    assert "expired 2, " in out.getvalue()
    assert "left 3, " in out.getvalue()
    assert phases() == ["expired", "expired", "queued", "queued", "queued"]
    assert "expired 3, " in run()[0]


def test_a_loop_goes_on_until_it_is_told_to_stop() -> None:
    expired()
    out = Terminal("recovered 0, failed 0, redelivered 0, timed out 0, expired 0", stop)
    began = time.monotonic()
    call_command("expire_tasks", "--loop", "1", stdout=out, stderr=StringIO())
    assert time.monotonic() - began >= 1
    assert [line.split(", ")[4] for line in out.getvalue().splitlines()] == ["expired 1", "expired 0"]


def test_work_that_is_left_is_a_failure_only_where_it_is_asked_for() -> None:
    expired(2)
    assert run("--max-rows", "1", "--fail-if-behind")[1] == 3
    assert run("--fail-if-behind")[1] == 0


def test_a_step_that_fails_is_named_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> Any:
        raise RuntimeError("broken")

    expired()
    monkeypatch.setattr(DatabaseTaskStore, "recover", broken)
    out, err = StringIO(), StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("expire_tasks", stdout=out, stderr=err)
    assert ended.value.code == 1
    assert "recover" in err.getvalue()
    assert "expired 1" in out.getvalue()


def test_refs_are_told_on_demand_and_success_can_be_silent() -> None:
    [ref] = expired()
    assert f"expire {ref}\n" in run(verbosity=2)[0]
    expired()
    assert run(verbosity=0) == ("", 0)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--only", "everything"],
        ["--batch-size", "0"],
        ["--max-rows", "-1"],
        ["--max-seconds", "x"],
        ["--loop", "0"],
        ["--format", "xml"],
        ["--database", "nowhere"],
    ],
)
def test_wrong_usage_is_refused_before_anything_is_done(wrong: list[str]) -> None:
    expired()
    with pytest.raises(CommandError):
        call_command("expire_tasks", *wrong, stdout=StringIO())
    assert phases() == ["queued"]


def test_an_unknown_database_is_wrong_usage() -> None:
    with pytest.raises(CommandError, match="nowhere") as refused:
        call_command("expire_tasks", "--database", "nowhere", stdout=StringIO())
    assert refused.value.returncode == 2
