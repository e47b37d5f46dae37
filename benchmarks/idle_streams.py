"""
What idle listeners cost a server: memory, processor time, threads, database connections.

``python -m benchmarks.idle_streams`` opens 5 000 listens on 500 tasks at one process of uvicorn, then of daphne. Ends
with 1 where a stream takes more than 25 kB, or all of them more than 2 % of a core.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.streams import listening, many_files, open_streams, say
from tests.support.push_needs import PUBSUB, layer, redis
from tests.support.push_sites import IDLE, Served, site

KB_EACH, CPU_SHARE = 25.0, 0.02
TASKS = 500


def main() -> int:
    """Parse, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to look at them: two signs of life")
    parser.add_argument("--server", choices=["uvicorn", "daphne"], help="only this one")
    parser.add_argument("--redis", action="store_true", help="with a channel layer on a Redis of its own")
    options = parser.parse_args()
    many_files(options.streams + 500)
    kinds = [options.server] if options.server else ["uvicorn", "daphne"]
    say(
        f"{'server':8} {'streams':>7} {'opened/s':>8} {'kB each':>8} {'idle CPU':>8} {'threads':>7} {'connections':>11}"
    )
    return max([_measure(kind, options) for kind in kinds])


def _measure(kind: str, options: Any) -> int:
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        server = stack.enter_context(redis(folder / "redis")) if options.redis else None
        made = stack.enter_context(site("idle", folder / "site", None if server is None else layer(PUBSUB, server)))
        served = made.serve(kind, **IDLE)
        found = asyncio.run(_idle(served, options))
    problems = []
    if found["kb"] > KB_EACH:
        problems.append(f"more than {KB_EACH} kB for each stream")
    if found["cpu"] > CPU_SHARE:
        problems.append(f"more than {CPU_SHARE:.0%} of a core while nothing happens")
    say(
        f"{kind:8} {options.streams:7} {found['rate']:8.0f} {found['kb']:8.1f} {found['cpu']:8.2%}"
        f" {found['threads']:>7} {found['connections']:11}  {'; '.join(problems) or 'ok'}"
    )
    return 1 if problems else 0


async def _idle(served: Served, options: Any) -> dict[str, Any]:
    tasks = await asyncio.to_thread(served.holds, TASKS)
    mark = b"notifications/tasks"

    def asking(count: int) -> list[bytes]:
        return [listening(served.url, served.alice, [tasks[n % TASKS]]) for n in range(count)]

    # What the first listeners of a process cost is not what each costs.
    for stream in await open_streams(served.url, asking(100), mark):
        stream.transport.close()
    await asyncio.sleep(2)
    before = await asyncio.to_thread(served.numbers, collect=True)
    began = time.perf_counter()
    streams = await open_streams(served.url, asking(options.streams), mark)
    rate = options.streams / (time.perf_counter() - began)
    await asyncio.sleep(3)
    full = await asyncio.to_thread(served.numbers, collect=True)
    if full["subscriptions"] != options.streams:
        raise RuntimeError(f"{full['subscriptions']} of {options.streams} listen")
    start, started = time.perf_counter(), await asyncio.to_thread(served.numbers)
    await asyncio.sleep(options.seconds)
    ended, end = await asyncio.to_thread(served.numbers), time.perf_counter()
    for stream in streams:
        stream.transport.abort()
    return {
        "rate": rate,
        "kb": (full["rss_kb"] - before["rss_kb"]) / options.streams,
        "cpu": (ended["cpu_seconds"] - started["cpu_seconds"]) / (end - start),
        "threads": f"+{len(ended['threads']) - len(before['threads'])}",
        "connections": ended["database_files"],
    }


if __name__ == "__main__":
    sys.exit(main())
