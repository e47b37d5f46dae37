"""The cancellation token: raised once, seen by everybody who looks or waits, in threads and in coroutines."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from mcp_tasks.tools import cancellation
from mcp_tasks.tools.cancellation import (
    CANCELLED,
    EXPIRED,
    LEASE_LOST,
    SHUTDOWN,
    CancellationToken,
    TaskCancelled,
    raise_token,
    token_for,
)

LONG = 20.0


class Probe:
    """Remembers how often it was asked; answers what it is told to."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        self.asked = 0
        self.threads: set[threading.Thread] = set()

    def __call__(self) -> str | None:
        self.asked += 1
        self.threads.add(threading.current_thread())
        return self.reason


@pytest.fixture
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> float:
    """Probes may be asked again after this many seconds."""
    monkeypatch.setattr(cancellation, "_PROBE_SECONDS", 0.02)
    return 0.02


@pytest.fixture
def later() -> Iterator[Callable[[float, Callable[[], None]], None]]:
    """Call something on another thread after so many seconds."""
    timers: list[threading.Timer] = []

    def start(seconds: float, call: Callable[[], None]) -> None:
        timers.append(threading.Timer(seconds, call))
        timers[-1].start()

    yield start
    for timer in timers:
        timer.join()


def test_a_new_token_is_not_raised() -> None:
    token = CancellationToken()
    assert not token.cancelled
    assert not token.is_raised
    assert token.reason is None
    token.raise_if_cancelled()


def test_a_raised_token_stays_raised_with_its_first_reason() -> None:
    token = CancellationToken()
    token.raise_(CANCELLED)
    token.raise_(EXPIRED)
    assert token.cancelled
    assert token.is_raised
    assert token.reason == CANCELLED


def test_a_stop_cannot_be_caught_as_an_ordinary_exception() -> None:
    token = CancellationToken()
    token.raise_(SHUTDOWN)
    with pytest.raises(TaskCancelled, match=SHUTDOWN) as caught:
        token.raise_if_cancelled()
    assert not isinstance(caught.value, Exception)


def test_the_first_of_many_reasons_wins_for_everybody() -> None:
    token = CancellationToken()
    start = threading.Barrier(8)

    def race(reason: str) -> None:
        start.wait()
        token.raise_(reason)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(race, map(str, range(8))))
    assert token.reason in set(map(str, range(8)))


# -- who was told -------------------------------------------------------------------------------------------------


def look_at_cancelled(token: CancellationToken) -> None:
    assert token.cancelled


def look_by_raising(token: CancellationToken) -> None:
    with pytest.raises(TaskCancelled):
        token.raise_if_cancelled()


def look_by_waiting(token: CancellationToken) -> None:
    assert token.wait(0)


def look_by_waiting_in_a_coroutine(token: CancellationToken) -> None:
    assert asyncio.run(token.wait_async(0))


@pytest.mark.parametrize("look", [look_at_cancelled, look_by_raising, look_by_waiting, look_by_waiting_in_a_coroutine])
def test_whoever_sees_it_raised_has_been_told(look: Callable[[CancellationToken], None]) -> None:
    token = CancellationToken()
    token.raise_(CANCELLED)
    assert not token.observed
    look(token)
    assert token.observed


def test_nobody_is_told_who_saw_it_lowered_or_looked_for_the_machinery() -> None:
    token = CancellationToken()
    assert not token.cancelled
    assert not token.wait(0)
    assert not asyncio.run(token.wait_async(0))
    token.raise_if_cancelled()
    token.raise_(CANCELLED)
    assert token.is_raised
    assert not token.observed


# -- waiting in a thread ------------------------------------------------------------------------------------------


def test_a_wait_ends_with_its_timeout() -> None:
    started = time.monotonic()
    assert CancellationToken().wait(0.05) is False
    assert 0.05 <= time.monotonic() - started < LONG


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_wait_of_no_time_returns_at_once(timeout: float) -> None:
    token = CancellationToken()
    assert token.wait(timeout) is False
    assert asyncio.run(token.wait_async(timeout)) is False
    token.raise_(CANCELLED)
    assert token.wait(timeout) is True
    assert asyncio.run(token.wait_async(timeout)) is True


