"""
How soon listeners hear of a change, and what telling them costs the server.

``python -m benchmarks.push_latency`` lets 1, 100 and 1 000 listeners listen to one task, cancels it over HTTP, and
takes the time from the request to each notification: at the server that is asked, and across two processes with
Redis. The answer to the request is timed as well, since a slow cancel is not slow push. Beside it a bare ASGI
application sends as many bytes to as many, in the same run; ``x bare`` is the ratio to it.
Ends with 1 where a goal is missed.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.streams import Line, Stream, listening, many_files, of, open_streams, request, say
from tests.support.push_needs import PUBSUB, layer, redis
from tests.support.push_sites import IDLE, Served, site
from tests.support.servers import serving

BARE = "benchmarks.bare_sse:application"
#: What one listener may wait, in milliseconds, by how many processes; the last of a thousand, by server.
ONE_MS = {1: 2.0, 2: 3.0}
LAST_MS = {"uvicorn": 50.0, "daphne": 100.0}
DELIVERY_US = 60.0
STRANGERS_FACTOR = 1.3


@dataclass(slots=True)
class Times:
    """Of several changes: what the listeners waited in milliseconds, and processor time per delivery."""

    middle: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    cpu_us: float = 0.0

    @property
    def p50(self) -> float:
        return statistics.median(self.middle)

    @property
    def answer(self) -> float:
        return statistics.median(self.answers)

    @property
    def slowest(self) -> float:
        return statistics.median(self.last)


def main() -> int:
    """Parse, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--changes", type=int, default=9, help="of which the median counts; more for one listener")
    parser.add_argument("--server", choices=["uvicorn", "daphne"], help="only this one")
    options = parser.parse_args()
    many_files(2500)
    titles = f"{'answer':>7} {'p50 ms':>7} {'last ms':>7} {'CPU us':>7} {'x bare':>17}"
    say(f"{'server':8} {'processes':>9} {'listeners':>9} {titles}")
    missed = 0
    for kind in [options.server] if options.server else ["uvicorn", "daphne"]:
        missed += asyncio.run(_server(kind, options))
    return 1 if missed else 0


async def _server(kind: str, options: Any) -> int:
    missed = 0
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        server = stack.enter_context(redis(folder / "redis"))
        bare_url = stack.enter_context(_bare(kind, folder))
        alone = stack.enter_context(site("alone", folder / "alone")).serve(kind, **IDLE)
        pair = stack.enter_context(site("pair", folder / "pair", layer(PUBSUB, server)))
        here, there = pair.serve(kind, **IDLE), pair.serve(kind, **IDLE)
        for count in options.listeners:
            changes = options.changes * (10 if count == 1 else 1)
            bare = await _of_bare(bare_url, count, changes)
            _line(kind, 0, count, bare, bare, [])
            for processes, asked, listened in ((1, alone, alone), (2, there, here)):
                times = await _of_tasks(asked, listened, count, changes)
                wrong = _wrong(kind, processes, count, times)
                missed += len(wrong)
                _line(kind, processes, count, times, bare, wrong)
        missed += await _strangers(kind, alone, options.changes * 10)
    return missed


def _wrong(kind: str, processes: int, count: int, times: Times) -> list[str]:
    wrong = []
    if count == 1 and times.p50 > ONE_MS[processes]:
        wrong.append(f"one listener waits more than {ONE_MS[processes]} ms")
    if count == 1000 and times.slowest > LAST_MS[kind]:
        wrong.append(f"the last waits more than {LAST_MS[kind]} ms")
    if count == 1000 and times.cpu_us > DELIVERY_US:
        wrong.append(f"more than {DELIVERY_US} us for each")
    return wrong


def _line(kind: str, processes: int, count: int, times: Times, bare: Times, wrong: list[str]) -> None:
    ratios = f"{times.p50 / bare.p50:5.1f} {times.slowest / bare.slowest:5.1f} {times.cpu_us / bare.cpu_us:5.1f}"
    measured = f"{times.answer:7.2f} {times.p50:7.2f} {times.slowest:7.2f} {times.cpu_us:7.0f}"
    verdict = "; ".join(wrong) or ("ok" if processes else "")
    say(f"{kind:8} {processes or 'bare':>9} {count:9} {measured} {ratios if processes else '':>17}  {verdict}")


