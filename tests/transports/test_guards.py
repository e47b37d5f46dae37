"""Looks at credentials, of many callers at once: they take turns, and leave threads to requests."""

import asyncio
import gc
import threading
import time

import pytest

from mcp_tasks.transports import listening
from mcp_tasks.transports.lanes import LANE_BACKLOG, lanes, on_thread
from mcp_tasks.transports.listening import guard_of


class Shown:
    """A credential that takes a while to be looked at."""

    looking, most = 0, 0
    lock = threading.Lock()

    def __init__(self, name: str) -> None:
        self.key = name

    def is_accepted(self) -> bool:
        with Shown.lock:
            Shown.looking += 1
            Shown.most = max(Shown.most, Shown.looking)
        time.sleep(0.005)
        with Shown.lock:
            Shown.looking -= 1
        return True


@pytest.fixture(autouse=True)
def _none_yet() -> None:
    Shown.looking = Shown.most = 0


def test_looks_at_many_credentials_leave_threads_to_requests() -> None:
    """As when a list changes, and everybody is to be told."""

    async def story() -> float:
        guards = [guard_of(Shown(f"{number}")) for number in range(LANE_BACKLOG + 100)]  # type: ignore[arg-type]
        asked = [guard.ask() for guard in guards]
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        for _ in range(5):
            await on_thread(lanes, lambda: None)
        took = time.monotonic() - begun
        assert all(await asyncio.gather(*asked))
        return took

    assert asyncio.run(story()) < 0.5
    assert Shown.most <= listening.LOOKS


def test_looks_of_two_event_loops_do_not_wait_for_each_other() -> None:
    async def story() -> list[bool]:
        return await asyncio.gather(*(guard_of(Shown(f"{number}")).ask() for number in range(10)))  # type: ignore[arg-type]

    for _ in range(2):
        assert all(asyncio.run(story()))
    gc.collect()
    assert not listening._guards
    assert not listening._turns


def test_while_nobody_can_say_it_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "_RETRY_SECONDS", 0.02)
    away = True

    class Unknown(Shown):
        def is_accepted(self) -> bool:
            if away:
                raise ConnectionError("the database is away")
            return False

    async def story() -> list[bool]:
        nonlocal away
        asked = [guard_of(Unknown(f"{number}")).ask() for number in range(20)]  # type: ignore[arg-type]
        await asyncio.sleep(0.3)
        assert not any(future.done() for future in asked)
        away = False
        return await asyncio.gather(*asked)

    assert asyncio.run(story()) == [False] * 20
    assert [getattr(record, "event", None) for record in caplog.records] == ["credential_unknown"]