@pytest.mark.parametrize("timeout", [None, LONG])
def test_a_waiting_thread_is_woken(later: Callable[..., None], timeout: float | None) -> None:
    token = CancellationToken()
    later(0.05, lambda: token.raise_(CANCELLED))
    started = time.monotonic()
    assert token.wait(timeout) is True
    assert time.monotonic() - started < LONG / 2


def test_every_waiting_thread_is_woken() -> None:
    token = CancellationToken()
    with ThreadPoolExecutor(20) as pool:
        waits = [pool.submit(token.wait, LONG) for _ in range(20)]
        time.sleep(0.05)
        token.raise_(CANCELLED)
        assert all(wait.result(LONG) for wait in waits)


# -- waiting in a coroutine ---------------------------------------------------------------------------------------


def test_a_wait_in_a_coroutine_ends_with_its_timeout() -> None:
    token = CancellationToken()
    started = time.monotonic()
    assert asyncio.run(token.wait_async(0.05)) is False
    assert 0.04 <= time.monotonic() - started < LONG
    assert token._waiters == []


@pytest.mark.parametrize("timeout", [None, LONG])
def test_a_waiting_coroutine_is_woken_from_another_thread(later: Callable[..., None], timeout: float | None) -> None:
    token = CancellationToken()
    later(0.05, lambda: token.raise_(CANCELLED))
    started = time.monotonic()
    assert asyncio.run(token.wait_async(timeout)) is True
    assert time.monotonic() - started < LONG / 2
    assert token._waiters == []


def test_a_waiting_coroutine_is_woken_from_its_own_loop() -> None:
    token = CancellationToken()

    async def main() -> bool:
        waiting = asyncio.create_task(token.wait_async(LONG))
        await asyncio.sleep(0.01)
        token.raise_(CANCELLED)
        return await waiting

    assert asyncio.run(main())


def test_coroutines_of_many_loops_and_many_threads_are_all_woken() -> None:
    token = CancellationToken()
    waiting = threading.Semaphore(0)

    async def one() -> bool:
        waiting.release()
        return await token.wait_async(LONG)

    async def many() -> list[bool]:
        return await asyncio.gather(*(one() for _ in range(10)))

    with ThreadPoolExecutor(8) as pool:
        loops = [pool.submit(asyncio.run, many()) for _ in range(4)]
        threads = [pool.submit(token.wait, LONG) for _ in range(4)]
        for _ in range(40):
            assert waiting.acquire(timeout=LONG)
        token.raise_(CANCELLED)
        assert all(all(loop.result(LONG)) for loop in loops)
        assert all(thread.result(LONG) for thread in threads)
    assert token._waiters == []


def test_a_wake_at_any_moment_is_never_lost() -> None:
    async def once() -> bool:
        token = CancellationToken()
        thread = threading.Thread(target=token.raise_, args=(CANCELLED,))
        waiting = asyncio.create_task(token.wait_async(LONG))
        thread.start()
        result = await waiting
        thread.join()
        return result

    async def main() -> bool:
        return all([await once() for _ in range(200)])

    assert asyncio.run(asyncio.wait_for(main(), LONG))


def test_cancelling_the_waiting_coroutine_leaves_nothing_behind() -> None:
    token = CancellationToken()

    async def main() -> None:
        waits = [asyncio.create_task(token.wait_async(None)) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert len(token._waiters) == 5
        for wait in waits:
            wait.cancel()
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert token._waiters == []
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    token.raise_(CANCELLED)
    assert token.reason == CANCELLED


def test_a_loop_that_ended_under_its_waiters_does_no_harm() -> None:
    token = CancellationToken()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(token.wait_async(None))
    loop.run_until_complete(asyncio.sleep(0.01))
    assert len(token._waiters) == 1
    waiters = list(token._waiters)
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
    token._waiters += waiters  # as if the loop had ended without its tasks
    token.raise_(CANCELLED)
    assert token.cancelled


# -- probes -------------------------------------------------------------------------------------------------------


def test_a_probe_is_asked_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(cancellation.time, "monotonic", lambda: clock[0])
    probe = Probe()
    token = CancellationToken(probe)
    for _ in range(100):
        assert not token.cancelled
    assert probe.asked == 1
    clock[0] += 0.99
    assert not token.cancelled
    assert probe.asked == 1
    clock[0] += 0.02
    assert not token.cancelled
    assert probe.asked == 2


class LongAgo:
    """An instant whose distance takes a while to compute, so that other threads come between."""

    def __rsub__(self, now: float) -> float:
        time.sleep(0.02)
        return float("inf")


def test_threads_that_look_at_once_ask_a_probe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_PROBE_SECONDS", 3600.0)
    probe = Probe()
    token = CancellationToken(probe)
    token._probed_at = LongAgo()
    start = threading.Barrier(8)

    def look(_: int) -> bool:
        start.wait()
        return token.cancelled

    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(look, range(8)))
    assert probe.asked == 1


