"""Messages between processes get lost, or there are none: whoever listens is told of the end all the same."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.databases import kinds
from tests.support.push_clients import Socket, Sse, why_wrong
from tests.support.push_needs import CORE, DROPPING, PUBSUB, Redis, layer, redis
from tests.support.push_sites import IDLE, Served, site, until

pytestmark = [
    pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite"),
    pytest.mark.xdist_group("push losses"),
]

#: A process looks for itself so often here, give or take a quarter, instead of each ten seconds.
LOOK = 2.0
AT_LAST, SOON = LOOK + 5.0, 2.0
#: Where a test tells what a message brought from what a look found.
RARE_LOOK = 5.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with redis(tmp_path_factory.mktemp("redis")) as started:
        yield started


async def _listeners(served: Served, tasks: list[str]) -> list[Sse | Socket]:
    kinds: list[Any] = [Sse, Socket]
    opened = [await kind.open(served.url, served.alice, tasks) for kind in kinds]
    return [await listener.until_listening(len(tasks)) for listener in opened]


async def _all_end(listeners: list[Any], tasks: list[str], seconds: float) -> None:
    async with asyncio.timeout(seconds + 1):
        await asyncio.gather(*(one.until_terminal(task, seconds) for one in listeners for task in tasks))
    assert [wrong for one in listeners for task in tasks if (wrong := why_wrong(one, task))] == []
    for one in listeners:
        await one.close()


@pytest.mark.parametrize("backend", [PUBSUB, CORE], ids=["pubsub", "core"])
def test_an_end_is_told_though_redis_was_away_in_between(backend: str, server: Redis, tmp_path: Path) -> None:
    async def scenario(one: Served, two: Served) -> None:
        before, during, after, at_once = tasks = [one.hold() for _ in range(4)]
        listeners = await _listeners(one, tasks)
        await asyncio.to_thread(two.act, do="complete", task=before)
        await asyncio.gather(*(listener.until_terminal(before, SOON) for listener in listeners))
        leaving = await _listeners(one, [one.hold()])
        server.stop()
        await asyncio.sleep(0.5)  # until the layer knows: what it sends in the same moment is lost without a word
        for listener in leaving:
            await listener.close()
        await asyncio.to_thread(two.act, do="complete", task=during)
        await asyncio.sleep(1.0)
        server.start()
        await asyncio.to_thread(two.act, do="complete", task=after)
        await asyncio.gather(
            *(one.until_terminal(task, RARE_LOOK + 5) for one in listeners for task in (during, after))
        )
        # Soon the layer is in use again.
        await asyncio.sleep(3.0)
        await asyncio.to_thread(two.act, do="complete", task=at_once)
        await asyncio.gather(*(listener.until_terminal(at_once, SOON) for listener in listeners))
        await _all_end(listeners, tasks, 0.1)
        # Whoever left while it was away is no member any more, nor is anybody else.
        await asyncio.to_thread(until, lambda: server.memberships() == 0, 5, "groups of the layer are left")

    with site("away", tmp_path / "site", layer(backend, server), look_seconds=RARE_LOOK) as made:
        asyncio.run(scenario(made.serve(), made.serve(**IDLE)))


def test_a_server_that_starts_while_redis_is_away_tells_of_ends(server: Redis, tmp_path: Path) -> None:
    async def scenario(one: Served, two: Served) -> None:
        tasks = [one.hold() for _ in range(2)]
        listeners = await _listeners(one, tasks)
        await asyncio.to_thread(one.act, do="complete", task=tasks[0])
        await asyncio.gather(*(listener.until_terminal(tasks[0], SOON) for listener in listeners))
        await asyncio.to_thread(two.act, do="complete", task=tasks[1])
        await _all_end(listeners, tasks, AT_LAST)
        server.start()

    server.stop()
    with site("without", tmp_path / "site", layer(PUBSUB, server), look_seconds=LOOK) as made:
        asyncio.run(scenario(made.serve(), made.serve(**IDLE)))


@pytest.mark.parametrize("drop_every", [1, 3])
def test_an_end_is_told_though_messages_are_dropped(drop_every: int, server: Redis, tmp_path: Path) -> None:
    async def scenario(one: Served, two: Served) -> None:
        tasks = [one.hold() for _ in range(30)]
        listeners = await _listeners(one, tasks)
        for task in tasks:
            await asyncio.to_thread(two.act, do="progress", task=task)
            await asyncio.to_thread(two.act, do="complete", task=task)
        await _all_end(listeners, tasks, AT_LAST)

    dropping = layer(DROPPING, server, drop_every=drop_every)
    with site("dropping", tmp_path / "site", dropping, look_seconds=LOOK) as made:
        asyncio.run(scenario(made.serve(), made.serve("daphne", **IDLE)))


def test_ends_are_told_through_a_layer_that_holds_one_message(server: Redis, tmp_path: Path) -> None:
    async def scenario(one: Served, two: Served) -> None:
        tasks = await asyncio.to_thread(one.holds, 200)
        listeners = await _listeners(one, tasks)
        for task in tasks[:5]:
            await asyncio.to_thread(two.act, do="progress", task=task, times=20)
        await asyncio.to_thread(two.act, do="complete", task=tasks)
        await _all_end(listeners, tasks, AT_LAST)

    with site("one", tmp_path / "site", layer(CORE, server, capacity=1), look_seconds=LOOK) as made:
        asyncio.run(scenario(made.serve(), made.serve(**IDLE)))


def test_without_a_layer_two_processes_on_one_database_tell_of_ends_soon(tmp_path: Path) -> None:
    async def scenario(one: Served, two: Served) -> None:
        for _ in range(3):
            tasks = [one.hold() for _ in range(5)]
            listeners = await _listeners(one, tasks)
            await asyncio.to_thread(two.act, do="complete", task=tasks)
            await _all_end(listeners, tasks, SOON)

    with site("none", tmp_path / "site") as made:
        asyncio.run(scenario(made.serve(), made.serve("daphne", **IDLE)))
