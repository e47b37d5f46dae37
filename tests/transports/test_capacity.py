"""Slow calls have threads of their own: however many there are, a poll is answered."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcp_tasks.execution.threads import DaemonPool
from mcp_tasks.transports.http import endpoint as endpoint_module
from mcp_tasks.transports.http.endpoint import endpoint
from mcp_tasks.transports.http.streams import INLINE_THREADS, inline_pool
from tests.support.adapters import ADAPTERS, Wire, converse, scope_of

from .requests import Draft, draft, error_of

pytestmark = pytest.mark.usefixtures("open_to_all", "transactional_db")


@pytest.fixture(autouse=True)
def _rested() -> None:
    """Earlier calls have let go of their threads: they answer before they look after their connections."""
    crew, deadline = inline_pool._crew, time.monotonic() + 10
    while crew.jobs or crew.idle != len(crew.threads):
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def release(mcp_tools: Callable[..., Any]) -> Iterator[threading.Event]:
    """Lets all calls of the tool ``slow`` go on."""
    release = threading.Event()

    @mcp_tools(task="never")
    def slow() -> str:
        release.wait(20)
        return "done"

    yield release
    release.set()


def slow_call(*, token: str | None = None) -> Draft:
    request = draft("tools/call", {"name": "slow", "arguments": {}})
    if token is not None:
        request.meta["progressToken"] = token
    return request


def poll() -> Draft:
    return draft("tasks/get", {"taskId": "x" * 43})


def test_with_32_slow_calls_the_33rd_is_told_to_wait_and_a_poll_is_answered(release: threading.Event) -> None:
    async def send(request: Draft) -> Any:
        return await converse(endpoint, scope_of(request.headers), [request.text])

    async def scene() -> None:
        calls = [asyncio.ensure_future(send(slow_call())) for _ in range(INLINE_THREADS)]
        deadline = time.monotonic() + 10
        while len(inline_pool._crew.threads) < INLINE_THREADS or inline_pool._crew.idle or inline_pool._crew.jobs:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        refused = await send(slow_call())
        assert error_of(refused) == (503, -32603, None)
        assert refused.headers["retry-after"] == "1"
        assert error_of(await send(poll())) == (200, -32602, "r-1")
        assert not any(call.done() for call in calls)
        release.set()
        answers = await asyncio.gather(*calls)
        assert {answer.status for answer in answers} == {200}
        assert (await send(slow_call())).status == 200

    asyncio.run(scene())


def test_a_stream_for_which_no_thread_is_left_is_refused_and_a_poll_is_answered(wire: Wire) -> None:
    gate, entered = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        entered.release()
        gate.wait(20)

    try:
        for _ in range(INLINE_THREADS):
            inline_pool.submit(wait)
        for _ in range(INLINE_THREADS):
            assert entered.acquire(timeout=5)
        request = draft()
        request.meta["progressToken"] = 1
        answer = request.send(wire)
        assert error_of(answer) == (503, -32603, None)
        assert answer.headers["retry-after"] == "1"
        assert "no-store" in answer.headers["cache-control"]
        assert error_of(poll().send(wire)) == (200, -32602, "r-1")
    finally:
        gate.set()
    deadline = time.monotonic() + 10
    while request.send(wire).status == 503:
        assert time.monotonic() < deadline
    assert request.send(wire).status == 200


@pytest.mark.parametrize("adapter", ADAPTERS[:2])
def test_a_view_needs_no_second_thread_for_a_call_that_streams_nothing(wire: Wire, release: threading.Event) -> None:
    release.set()
    before = len(inline_pool._crew.threads)
    assert slow_call().send(wire).status == 200
    assert len(inline_pool._crew.threads) == before


def test_an_endpoint_whose_lanes_are_all_taken_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, entered = threading.Event(), threading.Event()
    narrow = DaemonPool("narrow", 1, backlog=0, persistent=True)
    monkeypatch.setattr(endpoint_module, "lanes", narrow)

    def wait() -> None:
        entered.set()
        gate.wait(20)

    try:
        narrow.submit(wait)
        assert entered.wait(5)
        assert error_of(poll().send(Wire("endpoint"))) == (503, -32603, None)
    finally:
        gate.set()
        narrow.end(5.0)
