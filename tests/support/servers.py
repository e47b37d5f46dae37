"""Real server processes for tests: started on a free port, waited for, and always ended."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from tests.support.template import ROOT, spawn

START_SECONDS = 30.0
DEMO = "project.asgi:application"


@dataclass(slots=True)
class Server:
    """One process that serves the demo site."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def send(self, number: int) -> None:
        """Send a signal, if the process still lives."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, number: int = signal.SIGKILL, timeout_seconds: float = 20.0) -> int:
        """Send a signal and wait for the end; returns the exit status."""
        self.send(number)
        try:
            return self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not end by itself: {self.log.read_text()[-2000:]}") from None


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def manage(environment: Mapping[str, str], *arguments: str) -> str:
    """Run ``manage.py`` with an environment; returns what it printed."""
    with TemporaryFile() as output, TemporaryFile() as errors:
        status = spawn([str(ROOT / "manage.py"), *arguments], environment, stdout=output, stderr=errors).wait()
        assert status == 0, _said(errors)
        return _said(output)


def _said(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


@contextmanager
def serving(
    environment: Mapping[str, str],
    folder: Path,
    *,
    kind: str = "uvicorn",
    application: str = DEMO,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """
    A server for the length of a block: ``uvicorn`` (it has a lifespan), ``daphne``, the ``demo`` command, or
    ``runserver``, which knows no ASGI. It is given further options of its own.
    """
    server = start(environment, folder, kind=kind, application=application, options=options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGCONT)
            server.end()


def start(
    environment: Mapping[str, str],
    folder: Path,
    *,
    kind: str = "uvicorn",
    application: str = DEMO,
    options: Sequence[str] = (),
) -> Server:
    """Start a server and wait until it answers; the caller ends it."""
    port = free_port()
    log = folder / f"server-{port}.log"
    commands = {
        "uvicorn": ["-m", "uvicorn", application, "--port", str(port), "--log-level", "warning"],
        "daphne": ["-m", "daphne", "-p", str(port), application],
        "demo": [str(ROOT / "manage.py"), "demo", "--port", str(port)],
        "runserver": [str(ROOT / "manage.py"), "runserver", "--noreload", str(port)],
    }
    with log.open("wb") as output:
        process = spawn([*commands[kind], *options], environment, stdout=output)
    server = Server(process, port, log)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return server
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise AssertionError(f"the server did not start: {log.read_text()[-2000:]}")
