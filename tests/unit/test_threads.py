"""The pool of daemon threads: how many run, how many wait, and that nothing a job does ends a thread."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections

from mcp_tasks import compat
from mcp_tasks import connections as look_after
from mcp_tasks.execution.threads import Busy, DaemonPool, process_is_ending

LONG = 20.0


class Gate:
    """Jobs that run until the gate opens, and what is known of them."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)
        self.names: list[str] = []
        self.done = threading.Semaphore(0)

    def job(self) -> None:
        self.names.append(threading.current_thread().name)
        self.entered.release()
        assert self.opened.wait(LONG)
        self.done.release()

    def wait_entered(self, count: int) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=LONG)

    def wait_done(self, count: int) -> None:
        for _ in range(count):
            assert self.done.acquire(timeout=LONG)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def pool() -> Iterator[Callable[..., DaemonPool]]:
    """Makes pools that are ended after the test."""
    made: list[DaemonPool] = []

    def make(size: int = 2, backlog: int = 0, *, persistent: bool = False, **options: Any) -> DaemonPool:
        made.append(DaemonPool("test", size, backlog=backlog, persistent=persistent, **options))
        return made[-1]

    yield make
    for each in made:
        each.end(LONG)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def do(pool: DaemonPool, work: Callable[[], Any]) -> Any:
    """Run something on the pool, submitted again while it is busy, and return what it returned."""
    found: list[Any] = []
    ended = threading.Event()

    def job() -> None:
        try:
            found.append(work())
        finally:
            ended.set()

    deadline = time.monotonic() + LONG
    while True:
        try:
            pool.submit(job)
            break
        except Busy:
            assert time.monotonic() < deadline
            time.sleep(0.002)
    assert ended.wait(LONG)
    [result] = found  # empty where it raised
    return result


def test_no_thread_starts_before_there_is_a_job(pool: Callable[..., DaemonPool]) -> None:
    before = threading.active_count()
    pool(10)
    assert threading.active_count() == before


def test_threads_are_started_on_demand_up_to_the_size(pool: Callable[..., DaemonPool], gate: Gate) -> None:
    own = pool(3, backlog=5)
    for count in range(1, 4):
        own.submit(gate.job)
        gate.wait_entered(1)
        assert len(gate.names) == count
    own.submit(gate.job)
    time.sleep(0.02)
    assert sorted(gate.names) == ["test-1", "test-2", "test-3"]
    gate.opened.set()
    gate.wait_done(4)


def test_a_thread_that_rests_is_used_again(pool: Callable[..., DaemonPool]) -> None:
    own = pool(5)
    names = set()
    for _ in range(20):
        names.add(do(own, lambda: threading.current_thread().name))
        wait_for(lambda: own._crew.idle == 1)
    assert names == {"test-1"}


def test_threads_are_daemons(pool: Callable[..., DaemonPool]) -> None:
    assert do(pool(), lambda: threading.current_thread().daemon) is True


@pytest.mark.parametrize(("size", "backlog"), [(1, 0), (2, 0), (1, 3), (4, 2), (8, 8)])
def test_a_burst_fills_the_threads_and_the_backlog_and_no_more(
    pool: Callable[..., DaemonPool], gate: Gate, size: int, backlog: int
) -> None:
    own = pool(size, backlog)
    for _ in range(size + backlog):
        own.submit(gate.job)  # at once: no thread has looked yet
    with pytest.raises(Busy, match=f"test: {size} threads work"):
        own.submit(gate.job)
    gate.wait_entered(size)
    with pytest.raises(Busy):
        own.submit(gate.job)
    gate.opened.set()
    gate.wait_done(size + backlog)


@pytest.mark.parametrize(("size", "backlog"), [(1, 0), (3, 2)])
def test_room_is_made_when_jobs_end(pool: Callable[..., DaemonPool], size: int, backlog: int) -> None:
    own = pool(size, backlog)
    for _ in range(3):
        gate = Gate()
        for _ in range(size + backlog):
            own.submit(gate.job)
        with pytest.raises(Busy):
            own.submit(gate.job)
        gate.opened.set()
        gate.wait_done(size + backlog)
        wait_for(lambda: own._crew.idle == size)


def test_jobs_that_wait_run_in_the_order_of_their_submission(pool: Callable[..., DaemonPool], gate: Gate) -> None:
    own = pool(1, backlog=10)
    order: list[int] = []
    own.submit(gate.job)
    gate.wait_entered(1)
    for number in range(10):
        own.submit(lambda number=number: order.append(number))
    gate.opened.set()
    wait_for(lambda: len(order) == 10)
    assert order == list(range(10))