def test_what_a_probe_finds_raises_the_token_with_its_reason() -> None:
    token = CancellationToken(Probe(EXPIRED))
    assert token.cancelled
    assert token.reason == EXPIRED
    assert token.observed


def test_a_raised_token_asks_nobody_any_more(quick_probes: float) -> None:
    probe = Probe(CANCELLED)
    token = CancellationToken(probe)
    for _ in range(3):
        assert token.cancelled
        time.sleep(quick_probes)
    assert probe.asked == 1


def test_the_bare_state_asks_nobody() -> None:
    probe = Probe(CANCELLED)
    assert not CancellationToken(probe).is_raised
    assert probe.asked == 0


def test_a_watched_token_asks_nobody(quick_probes: float) -> None:
    probe = Probe(CANCELLED)
    token = CancellationToken(probe)
    token.watched = True
    assert not token.cancelled
    assert not token.wait(quick_probes * 3)
    assert not asyncio.run(token.wait_async(quick_probes * 3))
    assert probe.asked == 0
    token.watched = False
    assert token.cancelled


def test_a_waiting_thread_keeps_asking(quick_probes: float, later: Callable[..., None]) -> None:
    probe = Probe()
    token = CancellationToken(probe)
    later(0.1, lambda: setattr(probe, "reason", CANCELLED))
    assert token.wait(LONG) is True
    assert 2 <= probe.asked <= 20


def test_a_waiting_coroutine_keeps_asking(quick_probes: float, later: Callable[..., None]) -> None:
    probe = Probe()
    token = CancellationToken(probe)
    later(0.1, lambda: setattr(probe, "reason", CANCELLED))
    assert asyncio.run(token.wait_async(LONG)) is True
    assert 2 <= probe.asked <= 20
    assert token._waiters == []


@pytest.mark.parametrize("timeout", [0, 0.05, LONG])
def test_a_coroutine_that_waits_sees_at_once_what_a_probe_finds(timeout: float) -> None:
    token = CancellationToken(Probe(CANCELLED))
    started = time.monotonic()
    assert asyncio.run(token.wait_async(timeout)) is True
    assert time.monotonic() - started < 0.9
    assert token.reason == CANCELLED


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_probe_never_runs_in_an_event_loop(quick_probes: float, timeout: float) -> None:
    probe = Probe()

    async def main() -> threading.Thread:
        assert await CancellationToken(probe).wait_async(timeout) is False
        return threading.current_thread()

    assert asyncio.run(main()) not in probe.threads
    assert probe.asked >= 1


# -- leases ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of tokens; a test sets its only entry."""
    now = [1000.0]
    monkeypatch.setattr(cancellation.time, "monotonic", lambda: now[0])
    return now


def test_a_token_raises_itself_when_its_lease_was_not_renewed(clock: list[float]) -> None:
    token = CancellationToken()
    token.fence(1010.0)
    clock[0] = 1009.9
    assert not token.cancelled
    clock[0] = 1010.0
    assert token.cancelled
    assert token.reason == LEASE_LOST


def test_a_renewed_lease_moves_the_fence(clock: list[float]) -> None:
    token = CancellationToken()
    token.fence(1010.0)
    clock[0] = 1009.0
    token.fence(1020.0)
    clock[0] = 1019.0
    assert not token.cancelled
    clock[0] = 1021.0
    assert token.cancelled


def test_a_fence_holds_also_where_a_heartbeat_watches(clock: list[float]) -> None:
    probe = Probe()
    token = CancellationToken(probe)
    token.watched = True
    token.fence(1010.0)
    clock[0] = 1010.0
    assert token.cancelled
    assert probe.asked == 0


