"""The heartbeat: leases are renewed, lost ones are told, progress is coalesced. A fake store answers."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connection, connections

from mcp_tasks.execution import heartbeat as heartbeat_module
from mcp_tasks.execution import running
from mcp_tasks.execution.heartbeat import PROGRESS_SECONDS, SELF_FENCE, Heartbeat, heartbeat
from mcp_tasks.execution.running import RunningLeg
from mcp_tasks.store.types import Outcome
from mcp_tasks.tools.cancellation import CANCELLED, EXPIRED, LEASE_LOST, SHUTDOWN, CancellationToken, token_for

# Not for its rows: what fails looks after the connections of its thread, which an earlier test may have opened.
pytestmark = pytest.mark.django_db

LONG = 20.0


class FakeStore:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.beats: list[tuple[UUID, int]] = []
        self.written: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.answer: Outcome | Exception = Outcome(True)

    def heartbeat(self, ref: UUID, leg: int) -> Outcome:
        self.threads.add(threading.current_thread().name)
        self.beats.append((ref, leg))
        return self._answer()

    def set_status(self, ref: UUID, message: Any, *, done: Any = None, total: Any = None, leg: Any = None) -> Outcome:
        self.threads.add(threading.current_thread().name)
        self.written.append((ref, message, done, total, leg))
        return self._answer()

    def _answer(self) -> Outcome:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of heartbeat and tokens; a test sets its only entry."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def intervals(settings: Any) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "LEASE_SECONDS": 30, "HEARTBEAT_SECONDS": 10}


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Heartbeat:
    """A heartbeat without a thread: a test serves its legs by hand."""
    own = Heartbeat()
    monkeypatch.setattr(own, "_has_thread", True)
    monkeypatch.setattr(running, "_legs", {})
    return own


@pytest.fixture
def leg() -> RunningLeg:
    return RunningLeg(uuid4(), 3, CancellationToken())


# -- renewing -------------------------------------------------------------------------------------------------------


def test_a_lease_is_renewed_when_its_time_has_come(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    beating._serve(leg)
    assert store.beats == []
    clock[0] += 9.9
    beating._serve(leg)
    assert store.beats == []
    clock[0] += 0.1
    beating._serve(leg)
    beating._serve(leg)
    assert store.beats == [(leg.ref, 3)]
    clock[0] += 10
    beating._serve(leg)
    assert len(store.beats) == 2
    assert not leg.token.is_raised


def test_a_watched_leg_needs_no_probe(beating: Heartbeat, store: FakeStore, leg: RunningLeg) -> None:
    beating.watch(store, leg)
    assert leg.token.watched
    assert running.all_legs() == [leg]
    beating.forget(leg)
    assert not leg.token.watched
    assert running.all_legs() == []


def test_a_leg_that_came_later_is_not_forgotten_with_an_earlier_one(beating: Heartbeat, store: FakeStore) -> None:
    ref = uuid4()
    earlier, later = RunningLeg(ref, 1, CancellationToken()), RunningLeg(ref, 2, CancellationToken())
    beating.watch(store, earlier)
    beating.watch(store, later)
    beating.forget(earlier)
    assert running.all_legs() == [later]
    assert later.token.watched


@pytest.mark.parametrize(
    ("why", "reason"),
    [("terminal", CANCELLED), ("expired", EXPIRED), ("gone", EXPIRED), ("fenced", LEASE_LOST), ("changed", LEASE_LOST)],
)
@pytest.mark.parametrize("found_by", ["heartbeat", "progress"])
def test_a_leg_that_lost_its_task_is_told_why(
    beating: Heartbeat,
    store: FakeStore,
    leg: RunningLeg,
    clock: list[float],
    why: Any,
    reason: str,
    found_by: str,
) -> None:
    beating.watch(store, leg)
    store.answer = Outcome(False, why)
    if found_by == "heartbeat":
        clock[0] += 10
    else:
        beating.report(leg, "m", None, None)
    beating._serve(leg)
    assert leg.token.is_raised
    assert leg.token.reason == reason


@pytest.mark.parametrize(("why", "told"), [("terminal", CANCELLED), ("expired", EXPIRED), ("fenced", None)])
def test_what_ended_the_task_is_told_to_every_holder_and_a_lost_lease_to_its_leg_alone(
    beating: Heartbeat, store: FakeStore, clock: list[float], why: Any, told: str | None
) -> None:
    ref = uuid4()
    held = token_for(ref)
    leg = RunningLeg(ref, 1, held.child())
    beating.watch(store, leg)
    store.answer = Outcome(False, why)
    clock[0] += 10
    beating._serve(leg)
    assert leg.token.is_raised
    assert held.reason == told


def test_a_leg_that_was_told_keeps_its_reason(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    leg.token.raise_(SHUTDOWN)
    store.answer = Outcome(False, "fenced")
    clock[0] += 10
    beating._serve(leg)
    assert leg.token.reason == SHUTDOWN


def test_every_leg_that_runs_here_can_be_stopped(beating: Heartbeat, store: FakeStore) -> None:
    legs = [RunningLeg(uuid4(), 1, CancellationToken()) for _ in range(3)]
    for each in legs:
        beating.watch(store, each)
    running.stop_all(SHUTDOWN)
    assert [each.token.reason for each in legs] == [SHUTDOWN] * 3


# -- a store that cannot be reached ---------------------------------------------------------------------------------


def test_a_renewal_that_failed_is_tried_again_soon_and_logged(
    beating: Heartbeat,
    store: FakeStore,
    leg: RunningLeg,
    clock: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    beating.watch(store, leg)
    store.answer = OperationalError("the database is away")
    clock[0] += 10
    beating._serve(leg)
    clock[0] += 0.5
    beating._serve(leg)
    assert len(store.beats) == 1
    clock[0] += 0.5
    store.answer = Outcome(True)
    beating._serve(leg)
    assert len(store.beats) == 2
    assert not leg.token.cancelled
    [record] = caplog.records
    assert (record.levelno, record.event, record.ref) == (logging.ERROR, "heartbeat_failed", str(leg.ref))
    clock[0] += 10
    beating._serve(leg)
    assert len(store.beats) == 3


def test_a_leg_that_cannot_be_renewed_fences_itself_before_its_lease_is_over(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    store.answer = OperationalError("the database is away")
    while clock[0] < 1000 + SELF_FENCE * 30 - 1:
        clock[0] += 1
        beating._serve(leg)
        assert not leg.token.cancelled
    clock[0] += 1
    beating._serve(leg)
    assert leg.token.cancelled
    assert leg.token.reason == LEASE_LOST
    assert clock[0] < 1000 + 30


def test_the_fence_counts_from_the_last_renewal_that_was_sent(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    clock[0] += 10
    beating._serve(leg)
    store.answer = OperationalError("the database is away")
    clock[0] = 1010 + SELF_FENCE * 30 - 0.5
    beating._serve(leg)
    assert not leg.token.cancelled
    clock[0] += 1
    assert leg.token.cancelled


def test_a_renewal_that_was_not_applied_moves_no_fence(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    before = leg.token._fence_at
    store.answer = Outcome(False, "fenced")
    clock[0] += 10
    beating._serve(leg)
    assert leg.token._fence_at == before


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_broke_is_not_used_again(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    beating.watch(store, leg)
    connection.ensure_connection()
    connection.errors_occurred = True
    monkeypatch.setattr(connection, "is_usable", lambda: False)
    store.answer = OperationalError("the database is away")
    leg.beat_at = 0.0
    beating._serve(leg)
    assert connection.connection is None


def test_a_process_that_is_ending_complains_of_nothing(
    beating: Heartbeat,
    store: FakeStore,
    leg: RunningLeg,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    beating.watch(store, leg)
    monkeypatch.setattr(heartbeat_module, "process_is_ending", lambda: True)
    store.answer = RuntimeError("cannot schedule new futures after interpreter shutdown")
    leg.beat_at = 0.0
    beating._serve(leg)
    assert caplog.records == []


# -- progress -------------------------------------------------------------------------------------------------------


def test_progress_is_written_with_its_numbers_and_its_leg(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg
) -> None:
    beating.watch(store, leg)
    beating.report(leg, "Reading rows", 3, 9)
    beating._serve(leg)
    beating._serve(leg)
    assert store.written == [(leg.ref, "Reading rows", 3, 9, 3)]


def test_only_the_newest_progress_is_written(beating: Heartbeat, store: FakeStore, leg: RunningLeg) -> None:
    beating.watch(store, leg)
    for number in range(1000):
        beating.report(leg, str(number), number, None)
    beating._serve(leg)
    assert [message for _, message, *_ in store.written] == ["999"]


def test_progress_is_written_at_most_twice_a_second(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    for number in range(50):
        beating.report(leg, str(number), None, None)
        beating._serve(leg)
        clock[0] += 0.05
    clock[0] += PROGRESS_SECONDS
    beating._serve(leg)
    assert len(store.written) <= 50 * 0.05 / PROGRESS_SECONDS + 1
    assert store.written[0][1] == "0"
    assert store.written[-1][1] == "49"


def test_progress_is_no_renewal(beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]) -> None:
    beating.watch(store, leg)
    before = leg.token._fence_at
    clock[0] += 5
    beating.report(leg, "m", None, None)
    beating._serve(leg)
    assert store.beats == []
    assert leg.token._fence_at == before


def test_progress_that_changed_nothing_does_no_harm(beating: Heartbeat, store: FakeStore, leg: RunningLeg) -> None:
    beating.watch(store, leg)
    store.answer = Outcome(False, "unchanged")
    beating.report(leg, "m", None, None)
    beating._serve(leg)
    assert len(store.written) == 1
    assert not leg.token.is_raised


def test_progress_that_could_not_be_written_is_not_lost(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    store.answer = OperationalError("the database is away")
    beating.report(leg, "first", None, None)
    beating._serve(leg)
    store.answer = Outcome(True)
    beating._serve(leg)
    assert len(store.written) == 1  # not at once
    clock[0] += PROGRESS_SECONDS
    beating._serve(leg)
    assert [message for _, message, *_ in store.written] == ["first", "first"]


def test_newer_progress_outlives_what_could_not_be_written(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    beating.watch(store, leg)

    def report_meanwhile(*args: Any, **kwargs: Any) -> Outcome:
        beating.report(leg, "second", None, None)
        raise OperationalError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "set_status", report_meanwhile)
        beating.report(leg, "first", None, None)
        beating._serve(leg)
    clock[0] += PROGRESS_SECONDS
    beating._serve(leg)
    assert [message for _, message, *_ in store.written] == ["second"]


def test_progress_that_no_store_takes_is_dropped(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    store.answer = ValueError("not a message")
    beating.report(leg, "m", None, None)
    beating._serve(leg)
    clock[0] += PROGRESS_SECONDS
    beating._serve(leg)
    assert len(store.written) == 1


def test_the_last_progress_can_be_written_at_once(beating: Heartbeat, store: FakeStore, leg: RunningLeg) -> None:
    beating.watch(store, leg)
    beating.flush(store, leg)
    assert store.written == []
    beating.report(leg, "Waiting for you", None, None)
    beating.flush(store, leg)
    beating.flush(store, leg)
    beating._serve(leg)
    assert [message for _, message, *_ in store.written] == ["Waiting for you"]


@pytest.mark.parametrize("error", [OperationalError("the database is away"), ValueError("not a message")])
def test_a_question_is_asked_also_where_its_progress_cannot_be_written(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    beating.watch(store, leg)
    store.answer = error
    beating.report(leg, "Waiting for you", None, None)
    beating.flush(store, leg)
    assert len(store.written) == 1
    assert [record.event for record in caplog.records] == ["heartbeat_failed"]


def test_progress_that_another_thread_has_written_is_not_written_again(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg
) -> None:
    beating.watch(store, leg)
    beating._write(store, leg, time.monotonic())
    assert store.written == []


def test_progress_is_written_once_where_two_threads_write_it(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg
) -> None:
    beating.watch(store, leg)
    for number in range(100):
        beating.report(leg, str(number), None, None)
        leg.progress_at = float("-inf")
        other = threading.Thread(target=beating._serve, args=(leg,))
        other.start()
        beating.flush(store, leg)
        other.join(LONG)
    assert [message for _, message, *_ in store.written] == list(map(str, range(100)))


# -- how long it sleeps ---------------------------------------------------------------------------------------------


def test_it_sleeps_until_the_next_renewal(beating: Heartbeat, store: FakeStore, clock: list[float]) -> None:
    assert beating._pause() == 60
    for offset in (0.0, 4.0):
        clock[0] = 1000 + offset
        beating.watch(store, RunningLeg(uuid4(), 1, CancellationToken()))
    assert beating._pause() == 6.0
    clock[0] = 2000
    assert beating._pause() == 0.0


def test_it_sleeps_until_progress_may_be_written(
    beating: Heartbeat, store: FakeStore, leg: RunningLeg, clock: list[float]
) -> None:
    beating.watch(store, leg)
    beating.report(leg, "m", None, None)
    assert beating._pause() == 0.0
    beating._serve(leg)
    beating.report(leg, "n", None, None)
    assert beating._pause() == PROGRESS_SECONDS


# -- its thread -----------------------------------------------------------------------------------------------------


@pytest.fixture
def alive(store: FakeStore) -> Iterator[Callable[..., RunningLeg]]:
    """Legs that the process's own heartbeat watches, forgotten after the test."""
    watched: list[RunningLeg] = []

    def watch(own: FakeStore = store, token: CancellationToken | None = None) -> RunningLeg:
        watched.append(RunningLeg(uuid4(), len(watched) + 1, token or CancellationToken()))
        heartbeat.watch(own, watched[-1])
        return watched[-1]

    yield watch
    for leg in watched:
        heartbeat.forget(leg)


