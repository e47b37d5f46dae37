"""Idle listeners take no connection of a database that has few."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.databases import Database
from tests.support.push_clients import Socket, Sse
from tests.support.push_needs import PUBSUB, layer, need, redis
from tests.support.push_sites import IDLE, Served, Site

pytestmark = pytest.mark.xdist_group("push connections")

CONNECTIONS, LISTENERS, CALLERS = 20, 100, 16
#: Threads that serve requests, legs and their heartbeat, the sweep, the hub, and the test's own.
AT_MOST = 15


@dataclass(slots=True)
class Limited:
    """A database that belongs to a role with few connections."""

    made: Database
    role: str
    url: str

    def connections(self) -> int:
        """How many the role has open."""
        import psycopg

        with psycopg.connect(self.url, dbname="postgres", autocommit=True) as connection:
            found = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", [self.role])
            row = found.fetchone()
            assert row is not None
            count: int = row[0]
            return count


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    psycopg: Any = pytest.importorskip("psycopg")
    url = os.environ.get("DATABASE_URL") or "postgresql:///postgres"
    why = "there is no PostgreSQL where roles can be made: name one in DATABASE_URL"
    name = f"push_limited_{os.getpid()}"
    statements = [
        f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)',
        f'DROP ROLE IF EXISTS "{name}"',
        f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{name}' CONNECTION LIMIT {CONNECTIONS}",
        f'CREATE DATABASE "{name}" OWNER "{name}"',
    ]
    try:
        with psycopg.connect(url, dbname="postgres", autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)
            info = connection.info
            settings = {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": name,
                "USER": name,
                "PASSWORD": name,
                "HOST": info.host if info.host.startswith("/") else "127.0.0.1",
                "PORT": str(info.port),
            }
        where = {"dbname": name, "user": name, "password": name, "host": settings["HOST"], "port": settings["PORT"]}
        psycopg.connect(**where).close()
    except psycopg.Error as problem:
        need(there=False, why=f"{why} ({problem})")
    environment = {"FAULTS_DATABASE": json.dumps(settings), "MCP_TASKS_DEMO_DIR": str(tmp_path / "demo")}
    try:
        yield Limited(Database(settings, environment), name, url)
    finally:
        with psycopg.connect(url, dbname="postgres", autocommit=True) as connection:
            for statement in statements[:2]:
                connection.execute(statement)


@pytest.mark.parametrize("kind", ["uvicorn", "daphne"])
def test_a_hundred_idle_listeners_take_no_connections_from_those_who_work(
    kind: str, limited: Limited, tmp_path: Path
) -> None:
    with redis(tmp_path / "redis") as server, ExitStack() as stack:
        site = Site(limited.made, tmp_path, stack, layer(PUBSUB, server))
        served = site.serve(kind)
        asyncio.run(_scenario(served, limited))


async def _scenario(served: Served, limited: Limited) -> None:
    task = served.hold()
    others = await asyncio.to_thread(served.holds, 20)
    listeners: list[Any] = []
    for n in range(LISTENERS):
        kind: Any = Socket if n % 4 == 0 else Sse
        listeners.append(await kind.open(served.url, served.alice, [task, others[n % 20]]))
    await asyncio.gather(*(listener.until_listening(2) for listener in listeners))
    most, stop = 0, False

    async def count() -> None:
        nonlocal most
        while not stop:
            most = max(most, await asyncio.to_thread(limited.connections))
            await asyncio.sleep(0.05)

    counting = asyncio.ensure_future(count())

    def work() -> float:
        slowest = 0.0
        for _ in range(3):
            began = time.monotonic()
            assert served.alice.call_tool("add", {"a": 1, "b": 2})["content"][0]["text"] == "3"
            made = served.alice.call_tool("slow_echo", {"text": "hi", "seconds": 0.1})["taskId"]
            assert served.alice.get_task(made)["status"] in ("working", "completed")
            slowest = max(slowest, time.monotonic() - began)
            assert served.alice.wait_for(made)["status"] == "completed"
        return slowest

    slowest = await asyncio.gather(*(asyncio.to_thread(work) for _ in range(CALLERS)))
    assert max(slowest) < 5.0
    await asyncio.to_thread(served.alice.cancel_task, task)
    ends = await asyncio.gather(*(listener.until_terminal(task, 5) for listener in listeners))
    assert {end["status"] for end in ends} == {"cancelled"}
    stop = True
    await counting
    assert most <= AT_MOST, f"{most} connections"
    assert "too many connections" not in served.server.log.read_text()
    for listener in listeners:
        listener.vanish()


def test_a_server_on_which_nobody_does_anything_keeps_few_connections(limited: Limited, tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        task = served.hold()
        listeners = [await Sse.open(served.url, served.alice, [task]) for _ in range(LISTENERS)]
        await asyncio.gather(*(listener.until_listening() for listener in listeners))
        await asyncio.sleep(1)
        # The lanes keep theirs, and the hub its one.
        assert limited.connections() <= 6, limited.connections()
        for listener in listeners:
            listener.vanish()

    with ExitStack() as stack:
        asyncio.run(scenario(Site(limited.made, tmp_path, stack, None).serve(**IDLE)))