def test_an_earlier_reason_outlives_the_lease(clock: list[float]) -> None:
    token = CancellationToken()
    token.fence(1010.0)
    token.raise_(CANCELLED)
    clock[0] = 1010.0
    assert token.cancelled
    assert token.reason == CANCELLED


@pytest.mark.parametrize("timeout", [None, LONG])
def test_whoever_waits_is_woken_by_the_end_of_the_lease(timeout: float | None) -> None:
    started = time.monotonic()
    sleeping, awaiting = CancellationToken(), CancellationToken()
    sleeping.fence(started + 0.05)
    assert sleeping.wait(timeout) is True
    awaiting.fence(time.monotonic() + 0.05)
    assert asyncio.run(awaiting.wait_async(timeout)) is True
    assert (sleeping.reason, awaiting.reason) == (LEASE_LOST, LEASE_LOST)
    assert time.monotonic() - started < LONG / 2


def test_a_shorter_timeout_comes_before_the_lease() -> None:
    token = CancellationToken()
    token.fence(time.monotonic() + LONG)
    assert token.wait(0.02) is False
    assert asyncio.run(token.wait_async(0.02)) is False


# -- tokens of legs -------------------------------------------------------------------------------------------------


def test_what_concerns_the_task_concerns_its_legs() -> None:
    token = CancellationToken()
    legs = [token.child(), token.child()]
    assert not any(leg.cancelled for leg in legs)
    token.raise_(EXPIRED)
    assert [leg.reason for leg in legs] == [EXPIRED, EXPIRED]


def test_what_concerns_one_leg_concerns_no_other_and_not_the_task() -> None:
    token = CancellationToken()
    lost, other = token.child(), token.child()
    lost.raise_(LEASE_LOST)
    assert not token.is_raised
    assert not other.is_raised
    token.raise_(CANCELLED)
    assert (lost.reason, other.reason) == (LEASE_LOST, CANCELLED)


def test_a_leg_of_a_cancelled_task_starts_cancelled() -> None:
    token = CancellationToken()
    token.raise_(EXPIRED)
    assert token.child().reason == EXPIRED


def test_a_leg_asks_the_probe_of_its_task_while_nobody_watches() -> None:
    probe = Probe(CANCELLED)
    token = CancellationToken(probe)
    assert token.child().cancelled
    assert probe.asked == 1


def test_a_leg_wakes_its_own_waiters(later: Callable[..., None]) -> None:
    token = CancellationToken()
    leg = token.child()
    later(0.05, lambda: token.raise_(CANCELLED))
    assert asyncio.run(leg.wait_async(LONG)) is True


def test_a_leg_that_ended_is_forgotten() -> None:
    token = CancellationToken()
    leg = token.child()
    assert len(token._children) == 1
    del leg
    gc.collect()
    assert len(token._children) == 0


def test_no_leg_is_missed_that_starts_while_its_task_is_cancelled() -> None:
    for _ in range(200):
        token = CancellationToken()
        thread = threading.Thread(target=token.raise_, args=(CANCELLED,))
        thread.start()
        leg = token.child()
        thread.join()
        assert leg.is_raised


# -- one token of a task ------------------------------------------------------------------------------------------


def test_holders_of_a_task_share_one_token() -> None:
    ref = uuid4()
    token = token_for(ref)
    assert token_for(ref, Probe()) is token
    assert token_for(uuid4()) is not token
    raise_token(ref, CANCELLED)
    assert token.reason == CANCELLED


def test_threads_that_ask_at_once_share_one_token() -> None:
    ref = uuid4()
    start = threading.Barrier(8)

    def hold(_: int) -> CancellationToken:
        start.wait()
        return token_for(ref)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(hold, range(8))))) == 1


def test_a_token_that_nobody_holds_is_forgotten() -> None:
    ref = uuid4()
    raise_token(ref, CANCELLED)  # nobody here holds it: nothing happens
    token = token_for(ref)
    assert not token.is_raised
    token.raise_(CANCELLED)
    del token
    gc.collect()
    assert ref not in cancellation._tokens
    assert not token_for(ref).is_raised