def due_now(*legs: RunningLeg) -> None:
    for leg in legs:
        leg.beat_at = 0.0
    with heartbeat._wake:
        heartbeat._wake.notify()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_one_thread_renews_every_leg(alive: Callable[..., RunningLeg], store: FakeStore) -> None:
    legs = [alive() for _ in range(5)]
    due_now(*legs)
    wait_for(lambda: len(store.beats) >= 5)
    assert sorted(store.beats) == sorted((leg.ref, leg.leg) for leg in legs)
    assert store.threads == {"mcp-tasks-heartbeat"}
    assert [thread.name for thread in threading.enumerate()].count("mcp-tasks-heartbeat") == 1
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "mcp-tasks-heartbeat")


def test_a_new_leg_wakes_a_thread_that_sleeps_long(
    alive: Callable[..., RunningLeg], store: FakeStore, settings: Any
) -> None:
    first = alive()
    due_now(first)
    wait_for(lambda: store.beats)
    settings.MCP_TASKS = {**settings.MCP_TASKS, "LEASE_SECONDS": 3, "HEARTBEAT_SECONDS": 1}
    second = alive()
    started = time.monotonic()
    wait_for(lambda: (second.ref, second.leg) in store.beats)
    assert 0.5 < time.monotonic() - started < 8


