"""Listeners in one process hear of what another did, through Redis, over SSE and over WebSocket."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from mcp_tasks.store.types import ref_of
from tests.faults.databases import kinds
from tests.support.push_clients import Socket, Sse, why_wrong
from tests.support.push_needs import CORE, PUBSUB, layer, redis
from tests.support.push_sites import IDLE, Process, Served, Site, site, until

pytestmark = [
    pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite"),
    pytest.mark.xdist_group("push processes"),
]

#: Less than the seven seconds after which a process looks for itself at the earliest, also on a machine that is busy.
SOON = 4.0
#: Far less than the fifteen seconds of a heartbeat, and of a wait that looks for itself.
QUICKLY = 4.0


class Pair:
    """Two servers and a process without one, on one database and one Redis."""

    def __init__(self, made: Site) -> None:
        self.site = made
        self.one: Served = made.serve("uvicorn")
        self.two: Served = made.serve("daphne", **IDLE)
        self.worker: Process = made.process(**IDLE)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Pair]]:
    """The pair of each layer, made when it is first asked for; a fixture with parameters would be made anew each time
    that the order of the tests, which is random, goes back to one."""
    made: dict[str, Pair] = {}
    with ExitStack() as stack:

        def of(backend: str) -> Pair:
            if backend not in made:
                folder = tmp_path_factory.mktemp("pair")
                server = stack.enter_context(redis(folder / "redis"))
                made[backend] = Pair(stack.enter_context(site("pair", folder / "site", layer(backend, server))))
            return made[backend]

        yield of


@pytest.fixture(params=[PUBSUB, CORE], ids=["pubsub", "core"])
def pair(request: pytest.FixtureRequest, pairs: Callable[[str], Pair]) -> Pair:
    return pairs(request.param)


@pytest.mark.parametrize("kind", [Sse, Socket])
@pytest.mark.parametrize("listens_at", ["uvicorn", "daphne"])
def test_a_change_through_one_process_reaches_the_listeners_of_the_other(
    pair: Pair, kind: type[Any], listens_at: str
) -> None:
    here, there = (pair.one, pair.two) if listens_at == "uvicorn" else (pair.two, pair.one)

    async def scenario() -> None:
        task = there.hold()
        listener = await (await kind.open(here.url, here.alice, [task])).until_listening()
        for change, status in (
            ({"do": "progress", "text": "half"}, "working"),
            ({"do": "ask"}, "input_required"),
        ):
            await asyncio.to_thread(there.act, task=task, **change)
            await listener.until(lambda status=status: listener.of(task)[-1]["status"] == status, SOON)
        assert listener.of(task)[-1]["inputRequests"]["go"]["params"]["message"] == "Go?"
        answer = {"go": {"action": "accept", "content": {"go": True}}}
        await asyncio.to_thread(there.alice.update_task, task, answer)
        await listener.until(lambda: listener.of(task)[-1]["status"] == "working", SOON)
        await asyncio.to_thread(pair.worker.act, do="complete", task=task)
        ended = await listener.until_terminal(task, SOON)
        assert ended["result"]["content"][0]["text"] == "done"
        assert why_wrong(listener, task) is None
        await listener.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [Sse, Socket])
def test_a_cancel_through_one_process_reaches_the_listeners_of_the_other(pair: Pair, kind: type[Any]) -> None:
    async def scenario() -> None:
        task = pair.one.hold()
        listener = await (await kind.open(pair.one.url, pair.one.alice, [task])).until_listening()
        await asyncio.to_thread(pair.two.alice.cancel_task, task)
        assert (await listener.until_terminal(task, SOON))["status"] == "cancelled"
        await listener.close()

    asyncio.run(scenario())


def test_none_of_a_thousand_listeners_on_one_task_misses_its_end(pair: Pair, request: pytest.FixtureRequest) -> None:
    # A process is one member of a group, however many listen in it: the number says nothing about a layer.
    batches = 20 if "pubsub" in request.node.name else 4

    async def scenario() -> None:
        task = pair.one.hold()
        listeners: list[Any] = []
        for batch in range(batches):
            kind: Any = Socket if batch % 4 == 3 else Sse
            opened = [kind.open(pair.one.url, pair.one.alice, [task]) for _ in range(50)]
            listeners += await asyncio.gather(*opened)
            await asyncio.gather(*(listener.until_listening() for listener in listeners[-50:]))
        assert pair.one.numbers()["watched"] == 1
        changing = asyncio.to_thread(pair.two.act, do="progress", task=task, times=100, pause=0.02)
        await changing
        await asyncio.to_thread(pair.two.act, do="complete", task=task)
        await asyncio.gather(*(listener.until_terminal(task, 5) for listener in listeners))
        await asyncio.sleep(0.5)  # for what should not come
        assert [wrong for listener in listeners if (wrong := why_wrong(listener, task))] == []
        # Coalesced, and told all the same: each saw something of the way.
        assert min(len(listener.of(task)) for listener in listeners) > 3
        for listener in listeners:
            listener.vanish()

    asyncio.run(scenario())
    until(lambda: pair.one.numbers()["subscriptions"] == 0, 10, "streams are left")


@pytest.mark.parametrize("kind", [Sse, Socket])
def test_whoever_is_told_finds_at_least_that_by_asking(pair: Pair, kind: type[Any]) -> None:
    # Both servers, and both changed by a third process, while the listener asks the one that did not tell it.
    async def scenario() -> None:
        tasks = [pair.one.hold() for _ in range(5)]
        listener = await (await kind.open(pair.one.url, pair.one.alice, tasks)).until_listening(5)
        behind: list[Any] = []
        looked = 0

        async def look(until_done: asyncio.Task[Any]) -> None:
            nonlocal looked
            while not (until_done.done() and looked == len(listener.tasks)):
                for at, told in listener.tasks[looked:]:
                    looked += 1
                    found = await asyncio.to_thread(pair.two.alice.get_task, told["taskId"])
                    same = found["lastUpdatedAt"] == told["lastUpdatedAt"]
                    if found["lastUpdatedAt"] < told["lastUpdatedAt"] or (same and found["status"] != told["status"]):
                        behind.append((at, told, found))
                await asyncio.sleep(0.01)

        def change() -> None:
            for task in tasks:
                pair.worker.act(do="progress", task=task, times=20, pause=0.02)
                pair.one.act(do="ask", task=task)
                pair.worker.act(do="complete", task=task)

        changing = asyncio.ensure_future(asyncio.to_thread(change))
        await look(changing)
        for task in tasks:
            await listener.until_terminal(task, SOON)
        assert behind == []
        assert looked > 20
        await listener.close()

    asyncio.run(scenario())


def test_while_nothing_happens_nothing_is_told_and_nothing_is_logged(
    pair: Pair, request: pytest.FixtureRequest
) -> None:
    # Longer than the one layer waits for a message at once, and Redis for the client; the other has no such bound.
    quiet_seconds = 6.5 if "core" in request.node.name else 1.0

    async def scenario() -> None:
        task = pair.one.hold()
        listeners = [
            await (await Sse.open(served.url, served.alice, [task])).until_listening()
            for served in (pair.one, pair.two)
        ]
        logged = [served.server.log.stat().st_size for served in (pair.one, pair.two)]
        looks = [await asyncio.to_thread(served.act, do="look", times=3) for served in (pair.one, pair.two)]
        assert looks == [3, 3]
        await asyncio.sleep(quiet_seconds)
        for listener in listeners:
            assert [message.get("method") for _, message in listener.messages[2:]] == []
        uvicorn, daphne = (
            served.server.log.read_text()[size:] for served, size in zip((pair.one, pair.two), logged, strict=True)
        )
        assert uvicorn == ""
        assert [line for line in daphne.splitlines() if '"POST /act"' not in line] == []
        for listener in listeners:
            await listener.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_an_end_within_a_transaction_is_told_after_its_commit_only(pair: Pair, commit: bool) -> None:
    async def scenario() -> None:
        task = pair.one.hold()
        here = await (await Sse.open(pair.one.url, pair.one.alice, [task])).until_listening()
        there = await (await Socket.open(pair.two.url, pair.two.alice, [task])).until_listening()
        inside = {"do": "complete_inside", "task": task, "seconds": 1.0, "commit": commit}
        _, ended_at = await asyncio.to_thread(pair.worker.act, **inside)
        if commit:
            await asyncio.gather(*(listener.until_terminal(task, SOON) for listener in (here, there)))
            assert min(here.terminal_at(task) or 0, there.terminal_at(task) or 0) >= ended_at
        else:
            await asyncio.sleep(1.0)
            assert [here.terminal_at(task), there.terminal_at(task)] == [None, None]
            # It was not only late: what comes next is what the task is.
            await asyncio.to_thread(pair.worker.act, do="progress", task=task, text="still")
            for listener in (here, there):
                await listener.until(lambda of=listener: of.of(task)[-1].get("statusMessage") == "still 0", SOON)
                assert {state["status"] for state in listener.of(task)} == {"working"}
        await here.close()
        await there.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("ended_by", ["complete", "cancel"])
def test_a_wait_in_one_process_is_over_soon_after_the_end_in_another(pair: Pair, ended_by: str) -> None:
    task = pair.one.hold()
    pair.worker.begin(do="wait", task=task, seconds=20)
    pair.worker.hear()
    time.sleep(0.5)
    if ended_by == "complete":
        pair.two.act(do="complete", task=task)
    else:
        pair.two.alice.cancel_task(task)
    ended_at = time.time()
    status, known_at = pair.worker.hear()
    assert status == {"complete": "completed", "cancel": "cancelled"}[ended_by]
    assert known_at - ended_at < QUICKLY


def test_a_handler_hears_soon_of_a_cancel_through_another_process(pair: Pair) -> None:
    # The first server runs the leg, and renews its lease every fifteen seconds only.
    task = pair.two.alice.call_tool("patient", {"seconds": 60})["taskId"]
    digits = ref_of(task).hex

    def holder() -> Any:
        query = f"SELECT lease_holder FROM mcp_tasks_task WHERE REPLACE(CAST(ref AS TEXT), '-', '') = '{digits}'"
        return pair.site.database.query(query)[0][0]

    until(holder, 5, "nobody runs it")
    time.sleep(0.6)  # a leg follows its task once it has run for a moment
    pair.two.alice.cancel_task(task)
    until(lambda: holder() is None, QUICKLY, "the handler goes on")


def test_a_handler_in_a_process_without_a_server_hears_soon_of_a_cancel(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("apart")
    with redis(folder / "redis") as server, site("apart", folder / "site", layer(PUBSUB, server)) as made:
        served, worker = made.serve(**IDLE), made.process()
        worker.act(do="run")
        task = served.alice.call_tool("patient", {"seconds": 60})["taskId"]
        query = "SELECT lease_holder FROM mcp_tasks_task"
        until(lambda: made.database.query(query)[0][0], 15, "nobody runs it")
        time.sleep(0.6)
        served.alice.cancel_task(task)
        until(lambda: made.database.query(query)[0][0] is None, QUICKLY, "the handler goes on")
        assert served.alice.get_task(task)["status"] == "cancelled"
