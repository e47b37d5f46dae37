"""Projects built from what the documentation says, in a temporary folder, and a shell that follows its steps."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from .pages import Block

#: Wherever this stands in an expected answer, any value is right.
ANY = "…"
_DONE = "\x1e"

_CURL = '''#!/usr/bin/env python3
"""As much of curl as the pages use, for machines without it."""
import sys, threading, os, urllib.error, urllib.request
words, url, headers, data = iter(sys.argv[1:]), None, {}, None
for word in words:
    if word == "-H":
        name, _, value = next(words).partition(":")
        if value.strip():
            headers[name] = value.strip()
    elif word == "-d":
        data = next(words).encode()
    elif word == "--max-time":
        limit = threading.Timer(float(next(words)), os._exit, [28])
        limit.daemon = True
        limit.start()
    elif not word.startswith("-"):
        url = word
try:
    reply = urllib.request.urlopen(urllib.request.Request(url, data, headers))
except urllib.error.HTTPError as error:
    reply = error
while chunk := reply.read1():
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
'''


def environment(folder: Path) -> dict[str, str]:
    """As in a terminal with this virtual environment active: nothing of the test run's own Django."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTEST_", "MCP_"))}
    kept.pop("DATABASE_URL", None)
    path = [str(Path(sys.executable).parent), kept.get("PATH", "")]
    if shutil.which("curl") is None:
        stand_in = folder / ".bin" / "curl"
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text(_CURL)
        stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
        path.append(str(stand_in.parent))
    return {**kept, "PATH": os.pathsep.join(path), "PYTHONWARNINGS": "default"}


def write(folder: Path, block: Block) -> None:
    """Put a module, or the continuation of one, where its mark says."""
    target = folder / block.target
    target.parent.mkdir(parents=True, exist_ok=True)
    if block.mark == "append" and target.exists():
        target.write_text(f"{target.read_text()}\n\n{block.text}")
    else:
        target.write_text(block.text)


def run(folder: Path, *command: str) -> str:
    """Run a command to its end; fails with all that it printed."""
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Terminal:
    """A shell that keeps its variables and functions from step to step, and servers beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = environment(folder)
        self._shell = subprocess.Popen(
            ["sh"],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._shell.communicate("exit\n", timeout=10)

    def run(self, step: str) -> str:
        """What a step printed, errors included; fails when its last command did."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{step}\nprintf '%s%s\\n' '{_DONE}' $?\n")
        self._shell.stdin.flush()
        printed = []
        for line in self._shell.stdout:
            before, done, status = line.partition(_DONE)
            printed.append(before)
            if done:
                assert status.strip() == "0", f"{step}\n{''.join(printed)}"
                return "".join(printed).strip()
        raise AssertionError(f"the shell has ended after\n{step}\n{''.join(printed)}")

    def serve(self, command: str, port: int) -> None:
        """Start a server and wait until it listens."""
        self.stop()
        log = (self._folder / "server.log").open("ab")
        with log:
            self._server = subprocess.Popen(
                shlex.split(command), cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._server.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.05)
        raise AssertionError(f"{command} does not listen\n{(self._folder / 'server.log').read_text()}")

    def stop(self) -> None:
        """Ctrl-C."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            try:
                self._server.wait(10)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None


def difference(printed: str, expected: Block) -> str | None:
    """How an output differs from what a page says it is; None when it does not."""
    if expected.language != "json":
        wanted = re.escape(expected.text.strip()).replace(re.escape(ANY), ".*")
        return None if re.fullmatch(wanted, printed.strip()) else f"not {expected.text.strip()!r}"
    try:
        return _difference(json.loads(printed), json.loads(expected.text), "$")
    except ValueError as problem:
        return f"no JSON: {problem}"


def _difference(got: Any, wanted: Any, where: str) -> str | None:
    if wanted == ANY:
        return None
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        if list(got) != list(wanted):
            return f"{where} has {', '.join(got)}, not {', '.join(wanted)}"
        pairs = [(got[name], wanted[name], f"{where}.{name}") for name in wanted]
    elif isinstance(wanted, list) and isinstance(got, list) and len(got) == len(wanted):
        pairs = [(one, other, f"{where}[{index}]") for index, (one, other) in enumerate(zip(got, wanted, strict=True))]
    else:
        return None if got == wanted and type(got) is type(wanted) else f"{where} is {got!r}, not {wanted!r}"
    return next((problem for pair in pairs if (problem := _difference(*pair)) is not None), None)