def test_it_sleeps_while_nothing_is_due(
    alive: Callable[..., RunningLeg], store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    due_now(alive())
    wait_for(lambda: store.beats)
    looks: list[int] = []
    all_legs = running.all_legs
    monkeypatch.setattr(running, "all_legs", lambda: looks.append(1) or all_legs())
    time.sleep(0.1)
    assert len(looks) < 5


@pytest.mark.django_db(transaction=True)
def test_it_holds_no_connection_while_nothing_runs(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []

    def use(ref: UUID, leg: int) -> Outcome:
        connections["default"].ensure_connection()
        held.append(connections["default"])
        return Outcome(True)

    monkeypatch.setattr(store, "heartbeat", use)
    leg = RunningLeg(uuid4(), 1, CancellationToken())
    heartbeat.watch(store, leg)
    due_now(leg)
    wait_for(lambda: held)
    time.sleep(0.02)
    assert held[0].connection is not None
    heartbeat.forget(leg)
    wait_for(lambda: held[0].connection is None)


def test_each_leg_is_renewed_where_it_was_claimed(alive: Callable[..., RunningLeg], store: FakeStore) -> None:
    other = FakeStore()
    first, second = alive(), alive(other)
    due_now(first, second)
    wait_for(lambda: store.beats and other.beats)
    assert store.beats == [(first.ref, first.leg)]
    assert other.beats == [(second.ref, second.leg)]


def test_a_report_is_written_soon_without_waiting_for_a_beat(
    alive: Callable[..., RunningLeg], store: FakeStore
) -> None:
    leg = alive()
    started = time.monotonic()
    for number in range(200):
        heartbeat.report(leg, str(number), number, 200)
        time.sleep(0.004)
    wait_for(lambda: store.written and store.written[-1][1] == "199")
    assert len(store.written) <= (time.monotonic() - started) / PROGRESS_SECONDS + 1
    assert store.beats == []


def test_a_leg_that_was_forgotten_is_left_alone(alive: Callable[..., RunningLeg], store: FakeStore) -> None:
    forgotten, other = alive(), alive()
    heartbeat.forget(forgotten)
    due_now(forgotten, other)
    wait_for(lambda: store.beats)
    assert store.beats == [(other.ref, other.leg)]


def test_one_leg_that_fails_keeps_no_other_from_being_renewed(
    alive: Callable[..., RunningLeg], store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    broken = FakeStore()
    broken.answer = OperationalError("the database is away")
    legs = [alive(broken), alive()]
    due_now(*legs)
    wait_for(lambda: broken.beats and store.beats)
    due_now(*legs)
    wait_for(lambda: len(store.beats) >= 2)


FORK = """
import os, threading, warnings
from uuid import uuid4
warnings.simplefilter("ignore")
import django
django.setup()
from mcp_tasks.execution.heartbeat import heartbeat
from mcp_tasks.execution.running import RunningLeg
from mcp_tasks.store.types import Outcome
from mcp_tasks.tools.cancellation import CancellationToken

class Store:
    def __init__(self):
        self.written = threading.Event()
    def set_status(self, *args, **kwargs):
        self.written.set()
        return Outcome(True)

def works():
    store = Store()
    leg = RunningLeg(uuid4(), 1, CancellationToken())
    heartbeat.watch(store, leg)
    heartbeat.report(leg, "m", None, None)
    return store.written.wait(20)

assert works()
child = os.fork()
if child == 0:
    from mcp_tasks.execution import running
    os._exit(0 if running.all_legs() == [] and works() else 1)  # its parent's are not its own
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("fine")
"""


def test_it_starts_again_after_a_fork() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
