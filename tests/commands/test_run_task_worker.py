"""``run_task_worker`` in the test's own process: what it runs, when it ends by itself, and how it says so."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from mcp_tasks import TaskContext
from mcp_tasks.execution import worker as worker_module
from mcp_tasks.management.memory import resident_megabytes
from mcp_tasks.models import Process, Task
from mcp_tasks.store import DatabaseTaskStore, get_store
from mcp_tasks.store.locking import database, serve_database
from mcp_tasks.store.processes import own_name

pytestmark = pytest.mark.django_db(transaction=True)


def run(*arguments: str, **options: Any) -> tuple[str, str, int]:
    """What it printed, what it complained of, and the exit status."""
    out, err = StringIO(), StringIO()
    try:
        call_command("run_task_worker", *arguments, stdout=out, stderr=err, **options)
    except SystemExit as ended:
        return out.getvalue(), err.getvalue(), int(ended.code or 0)
    return out.getvalue(), err.getvalue(), 0


def queued(tool: str, number: int = 1, **arguments: Any) -> list[Any]:
    return [get_store().create_task(tool, arguments, max_attempts=3).ref for _ in range(number)]


def statuses() -> list[str]:
    return sorted(Task.objects.values_list("status", flat=True))


def soon(act: Callable[[], None], when: Callable[[], bool]) -> threading.Thread:
    """Do something on another thread once something is so."""

    def wait() -> None:
        from django.db import connections

        deadline = time.monotonic() + 10
        while not when() and time.monotonic() < deadline:
            time.sleep(0.02)
        connections.close_all()
        try:
            act()
        finally:
            connections.close_all()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def told_to_stop(when: Callable[[], bool]) -> threading.Thread:
    return soon(lambda: os.kill(os.getpid(), signal.SIGTERM), when)


def test_once_runs_what_is_queued_and_ends(mcp_tools: Any) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    queued("quick", 5)
    printed, complaints, status = run("--once", "--slots", "2")
    assert (complaints, status) == ("", 0)
    assert statuses() == ["completed"] * 5
    assert printed.splitlines() == [
        f"worker {own_name()} runs up to 2 tasks at once",
        f"worker {own_name()} ended after 5 legs",
    ]


def test_once_runs_what_a_leg_has_queued(mcp_tools: Any) -> None:
    @mcp_tools
    def first() -> None:
        time.sleep(0.3)
        queued("second")

    mcp_tools(name="second")(lambda: "ok")
    queued("first")
    run("--once")
    assert statuses() == ["completed", "completed"]


def test_success_can_be_silent(mcp_tools: Any) -> None:
    assert run("--once", verbosity=0) == ("", "", 0)


def test_only_tasks_of_the_named_tools_are_run(mcp_tools: Any) -> None:
    for name in ("one", "two", "three"):
        mcp_tools(name=name)(lambda: "ok")
        queued(name)
    printed = run("--once", "--tools", "one,two", "--tools", "one")[0]
    assert " for one, two\n" in printed
    assert dict(Task.objects.values_list("tool", "phase")) == {"one": "done", "two": "done", "three": "queued"}


def test_a_tool_that_is_not_there_is_wrong_usage_and_says_which_are(mcp_tools: Any) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    with pytest.raises(CommandError, match=r"no tool 'qick'.*quick") as refused:
        call_command("run_task_worker", "--tools", "quick,qick")
    assert refused.value.returncode == 2


@pytest.mark.parametrize(
    "wrong",
    [["--slots", "0"], ["--max-tasks", "x"], ["--max-memory", "-1"], ["--drain-seconds", "inf"], ["--tools"]],
)
def test_wrong_usage_is_refused_before_anything_runs(mcp_tools: Any, wrong: list[str]) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    queued("quick")
    with pytest.raises(CommandError):
        call_command("run_task_worker", "--once", *wrong)
    assert statuses() == ["working"]


def test_an_unknown_database_is_wrong_usage() -> None:
    with pytest.raises(CommandError, match="nowhere") as refused:
        call_command("run_task_worker", "--database", "nowhere")
    assert refused.value.returncode == 2


def test_every_thread_of_a_process_uses_the_database_that_it_serves() -> None:
    seen: list[str] = []
    serve_database("other")
    try:
        thread = threading.Thread(target=lambda: seen.append(database()))
        thread.start()
        thread.join()
    finally:
        serve_database(None)
    assert (seen, database()) == (["other"], "default")


def test_wrong_settings_are_said_instead_of_working(configure: Callable[..., None]) -> None:
    configure(LEASE_SECONDS=10, HEARTBEAT_SECONDS=9)
    with pytest.raises(CommandError, match="LEASE_SECONDS"):
        call_command("run_task_worker", "--once", skip_checks=True)


def test_after_so_many_legs_it_lets_them_finish_and_ends(mcp_tools: Any) -> None:
    stopped: list[bool] = []

    @mcp_tools
    def slow(ctx: TaskContext) -> str:
        stopped.append(ctx.token.wait(0.3))
        return "ok"

    queued("slow", 5)
    printed, complaints, status = run("--max-tasks", "3", "--slots", "2")
    assert (stopped, complaints, status) == ([False] * 3, "", 0)
    assert statuses() == ["completed"] * 3 + ["working"] * 2
    assert "ended after 3 legs" in printed


def test_a_process_that_is_too_large_ends_before_its_next_leg(mcp_tools: Any) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    queued("quick")
    assert "ended after 0 legs" in run("--max-memory", "1")[0]
    enough = str(int(resident_megabytes() or 0) + 1000)
    assert "ended after 1 legs" in run("--max-memory", enough, "--once")[0]


def test_what_it_says_of_its_memory_is_what_it_has() -> None:
    before = resident_megabytes()
    block = bytearray(b"x" * (64 * 1024**2))
    after = resident_megabytes()
    assert before is not None
    assert after is not None
    assert 32 < after - before < 256
    del block


def test_where_the_system_tells_no_size_none_can_be_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    with pytest.raises(CommandError, match="--max-memory") as refused:
        call_command("run_task_worker", "--max-memory", "100")
    assert refused.value.returncode == 2


def test_what_a_worker_queues_itself_it_sees_at_once(mcp_tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(worker_module, "POLL_LIMIT_SECONDS", 60.0)

    @mcp_tools
    def first() -> None:
        queued("second")
        second.wait(10)

    mcp_tools(name="second")(lambda: second.set())
    second = threading.Event()
    thread = soon(lambda: queued("first"), lambda: Process.objects.filter(kind="worker").exists())
    ender = told_to_stop(second.is_set)
    run("--slots", "2")
    thread.join()
    ender.join()
    assert second.is_set()


def test_a_worker_that_is_told_to_stop_gives_back_what_may_run_again(mcp_tools: Any) -> None:
    running = threading.Event()

    @mcp_tools(annotations={"readOnlyHint": True})
    def patient(ctx: TaskContext) -> None:
        running.set()
        ctx.token.wait(20)
        ctx.token.raise_if_cancelled()

    [ref] = queued("patient")
    before = signal.getsignal(signal.SIGTERM)
    thread = told_to_stop(running.is_set)
    complaints, status = run()[1:]
    thread.join()
    assert (complaints, status) == ("", 0)
    task = Task.objects.get(pk=ref)
    assert (task.phase, task.attempts, task.lease_holder) == ("queued", 0, None)
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_is_seen_while_it_lives_and_not_missed_afterwards(mcp_tools: Any) -> None:
    seen: list[Process] = []

    @mcp_tools
    def look() -> None:
        deadline = time.monotonic() + 5
        while not seen and time.monotonic() < deadline:
            seen.extend(Process.objects.filter(kind="worker"))

    queued("look")
    run("--once", "--slots", "3")
    [row] = seen
    assert (row.name, row.slots, len(row.tools_hash)) == (own_name(), 3, 64)
    assert not Process.objects.filter(kind="worker").exists()


def test_a_worker_sweeps(mcp_tools: Any, configure: Callable[..., None]) -> None:
    configure(SWEEP_SECONDS=1)
    thread = told_to_stop(lambda: Process.objects.filter(kind="janitor").exists())
    run()
    thread.join()
    assert Process.objects.filter(kind="janitor").exists()


def test_a_database_that_is_away_for_a_moment_ends_nothing(mcp_tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, times = DatabaseTaskStore.claim, []

    def away(self: Any, *args: Any, **options: Any) -> Any:
        times.append(time.monotonic())
        if len(times) < 3:
            raise OperationalError("the server closed the connection")
        return claim(self, *args, **options)

    monkeypatch.setattr(DatabaseTaskStore, "claim", away)
    monkeypatch.setattr(worker_module, "_FAULT_SECONDS", 0.05)
    mcp_tools(name="quick")(lambda: "ok")
    queued("quick")
    assert run("--once")[2] == 0
    assert statuses() == ["completed"]


def test_a_claim_loop_that_is_lost_ends_the_process_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *args: Any, **options: Any) -> Any:
        raise SystemExit("nothing catches this")

    monkeypatch.setattr(DatabaseTaskStore, "claim", broken)
    complaints, status = run()[1:]
    assert (complaints, status) == ("The claim loop was lost, see the log.\n", 1)
