"""
The threads that serve requests of ASGI servers, and the way there from an event loop.

Few and persistent: Django's own handler starts one for each request. Handlers of tools run on others.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import TypeVar

from .. import observing
from ..execution.threads import DaemonPool

T = TypeVar("T")

#: Threads that serve requests, and how many requests may wait for one of them.
LANES, LANE_BACKLOG = 4, 512
lanes = DaemonPool("mcp-tasks-lane", LANES, backlog=LANE_BACKLOG, persistent=True)


async def on_thread(pool: DaemonPool, work: Callable[[], T]) -> T:
    """Run on a thread of a pool; raises Busy, and what the work raises."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    if observing.is_observed():
        work = _carried(work)

    def job() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop has ended, and with it the request

    pool.submit(job)
    return await future


def _carried(work: Callable[[], T]) -> Callable[[], T]:
    """The same with what is traced here current there too, and nothing of it left on the thread."""
    arrive = observing.carry()

    def inside() -> T:
        arrive()
        return work()

    return lambda: contextvars.Context().run(inside)
