"""Sites of real processes for tests of push: one database, any number of servers and of processes without one."""

import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mcp_tasks.testing.client import McpClient
from tests.faults.databases import Database, database, recommended
from tests.support.servers import Server, manage, serving
from tests.support.template import spawn

APPLICATION = "tests.support.push_site.asgi:application"
SETTINGS = "tests.support.push_site.settings"
#: A process that runs no legs, so that a test knows which does.
IDLE = {"RUNNER": {"BACKEND": "mcp_tasks.testing.IdleRunner"}}


class Process:
    """A process without a server that does what it is told."""

    def __init__(self, environment: dict[str, str]) -> None:
        its_input, told = os.pipe()
        heard, its_output = os.pipe()
        self._told, self._heard = os.fdopen(told, "w"), os.fdopen(heard)
        self._process = spawn(
            ["-m", "tests.support.push_site.process"], environment, stdin=its_input, stdout=its_output, stderr=2
        )
        os.close(its_input)
        os.close(its_output)
        assert self._hear() == "ready"

    def act(self, **command: Any) -> Any:
        """Do this, and return what came of it."""
        self.begin(**command)
        return self.hear()

    def begin(self, **command: Any) -> None:
        """Do this, and do not wait for it; ``hear`` does."""
        self._told.write(json.dumps(command) + "\n")
        self._told.flush()

    def hear(self) -> Any:
        """What came of what was begun."""
        return self._hear()

    def _hear(self) -> Any:
        line = self._heard.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def end(self) -> None:
        """End of its input, and of it."""
        self._told.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._heard.close()


class Site:
    """One database, with tokens; processes started on it end with it."""

    def __init__(
        self,
        made: Database,
        folder: Path,
        stack: ExitStack,
        channel_layer: dict[str, Any] | None,
        *,
        look_seconds: float | None = None,
    ) -> None:
        """``look_seconds``: how often each process looks for what no message told; else as often as it does."""
        self.database, self.folder, self._stack = made, folder, stack
        self.environment = {**made.environment, "DJANGO_SETTINGS_MODULE": SETTINGS}
        if channel_layer is not None:
            self.environment["PUSH_LAYER"] = json.dumps(channel_layer)
        if look_seconds is not None:
            self.environment["PUSH_LOOK_SECONDS"] = str(look_seconds)
        self.tokens = _prepared(made, self.environment)

    def serve(self, kind: str = "uvicorn", *arguments: str, **settings: Any) -> "Served":
        """A server on it; keyword arguments are keys of ``MCP_TASKS``."""
        environment = {**self.environment, "FAULTS_MCP_TASKS": json.dumps(settings)}
        server = serving(environment, self.folder, kind=kind, application=APPLICATION, options=arguments)
        return Served(self._stack.enter_context(server), self.tokens["alice"])

    def process(self, **settings: Any) -> Process:
        """A process without a server."""
        process = Process({**self.environment, "FAULTS_MCP_TASKS": json.dumps(settings)})
        self._stack.callback(process.end)
        return process


#: A database file with all tables and users, and their tokens: made once, and then copied.
_template: tuple[bytes, dict[str, str]] | None = None


def _prepared(made: Database, environment: dict[str, str]) -> dict[str, str]:
    """Make the tables and the users of an empty database; returns their tokens."""
    global _template
    path = Path(made.settings["NAME"]) if made.settings["ENGINE"].endswith("sqlite3") else None
    if path is not None and _template is not None:
        path.write_bytes(_template[0])
        return _template[1]
    lines = manage(environment, "demo", "--show-tokens").splitlines()
    tokens = dict(line.split() for line in lines)
    if path is not None:
        _template = path.read_bytes(), tokens
    return tokens


class Served:
    """One server of a site, as alice sees it and as a test does."""

    def __init__(self, server: Server, token: str) -> None:
        self.server, self.url = server, server.url
        self.alice = McpClient.http(server.url, token=token)

    def hold(self) -> str:
        """A task that nobody works at; its id."""
        task_id: str = self.alice.call_tool("hold")["taskId"]
        return task_id

    def holds(self, count: int) -> list[str]:
        """Several of them, made on a few threads."""
        made: list[str] = []

        def make() -> None:
            for _ in range(count // 4):
                made.append(self.hold())

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return made + [self.hold() for _ in range(count - len(made))]

    def act(self, **command: Any) -> Any:
        """Let the server's own process do this to tasks."""
        return self._get("/act", json.dumps(command).encode())

    def numbers(self, *, collect: bool = False) -> dict[str, Any]:
        """What the server's process holds."""
        found: dict[str, Any] = self._get("/numbers" + ("?collect" if collect else ""))
        return found

    def _get(self, path: str, body: bytes | None = None) -> Any:
        with urllib.request.urlopen(f"{self.url.removesuffix('/mcp')}{path}", body, timeout=120) as answer:
            return json.loads(answer.read())


@contextmanager
def site(
    name: str, folder: Path, channel_layer: dict[str, Any] | None = None, *, look_seconds: float | None = None
) -> Iterator[Site]:
    """A site for the length of a block."""
    folder.mkdir(exist_ok=True)
    with database(recommended(), f"push_{name}_{os.getpid()}", folder) as made, ExitStack() as stack:
        yield Site(made, folder, stack, channel_layer, look_seconds=look_seconds)


def until(true: Callable[[], Any], seconds: float, what: str = "it did not become so") -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"{what} within {seconds} s: {found!r}"
        time.sleep(0.1)