async def _of_tasks(asked: Served, listened: Served, count: int, changes: int) -> Times:
    """Each listens to as many tasks as there will be changes, so that none has to come again."""
    tasks = await asyncio.to_thread(listened.holds, changes + 2)
    mark = b'"notifications/tasks"'
    streams = await open_streams(listened.url, [listening(listened.url, listened.alice, tasks)] * count, mark)
    line = await Line.open(asked.url)
    cancels = [of(asked.url, asked.alice, asked.alice.envelope("tasks/cancel", {"taskId": task})) for task in tasks]
    await asyncio.sleep(1.5)  # the present states of the other tasks
    for stream in streams:
        stream.mark = b'"status":"cancelled"'

    async def cpu() -> float:
        seconds: float = (await asyncio.to_thread(listened.numbers))["cpu_seconds"]
        return seconds

    return await _measure(line, cancels, streams, cpu)


async def _of_bare(url: str, count: int, changes: int) -> Times:
    url, _, pid = url.partition("#")
    streams = await open_streams(url, [request(f"{url}/listen", {}, b"{}")] * count, b": here")
    line = await Line.open(url)
    for stream in streams:
        stream.mark = b"event: message"
    # As long as a notification.
    fires = [request(f"{url}/fire", {}, b"x" * 450)] * (changes + 2)

    async def cpu() -> float:
        fields = Path(f"/proc/{pid}/schedstat").read_text().split()
        return int(fields[0]) / 1e9

    return await _measure(line, fires, streams, cpu)


async def _measure(line: Line, asking: list[bytes], streams: list[Stream], cpu: Any) -> Times:
    """The first two are not counted."""
    times, used = Times(), 0.0
    for number, ask in enumerate(asking, 1):
        before = await cpu()
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        await line.post(ask)
        answered = time.perf_counter()
        deadline = began + 20
        while any(stream.count < number for stream in streams):
            if time.perf_counter() > deadline:
                deaf = sum(stream.count < number for stream in streams)
                raise RuntimeError(f"{deaf} of {len(streams)} listeners were told nothing")
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        if number > 2:
            used += await cpu() - before
            waited = [(stream.at - began) * 1000 for stream in streams]
            times.answers.append((answered - began) * 1000)
            times.middle.append(statistics.median(waited))
            times.last.append(max(waited))
    times.cpu_us = used / (len(asking) - 2) / len(streams) * 1e6
    for stream in streams:
        stream.transport.abort()
    await asyncio.sleep(1)
    return times


async def _strangers(kind: str, served: Served, changes: int) -> int:
    """One listener beside ten and beside a thousand who listen to something else."""
    found = []
    for count in (10, 1000):
        other = await asyncio.to_thread(served.hold)
        asking = [listening(served.url, served.alice, [other])] * count
        idle = await open_streams(served.url, asking, b'"notifications/tasks"')
        found.append((await _of_tasks(served, served, 1, changes)).p50)
        for stream in idle:
            stream.transport.abort()
        await asyncio.sleep(1)
    factor = found[1] / found[0]
    is_right = factor <= STRANGERS_FACTOR
    verdict = "ok" if is_right else f"more than {STRANGERS_FACTOR} times"
    say(f"{kind:8} one listener beside 10 strangers {found[0]:.2f} ms, beside 1 000 {found[1]:.2f} ms: {verdict}")
    return 0 if is_right else 1


@contextmanager
def _bare(kind: str, folder: Path) -> Iterator[str]:
    """The bare application on the same server; its address, with its process after a #."""
    with serving({}, folder, kind=kind, application=BARE) as server:
        process: subprocess.Popen[bytes] = server.process
        yield f"http://127.0.0.1:{server.port}#{process.pid}"


if __name__ == "__main__":
    sys.exit(main())
