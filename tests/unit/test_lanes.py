"""The way from an event loop to a thread and back."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_tasks.execution.threads import Busy, DaemonPool
from mcp_tasks.transports.lanes import on_thread


@pytest.fixture
def pool() -> Iterator[DaemonPool]:
    made = DaemonPool("test-lane", 1, backlog=1, persistent=True)
    yield made
    made.end(wait_seconds=5)


def test_work_runs_on_a_thread_of_the_pool_and_its_result_comes_back(pool: DaemonPool) -> None:
    name = asyncio.run(on_thread(pool, lambda: threading.current_thread().name))
    assert name.startswith("test-lane")


def test_what_the_work_raises_is_raised(pool: DaemonPool) -> None:
    def work() -> Any:
        raise ZeroDivisionError("why")

    with pytest.raises(ZeroDivisionError, match="why"):
        asyncio.run(on_thread(pool, work))
    assert asyncio.run(on_thread(pool, lambda: 1)) == 1


def test_a_pool_that_is_full_says_so_at_once(pool: DaemonPool) -> None:
    release = threading.Event()

    async def story() -> None:
        first = asyncio.ensure_future(on_thread(pool, lambda: release.wait(5)))
        second = asyncio.ensure_future(on_thread(pool, lambda: True))
        await asyncio.sleep(0.05)
        with pytest.raises(Busy):
            await on_thread(pool, lambda: None)
        release.set()
        assert await first
        assert await second, "what waited has its turn"

    asyncio.run(story())


def test_who_no_longer_waits_disturbs_nobody(pool: DaemonPool) -> None:
    release = threading.Event()

    async def story() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(on_thread(pool, lambda: release.wait(5)), 0.05)
        release.set()
        await asyncio.sleep(0.1)
        return await on_thread(pool, lambda: 1)

    assert asyncio.run(story()) == 1


def test_a_loop_that_ended_meanwhile_disturbs_nobody(pool: DaemonPool) -> None:
    release = threading.Event()

    async def leaves() -> None:
        asyncio.ensure_future(on_thread(pool, lambda: release.wait(5)))  # noqa: RUF006 - it is to be cut
        await asyncio.sleep(0.05)

    asyncio.run(leaves())
    release.set()
    time.sleep(0.05)
    assert asyncio.run(on_thread(pool, lambda: 1)) == 1


def test_the_loop_goes_on_while_a_thread_works(pool: DaemonPool) -> None:
    release = threading.Event()

    async def story() -> int:
        waiting, turns = asyncio.ensure_future(on_thread(pool, lambda: release.wait(5))), 0
        while turns < 5:
            await asyncio.sleep(0.005)
            turns += 1
        release.set()
        await waiting
        return turns

    assert asyncio.run(story()) == 5
