"""
The processes that tests start: each is forked from one that has imported everything.

A Python process of a Django site takes more than a second of a processor before it does anything, and the tests start
some hundreds. So each test process has a template, which imported what all sites need; that has one for each
environment, which read its settings and loaded its apps; and a process forked from this one begins where ``manage.py``
or ``python -m`` would. It is then a process as any other: a child of the test's, with its own signals, streams and exit
status. What begins with the very command that a reader types is tested with that command, in ``tests/docs``.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent.parent
#: What every site imports, and nothing of it looks at settings or at the environment meanwhile.
EVERYWHERE = (
    "asyncio",
    "channels.layers",
    "django.contrib.postgres.fields",
    "django.core.management",
    "django.core.serializers.json",
    "django.db.models",
    "django.forms",
    "jsonschema",
    "mcp_types",
    "pydantic",
    "redis.asyncio",
    "uvicorn",
)
#: These too, where they are installed.
PERHAPS = ("celery.app.base", "celery.bin.worker", "celery.worker", "kombu.transport.pyamqp", "kombu.transport.redis")
#: Templates of environments that are kept.
KEPT = 4
_MESSAGE_BYTES = 1 << 20
_PR_SET_CHILD_SUBREAPER = 36


# -- the side of the test -----------------------------------------------------------------------------------------


class Forked(subprocess.Popen[bytes]):
    """A process that somebody else forked, and that is a child of this process all the same."""

    def __init__(self, pid: int, arguments: Sequence[str]) -> None:
        # All that is used by poll, wait, send_signal and kill; nothing is started here.
        self.pid, self.args, self.returncode = pid, arguments, None  # type: ignore[assignment]
        self.stdin = self.stdout = self.stderr = None
        self._child_created = True
        self._waitpid_lock = threading.Lock()


class _Template:
    """The template of this process."""

    def __init__(self) -> None:
        # A process whose parent ended, as all that are forked twice, becomes a child of this one.
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "this process cannot have the children of its children")
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "tests.support.template", str(theirs.fileno())],
                cwd=ROOT,
                env=_environment({}),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                preexec_fn=_hears_the_keyboard,
            )
        self._asking = threading.Lock()
        atexit.register(self._end)

    def fork(self, wanted: dict[str, Any], streams: Sequence[int]) -> int:
        """A new process; its pid."""
        with self._asking:
            socket.send_fds(self._channel, [json.dumps(wanted).encode()], streams)
            answer = self._channel.recv(64)
        assert answer, "the template of processes has ended"
        return int(answer)

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


def _hears_the_keyboard() -> None:
    """A job in the background of a shell ignores SIGINT, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """That of this process and more. The name of the test that runs would make each a new one."""
    return {name: value for name, value in {**os.environ, **more}.items() if name != "PYTEST_CURRENT_TEST"}


_template: _Template | None = None
_making = threading.Lock()


def spawn(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdout: int | IO[Any],
    stderr: int | IO[Any] | None = None,
    stdin: int | IO[Any] | None = None,
    new_session: bool = False,
) -> "subprocess.Popen[bytes]":
    """
    Start ``python <arguments>`` with this environment besides the own: a script and its arguments, or ``-m`` and so on.

    Without ``stderr`` errors go where the output goes; without ``stdin`` there is no input.
    """
    global _template
    with _making:
        if _template is None:
            _template = _Template()
    wanted = {"arguments": [*arguments], "environment": _environment(environment), "new_session": new_session}
    with Path(os.devnull).open("rb") as nothing:
        streams = (nothing if stdin is None else stdin, stdout, stdout if stderr is None else stderr)
        numbers = [stream if isinstance(stream, int) else stream.fileno() for stream in streams]
        return Forked(_template.fork(wanted, numbers), arguments)


# -- the side of the template -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Asked:
    """A process that is wanted, and the streams that it is to have."""

    raw: bytes
    streams: list[int]

    @classmethod
    def next(cls, channel: socket.socket) -> "_Asked | None":
        """None when nobody asks any more."""
        raw, streams, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 3)
        return cls(raw, streams) if raw else None

    @property
    def wanted(self) -> dict[str, Any]:
        """As ``spawn`` made it."""
        found: dict[str, Any] = json.loads(self.raw)
        return found

    def close(self) -> None:
        for stream in self.streams:
            os.close(stream)


def main() -> None:
    """Import, and fork whatever is asked for. A process that was forked goes on from here too."""
    for name in EVERYWHERE:
        import_module(name)
    for name in PERHAPS:
        with suppress(ImportError):
            import_module(name)
    _keep()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _become(asked)


def _keep() -> None:
    """What is there by now stays: no child looks through it for garbage, and so copies it page by page."""
    gc.collect()
    gc.freeze()


def _serve(channel: socket.socket) -> _Asked | None:
    """Hand each request to the template of its environment; returns in what was forked, and at the end."""
    templates: dict[str, socket.socket] = {}
    while (asked := _Asked.next(channel)) is not None:
        environment = asked.wanted["environment"]
        key = json.dumps(environment, sort_keys=True)
        found = templates.pop(key, None)
        if found is None:
            found, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                asked.close()
                for other in (channel, found, *templates.values()):
                    other.close()
                return _serve_environment(theirs, environment)
            theirs.close()
        templates[key] = found  # the last one now
        while len(templates) > KEPT:
            templates.pop(next(iter(templates))).close()
        socket.send_fds(found, [asked.raw], asked.streams)
        asked.close()
        channel.send(found.recv(64))
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # templates that were let go
    return None


def _serve_environment(channel: socket.socket, environment: dict[str, str]) -> _Asked | None:
    """Load the apps of this environment, and fork what is asked for."""
    os.environ.clear()
    os.environ.update(environment)
    for place in reversed(environment.get("PYTHONPATH", "").split(os.pathsep)):
        if place and place not in sys.path:
            sys.path.insert(1, place)
    with suppress(Exception):  # what is wrong is said by each process, which sets up again
        import django

        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")  # as manage.py does
        django.setup()
    _keep()
    while (asked := _Asked.next(channel)) is not None:
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(writing, str(pid).encode())
                os._exit(0)
            for number in (reading, writing):
                os.close(number)
            channel.close()
            return asked
        os.waitpid(between, 0)
        asked.close()
        channel.send(os.read(reading, 64))
        for number in (reading, writing):
            os.close(number)
    return None


def _become(asked: _Asked) -> None:
    """Go on as ``python <arguments>`` would."""
    wanted = asked.wanted
    if wanted["new_session"]:
        os.setsid()
    for number, stream in enumerate(asked.streams):
        os.dup2(stream, number)
    asked.close()
    first, *rest = wanted["arguments"]
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main()
