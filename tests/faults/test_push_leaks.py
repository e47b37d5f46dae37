"""Thousands of listeners that go without goodbye leave nothing behind, and one that does not read holds nobody up."""

import asyncio
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.databases import kinds
from tests.support.push_clients import Socket, Sse
from tests.support.push_needs import CORE, PUBSUB, Redis, layer, redis
from tests.support.push_sites import IDLE, Served, Site, site, until

pytestmark = [
    pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite"),
    pytest.mark.xdist_group("push leaks"),
]

LISTENERS, TASKS, AT_ONCE = 2000, 200, 100
#: How soon everything must be back at its base.
SECONDS = 10.0
#: What a wave may leave in a process that has seen one like it: a tenth of what the wave itself takes, 2 000 streams of
#: fifteen kilobytes at least. The first wave is no measure: it fills the allocator's arenas and every cache.
LEFT_KB = 6_000  # what the allocator still takes in its first waves; a listener that stays has three times that


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    """The test's own process has one end of each connection; servers inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LISTENERS + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _fit() -> int:
    """How many listeners fit below the limit of open files at once."""
    return min(LISTENERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with redis(tmp_path_factory.mktemp("redis")) as started:
        yield started


async def _wave(served: Served, tasks: list[str], kinds: list[Any], count: int) -> None:
    """Open so many listens, cut them all, and change what they listened to."""
    listeners: list[Sse | Socket] = []
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        kind = kinds[start // AT_ONCE % len(kinds)]
        opened = [kind.open(served.url, served.alice, [tasks[n % len(tasks)]]) for n in numbers]
        listeners += await asyncio.gather(*opened)
        await asyncio.gather(*(listener.until_listening() for listener in listeners[-len(opened) :]))
    assert (await asyncio.to_thread(served.numbers))["subscriptions"] == count
    for listener in listeners:
        listener.vanish()
    for task in tasks:
        await asyncio.to_thread(served.act, do="progress", task=task, times=2)


@pytest.mark.parametrize(
    ("kind", "backend"),
    [("uvicorn", PUBSUB), ("daphne", PUBSUB), ("uvicorn", CORE)],
    ids=["uvicorn-pubsub", "daphne-pubsub", "uvicorn-core"],
)
def test_nothing_is_left_of_thousands_of_listeners_that_were_cut(
    kind: str, backend: str, server: Redis, tmp_path: Path
) -> None:
    with site("cut", tmp_path / "site", layer(backend, server)) as made:
        served = made.serve(kind, **IDLE)
        tasks = served.holds(TASKS)
        # What is made once for the life of a process is there before the base is measured.
        for listener in (Sse, Socket):
            asyncio.run(_wave(served, tasks[:8], [listener], 8))
        until(lambda: served.numbers()["subscriptions"] == 0, SECONDS)
        server.memberships()
        base = served.numbers(collect=True)
        after: list[dict[str, Any]] = []
        for _ in range(3):
            asyncio.run(_wave(served, tasks, [Sse, Sse, Sse, Socket], _fit()))
            began = time.monotonic()
            until(lambda: _held(served) == (0, 0, 0), SECONDS, "listeners are left")
            until(lambda: server.memberships() == 0, SECONDS, "groups of the layer are left")
            until(lambda: served.numbers()["fds"] <= base["fds"] + 2, SECONDS, "open files are left")
            assert time.monotonic() - began < SECONDS
            after.append(served.numbers(collect=True))
            assert _threads(after[-1]) == _threads(base)
            assert after[-1]["asyncio_tasks"] <= base["asyncio_tasks"] + 2
        first, second, third = (found["rss_kb"] for found in after)
        assert third - second < LEFT_KB, f"memory grows with each wave: {first}, {second}, {third} kB"
        # A server may take its time to forget a connection.
        before = after[1]["gc_objects"]
        until(
            lambda: served.numbers(collect=True)["gc_objects"] - before < LISTENERS / 2, 2 * SECONDS, "objects are left"
        )
        # And it still works.
        asyncio.run(_hears(served, tasks[0]))


def _threads(numbers: dict[str, Any]) -> list[str]:
    """The lanes are started as they are needed, and stay."""
    return [name for name in numbers["threads"] if not name.startswith("mcp-tasks-lane")]


def _held(served: Served) -> tuple[int, int, int]:
    found = served.numbers()
    return found["subscriptions"], found["watched"], found["places"]


async def _hears(served: Served, task: str) -> None:
    listener = await (await Sse.open(served.url, served.alice, [task])).until_listening()
    await asyncio.to_thread(served.act, do="complete", task=task)
    await listener.until_terminal(task, 5)
    await listener.close()


# -- whoever does not read ---------------------------------------------------------------------------------------


@pytest.fixture(params=["uvicorn", "daphne"])
def quiet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Site, Served]]:
    with site("slow", tmp_path / "site") as made:
        yield made, made.serve(request.param, **IDLE)


def test_whoever_does_not_read_two_thousand_changes_finds_the_end_when_it_reads(
    quiet: tuple[Site, Served],
) -> None:
    made, served = quiet
    worker = made.process(**IDLE)

    async def scenario() -> None:
        task, other = served.hold(), served.hold()
        deaf = [await Sse.open(served.url, served.alice, [task], receive_buffer=1024, reads=False) for _ in range(20)]
        reader = await (await Sse.open(served.url, served.alice, [task, other])).until_listening(2)
        until(lambda: served.numbers()["subscriptions"] == 21, 10)
        before = served.numbers(collect=True)["rss_kb"]
        # Each change says 500 characters, and is made in another process; twice as fast as they may be told.
        changes = {"do": "progress", "task": task, "times": 2000, "text": "x" * 480, "pause": 0.002}
        changing = asyncio.ensure_future(asyncio.to_thread(worker.act, **changes))
        delays = []
        while not changing.done():
            changed_at = time.time()
            await asyncio.to_thread(served.act, do="progress", task=other, text=str(changed_at))
            await reader.until(
                lambda at=changed_at: reader.of(other)[-1].get("statusMessage", "").startswith(str(at)), 5
            )
            delays.append(reader.tasks[-1][0] - changed_at)
            await asyncio.sleep(0.25)  # progress is shown each 0.2 s at most
        assert await changing == 2000
        assert max(delays) < 1.0, f"another listener was held up: {delays}"
        await asyncio.to_thread(worker.act, do="complete", task=task)
        await reader.until_terminal(task, 5)
        grown = served.numbers(collect=True)["rss_kb"] - before
        # All changes would be thirty megabytes for these readers.
        assert grown < 10_000, f"the server holds {grown} kB more"
        for listener in deaf:
            assert not listener.messages
            listener.read_at_last()
        await asyncio.gather(*(listener.until_terminal(task, 10) for listener in deaf))
        for listener in [*deaf, reader]:
            listener.vanish()

    asyncio.run(scenario())


def test_large_results_do_not_pile_up_before_whoever_does_not_read(quiet: tuple[Site, Served], request: Any) -> None:
    made, served = quiet
    is_daphne = request.node.callspec.params["quiet"] == "daphne"
    worker = made.process(**IDLE)

    async def scenario() -> None:
        tasks = await asyncio.to_thread(served.holds, 40)
        deaf = [await Sse.open(served.url, served.alice, tasks, receive_buffer=1024, reads=False) for _ in range(5)]
        until(lambda: served.numbers()["subscriptions"] == 5, 10)
        before = served.numbers(collect=True)["rss_kb"]
        # Twenty megabytes of results for each of them.
        await asyncio.to_thread(worker.act, do="complete", task=tasks, size=500_000)
        await asyncio.sleep(3)
        grown = served.numbers(collect=True)["rss_kb"] - before
        for listener in deaf:
            listener.read_at_last()
        await asyncio.gather(*(listener.until_terminal(task, 20) for listener in deaf for task in tasks))
        # daphne takes whatever it is handed, however much waits: each result once for each reader, and no more.
        assert grown < (120_000 if is_daphne else 30_000), f"the server holds {grown} kB more"
        for listener in deaf:
            listener.vanish()
        left = "what they did not read is kept"
        until(lambda: served.numbers(collect=True)["rss_kb"] - before < 30_000, SECONDS, left)

    asyncio.run(scenario())