def test_many_submitters_lose_no_job(pool: Callable[..., DaemonPool]) -> None:
    own = pool(4, backlog=1000)
    ran = threading.Semaphore(0)

    def submit() -> None:
        for _ in range(100):
            own.submit(ran.release)

    submitters = [threading.Thread(target=submit) for _ in range(8)]
    for submitter in submitters:
        submitter.start()
    for _ in range(800):
        assert ran.acquire(timeout=LONG)
    for submitter in submitters:
        submitter.join(LONG)
    assert len(own._crew.threads) <= 4


ERRORS = [RuntimeError("x"), SystemExit(1), KeyboardInterrupt(), GeneratorExit(), BaseException("x")]


def test_no_exception_ends_a_thread(pool: Callable[..., DaemonPool], caplog: pytest.LogCaptureFixture) -> None:
    own = pool(1, backlog=100)
    thread = do(own, threading.get_ident)

    def fail(error: BaseException) -> None:
        raise error

    for error in ERRORS:
        own.submit(lambda error=error: fail(error))
    assert do(own, threading.get_ident) == thread
    wait_for(lambda: len([r for r in caplog.records if r.name == "mcp_tasks.runner"]) == len(ERRORS))
    assert all(record.levelno == logging.ERROR for record in caplog.records)


def test_a_connection_that_cannot_be_closed_ends_no_thread(
    pool: Callable[..., DaemonPool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("the connection cannot be closed")

    own = pool(1, backlog=10)
    thread = do(own, threading.get_ident)
    monkeypatch.setattr("mcp_tasks.execution.threads.close_old_connections", broken)
    assert do(own, threading.get_ident) == thread
    assert do(own, threading.get_ident) == thread
    assert "the connection cannot be closed" in caplog.text


def test_a_thread_that_cannot_be_started_does_not_count(
    pool: Callable[..., DaemonPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = pool(1)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            own.submit(lambda: None)
    assert do(own, lambda: "ran") == "ran"


# -- the end --------------------------------------------------------------------------------------------------------


def test_the_end_lets_threads_finish_what_waits(pool: Callable[..., DaemonPool], gate: Gate) -> None:
    own = pool(2, backlog=10)
    for _ in range(6):
        own.submit(gate.job)
    crew = own._crew.threads
    gate.wait_entered(2)
    own.end()
    gate.opened.set()
    gate.wait_done(6)
    for thread in crew:
        thread.join(LONG)
        assert not thread.is_alive()


def test_the_end_waits_no_longer_than_it_is_told(pool: Callable[..., DaemonPool], gate: Gate) -> None:
    own = pool(2)
    own.submit(gate.job)
    gate.wait_entered(1)
    started = time.monotonic()
    own.end(0.05)
    assert 0.05 <= time.monotonic() - started < LONG / 2
    gate.opened.set()


def test_the_end_of_idle_threads_is_waited_for(pool: Callable[..., DaemonPool]) -> None:
    own = pool(3)
    do(own, lambda: None)
    [thread] = own._crew.threads
    own.end(LONG)
    assert not thread.is_alive()


def test_after_its_end_a_pool_starts_anew(pool: Callable[..., DaemonPool]) -> None:
    own = pool(1)
    first = do(own, threading.current_thread)
    own.end(LONG)
    second = do(own, threading.current_thread)
    assert first is not second
    own.end(LONG)
    own.end(LONG)  # again: there is nothing to end
    assert do(own, lambda: "ran") == "ran"


def test_no_job_is_lost_that_comes_while_the_pool_ends(pool: Callable[..., DaemonPool]) -> None:
    own = pool(2, backlog=10_000)
    ran = threading.Semaphore(0)
    stop = threading.Event()

    def end_again_and_again() -> None:
        while not stop.is_set():
            own.end()

    ending = threading.Thread(target=end_again_and_again)
    ending.start()
    for _ in range(300):
        own.submit(ran.release)
    stop.set()
    ending.join(LONG)
    for _ in range(300):
        assert ran.acquire(timeout=LONG)


def test_a_job_for_a_crew_that_has_just_ended_goes_to_the_next(
    pool: Callable[..., DaemonPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = pool(1)
    do(own, lambda: None)
    old = own._crew
    accepts = own._accepts

    def late(crew: Any, job: Callable[[], None]) -> bool:
        if crew is old and not old.ended:
            own.end(LONG)  # between the look at the crew and its lock
        return accepts(crew, job)

    monkeypatch.setattr(own, "_accepts", late)
    assert do(own, lambda: "ran") == "ran"
    assert own._crew is not old


# -- connections ----------------------------------------------------------------------------------------------------


def is_open() -> bool:
    return connection.connection is not None


def hold() -> Any:
    """The connection of this thread, for others to look at."""
    connection.ensure_connection()
    return connections["default"]


def use() -> int:
    connection.ensure_connection()
    return id(connection.connection)


@pytest.mark.django_db(transaction=True)
def test_each_thread_has_its_own_connection(pool: Callable[..., DaemonPool]) -> None:
    own = pool(1)
    connection.ensure_connection()
    assert do(own, use) != id(connection.connection)


@pytest.mark.django_db(transaction=True)
def test_a_connection_lives_from_job_to_job_only_where_that_is_wanted(pool: Callable[..., DaemonPool]) -> None:
    passing, persistent = pool(1), pool(1, persistent=True)
    assert do(passing, use)
    assert do(passing, is_open) is False
    held = do(passing, hold)
    wait_for(lambda: held.connection is None)  # also where no other job follows
    first = do(persistent, use)
    assert do(persistent, is_open) is True
    assert do(persistent, use) == first


@pytest.mark.django_db(transaction=True)
def test_a_thread_that_rests_keeps_its_connection_only_so_long(pool: Callable[..., DaemonPool]) -> None:
    own = pool(1, persistent=True, rest_seconds=0.3)
    first = do(own, use)
    assert do(own, use) == first
    held = do(own, hold)
    wait_for(lambda: held.connection is None)
    assert do(own, use)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("usable", [True, False])
def test_a_persistent_connection_is_looked_at_after_a_rest(
    pool: Callable[..., DaemonPool], monkeypatch: pytest.MonkeyPatch, usable: bool
) -> None:
    own = pool(1, persistent=True)
    do(own, use)

    def spoil() -> None:
        connections["default"].is_usable = lambda: usable

    do(own, spoil)
    assert do(own, is_open) is True  # it has not rested: nobody asks the database before each job
    monkeypatch.setattr(look_after, "_IDLE_CHECK_SECONDS", -1.0)
    assert do(own, is_open) is usable


@pytest.mark.django_db(transaction=True)
def test_a_persistent_connection_that_failed_is_closed(pool: Callable[..., DaemonPool]) -> None:
    own = pool(1, persistent=True)

    def fail() -> None:
        connection.ensure_connection()
        connection.errors_occurred = True
        connection.is_usable = lambda: False

    do(own, fail)
    assert do(own, is_open) is False


@pytest.mark.django_db(transaction=True)
def test_a_connection_of_a_pool_goes_back_to_it_after_each_job(
    pool: Callable[..., DaemonPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = pool(1, persistent=True)
    monkeypatch.setattr(compat, "is_pooled", lambda connection: True)
    do(own, use)
    assert do(own, is_open) is False


@pytest.mark.django_db(transaction=True)
def test_a_thread_that_ends_closes_its_connection(pool: Callable[..., DaemonPool]) -> None:
    own = pool(1, persistent=True)
    held = do(own, hold)
    assert held.connection is not None
    own.end(LONG)
    assert held.connection is None


# -- processes ------------------------------------------------------------------------------------------------------

FORK = """
import os, threading, warnings
warnings.simplefilter("ignore")
from mcp_tasks.execution.threads import DaemonPool

def ran(pool):
    event = threading.Event()
    pool.submit(event.set)
    return event.wait(20)

pool = DaemonPool("test", 1, backlog=0, persistent=True)
ended = DaemonPool("ended", 1, backlog=0, persistent=True)
full = DaemonPool("full", 1, backlog=0, persistent=True)
gate = threading.Event()
assert ran(pool) and ran(ended)
full.submit(gate.wait)
locked = DaemonPool("locked", 1, backlog=0, persistent=True)
assert ran(locked)
holding = threading.Event()
def hold():
    with locked._crew.ready:
        holding.set()
        gate.wait()
threading.Thread(target=hold, daemon=True).start()
assert holding.wait(20)
child = os.fork()
if child == 0:
    ended.end(5)
    locked.end(5)
    os._exit(0 if ran(pool) and ran(ended) and ran(full) and ran(locked) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
gate.set()
assert ran(pool) and ran(locked)
print("fine")
"""

ENDING = """
import threading, time
from mcp_tasks.execution.threads import DaemonPool, process_is_ending

pool = DaemonPool("test", 1, backlog=0, persistent=True)
assert not process_is_ending()
entered = threading.Event()
def job():
    entered.set()
    time.sleep(60)
pool.submit(job)
assert entered.wait(20)
print("fine")
"""


@pytest.mark.parametrize("script", [FORK, ENDING], ids=["a fork", "the end of the interpreter"])
def test_a_pool_survives_a_fork_and_keeps_no_process_alive(script: str) -> None:
    prelude = "from django.conf import settings\nsettings.configure(DATABASES={})\n"
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", prelude + script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")
    assert time.monotonic() - started < 50


def test_a_process_ends_when_its_main_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_is_ending() is False
    over = threading.Thread(target=lambda: None)
    over.start()
    over.join()
    monkeypatch.setattr(threading, "main_thread", lambda: over)
    assert process_is_ending() is True
