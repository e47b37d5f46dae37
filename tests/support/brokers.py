"""Brokers for tests of engines: a RabbitMQ, found or started, and a door before it that a test may shut."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.push_needs import need
from tests.support.servers import free_port

_START_SECONDS = 60.0
#: Where Debian keeps the program that does not ask which user it is.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextmanager
def rabbitmq(folder: Path) -> Iterator[int]:
    """The port of a RabbitMQ that takes guests: the one of this machine, else one of its own for the block."""
    if _answers(5672):
        yield 5672
        return
    program = str(_PROGRAM) if _PROGRAM.exists() else shutil.which("rabbitmq-server")
    need(there=program is not None, why="there is no rabbitmq-server on this machine")
    assert program is not None
    folder.mkdir(exist_ok=True)
    port, name = free_port(), f"tests{os.getpid()}"
    environment = {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"{name}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        "ERL_EPMD_PORT": str(free_port()),
    }
    (folder / "plugins").write_text("[].")
    (folder / "rabbitmq-env.conf").touch()
    (folder / "rabbitmq.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{port}\n")
    log = folder / "out.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(port):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        _end_names(environment)


def _end_names(environment: dict[str, str]) -> None:
    """The daemon of Erlang that knows its nodes by name refuses to end while it knows one, for a moment longer."""
    for _ in range(50):
        done = subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, text=True, check=False)
        if "Killed" in done.stdout + done.stderr:
            return
        time.sleep(0.1)
    raise AssertionError(done.stdout + done.stderr)


def _answers(port: int) -> bool:
    """Whether a broker of AMQP is there: it answers a wrong greeting with the right one."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"HELLO   ")
            return connection.recv(4) == b"AMQP"
    except OSError:
        return False


class Door:
    """Connections to a port, through another one, until it is shut: then those that are open break, and none opens."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.start()

    def start(self) -> None:
        """Let everybody through."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """Throw everybody out."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            everybody, self._open = self._open, set()
        for one in everybody:
            _close(one)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            try:
                called = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                _close(caller)
                continue
            called.settimeout(None)
            with self._lock:
                self._open |= {caller, called}
            for one, other in ((caller, called), (called, caller)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        with self._lock:
            self._open -= {one, other}
        _close(one)
        _close(other)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
