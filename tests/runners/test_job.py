"""The job of engines: the table says what runs, however many messages there are, and how they come."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from mcp_tasks import TaskContext
from mcp_tasks.execution import overdue
from mcp_tasks.models import Process, Task
from mcp_tasks.runners import job
from mcp_tasks.runners.base import get_runner
from mcp_tasks.runners.job import run_job
from mcp_tasks.store import DatabaseTaskStore, get_store
from mcp_tasks.store.processes import own_name
from tests.support.push import soon

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    job._process.start_afresh()
    yield
    job._process.end()
    job._process.start_afresh()
    job._pool.end(wait_seconds=5)


def queued(tool: str, **options: Any) -> UUID:
    return get_store().create_task(tool, {}, **options).ref


def statuses() -> list[str]:
    return sorted(Task.objects.values_list("status", flat=True))


def rung() -> list[UUID]:
    runner: Any = get_runner()
    return list(runner.rung)


def test_a_job_runs_what_is_queued(mcp_tools: Any) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    run_job(queued("quick"))
    assert statuses() == ["completed"]


def test_a_message_that_comes_twice_or_for_nothing_does_nothing(mcp_tools: Any) -> None:
    ran: list[int] = []
    mcp_tools(name="quick")(lambda: ran.append(1))
    ref = queued("quick")
    for _ in range(3):
        run_job(ref)
    run_job(uuid4())
    assert (len(ran), statuses()) == (1, ["completed"])


def test_what_goes_first_is_what_the_table_says_not_the_message(mcp_tools: Any) -> None:
    order: list[str] = []

    @mcp_tools
    def late(ctx: TaskContext) -> None:
        order.append("late")

    mcp_tools(name="urgent")(lambda: order.append("urgent"))
    ref = queued("late")
    queued("urgent", priority=5)
    run_job(ref)
    assert order == ["urgent", "late"]


def test_a_job_goes_on_until_nothing_is_left_and_then_gives_way(
    mcp_tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "LEGS_PER_JOB", 3)
    mcp_tools(name="quick")(lambda: "ok")
    refs = [queued("quick") for _ in range(5)]
    before = rung()
    run_job(refs[0])
    assert statuses() == ["completed"] * 3 + ["working"] * 2
    assert rung() == [*before, refs[0]], "it asks for another job in its place"
    run_job(refs[0])
    assert statuses() == ["completed"] * 5
    assert rung() == [*before, refs[0]], "which found nothing more at its end"


def test_a_task_that_finds_no_room_begins_when_there_is_room(mcp_tools: Any) -> None:
    running, release, ran = threading.Event(), threading.Event(), []

    @mcp_tools(max_running=1)
    def narrow(ctx: TaskContext) -> None:
        ran.append(ctx.ref)
        running.set()
        release.wait(20)

    first, second = queued("narrow"), queued("narrow")
    thread = threading.Thread(target=run_job, args=(first,))
    thread.start()
    assert running.wait(10)
    run_job(second)  # its message comes too early, and is gone
    assert ran == [first]
    release.set()
    thread.join(20)
    assert (ran, statuses()) == ([first, second], ["completed"] * 2)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer, which the engine would be")
def test_a_transaction_of_the_engine_is_not_that_of_the_leg(mcp_tools: Any) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    ref = queued("quick")
    with transaction.atomic():
        run_job(ref)
        transaction.set_rollback(True)
    assert statuses() == ["completed"]


def test_what_keeps_a_job_from_claiming_is_the_engines_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **options: Any) -> Any:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(DatabaseTaskStore, "claim", away)
    with pytest.raises(ConnectionError):
        run_job(uuid4())


def test_a_deaf_handler_does_not_keep_the_engines_slot(mcp_tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "GRACE_SECONDS", 0.2)
    release = threading.Event()

    @mcp_tools(timeout_seconds=0.2)
    def deaf() -> None:
        release.wait(20)

    ref = queued("deaf")
    began = time.monotonic()
    run_job(ref)
    assert time.monotonic() - began < 10
    assert statuses() == ["failed"]
    release.set()


def test_a_process_that_runs_jobs_is_seen(mcp_tools: Any) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    run_job(queued("quick"))
    assert soon(lambda: Process.objects.filter(kind="worker").exists())
    row = Process.objects.get(kind="worker")
    assert (row.name, row.slots) == (own_name(), 1)
    job._process.end()
    assert not Process.objects.filter(kind="worker").exists()


class Limit(BaseException):
    """What an engine raises in a job that took too long."""


@pytest.fixture
def interrupted() -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Raises Limit on the main thread, by a signal, once something is so."""
    before = signal.getsignal(signal.SIGUSR1)

    def hear(number: int, frame: Any) -> None:
        raise Limit

    signal.signal(signal.SIGUSR1, hear)
    threads: list[threading.Thread] = []

    def later(when: Callable[[], bool]) -> None:
        def wait() -> None:
            assert soon(when)
            os.kill(os.getpid(), signal.SIGUSR1)

        threads.append(threading.Thread(target=wait))
        threads[-1].start()

    yield later
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGUSR1, before)


