"""What a test of push needs of its machine, and a Redis server of its own that it may stop and start."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import free_port


def need(*, there: bool, why: str) -> None:
    """Skip with this reason where something is missing; fail where MCP_TASKS_REQUIRE_ALL says that nothing may be."""
    if there:
        return
    if os.environ.get("MCP_TASKS_REQUIRE_ALL"):
        pytest.fail(f"MCP_TASKS_REQUIRE_ALL is set, but {why}")
    pytest.skip(why)


@dataclass(slots=True)
class Redis:
    """One server, that keeps nothing on disk."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = ["redis-server", "--port", str(self.port), "--dir", str(self.folder), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--maxclients", "500"]
        log = self.folder / "redis.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                assert self.ask("PING") == "PONG"
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError(f"Redis did not start: {log.read_text()[-2000:]}")

    def stop(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def ask(self, *words: str) -> Any:
        """One command over a connection of its own; an array as a list."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            with connection.makefile("rb") as answer:
                return _read(answer)

    def memberships(self) -> int:
        """How many tasks the processes hear of, whichever kind of layer they have; one per process and task."""
        core = sum(self.ask("ZCARD", key) for key in self.ask("KEYS", "*group:mcp_tasks.task.*"))
        channels = self.ask("PUBSUB", "CHANNELS", "*group__mcp_tasks.task.*")
        counts = self.ask("PUBSUB", "NUMSUB", *channels)[1::2] if channels else []
        return sum(counts) + core


def _read(answer: Any) -> Any:
    line = answer.readline().decode().rstrip("\r\n")
    kind, rest = line[0], line[1:]
    if kind == "*":
        return [_read(answer) for _ in range(int(rest))]
    if kind == "$":
        return answer.read(int(rest) + 2)[:-2].decode()
    if kind == "-":
        raise AssertionError(rest)
    return int(rest) if kind == ":" else rest


@contextmanager
def redis(folder: Path) -> Iterator[Redis]:
    """A Redis for the length of a block."""
    need(there=shutil.which("redis-server") is not None, why="there is no redis-server on this machine")
    folder.mkdir(exist_ok=True)
    server = Redis(folder, free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop()


PUBSUB = "channels_redis.pubsub.RedisPubSubChannelLayer"
CORE = "channels_redis.core.RedisChannelLayer"
DROPPING = "tests.support.push_site.layers.DroppingLayer"


def layer(backend: str, server: Redis, **options: Any) -> dict[str, Any]:
    """The setting of a layer on this Redis."""
    return {"BACKEND": backend, "CONFIG": {"hosts": [f"redis://127.0.0.1:{server.port}"], **options}}