def test_a_job_that_its_engine_ends_gives_back_what_may_run_again(mcp_tools: Any, interrupted: Any) -> None:
    running = threading.Event()

    @mcp_tools(annotations={"readOnlyHint": True})
    def patient(ctx: TaskContext) -> None:
        running.set()
        ctx.token.wait(20)
        ctx.token.raise_if_cancelled()

    ref = queued("patient", max_attempts=3)
    interrupted(running.is_set)
    with pytest.raises(Limit):
        run_job(ref)
    task = Task.objects.get(pk=ref)
    assert (task.phase, task.attempts) == ("queued", 0)


def test_a_process_that_is_told_to_end_gives_back_its_leg_and_passes_messages_on(mcp_tools: Any) -> None:
    running, heard = threading.Event(), []

    @mcp_tools(annotations={"readOnlyHint": True})
    def patient(ctx: TaskContext) -> None:
        running.set()
        ctx.token.wait(20)
        ctx.token.raise_if_cancelled()

    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    ref = queued("patient", max_attempts=3)
    thread = threading.Thread(target=lambda: running.wait(10) and os.kill(os.getpid(), signal.SIGTERM))
    thread.start()
    try:
        run_job(ref)
        assert heard == [signal.SIGTERM], "the engine hears it too"
        task = Task.objects.get(pk=ref)
        assert (task.phase, task.attempts) == ("queued", 0)
        other, already = uuid4(), rung()
        run_job(other)
        assert rung() == [*already, other]
        assert Task.objects.get(pk=ref).phase == "queued"
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, before)


def test_a_process_that_is_told_to_end_waits_for_a_deaf_handler_no_longer_than_a_while(
    mcp_tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "DRAIN_SECONDS", 0.3)
    began, released = threading.Event(), threading.Event()

    @mcp_tools(name="deaf")
    def deaf() -> None:
        began.set()
        released.wait(20)

    engines = threading.Thread(target=run_job, args=(queued("deaf"),))
    engines.start()
    try:
        assert began.wait(5)
        job.stop()
        engines.join(5)
        assert not engines.is_alive()
        assert statuses() == ["working"], "its lease decides, or its result where it still comes"
    finally:
        released.set()
    assert soon(lambda: statuses() == ["completed"])


def test_a_leg_that_cannot_be_settled_is_a_failed_job(
    mcp_tools: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("broken")

    mcp_tools(name="quick")(lambda: "ok")
    ref = queued("quick")
    monkeypatch.setattr(DatabaseTaskStore, "complete_task", broken)
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match="broken"):
        run_job(ref)
    assert Task.objects.get(pk=ref).phase == "running", "its lease decides"
