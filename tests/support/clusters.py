"""A PostgreSQL of a test's own, which it may restart."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.push_needs import need
from tests.support.servers import free_port


def _programs() -> Path | None:
    """Where ``initdb`` and ``pg_ctl`` are; Debian keeps them out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    program = shutil.which("initdb")
    return None if program is None else Path(program).parent


@dataclass(slots=True)
class Cluster:
    """One server, and how to reach it."""

    programs: Path
    folder: Path
    port: int

    @property
    def settings(self) -> dict[str, Any]:
        """A database of it, as Django wants it."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "tester",
            "PASSWORD": "",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
        }

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=100"
        self._control("start", "-o", options, "-l", str(self.folder / "log"))

    def stop(self) -> None:
        """As a crash does it: whatever is not on the disk is gone, and so is every connection."""
        self._control("stop", "-m", "immediate")

    def _control(self, *arguments: str) -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", *arguments)

    def run(self, program: str, *arguments: str) -> None:
        """PostgreSQL's programs refuse to run as root."""
        command = [str(self.programs / program), *arguments]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        with (self.folder / "control.log").open("ab") as output:
            done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        assert done.returncode == 0, (self.folder / "control.log").read_text()[-2000:]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A server for the length of a block."""
    programs = _programs()
    need(there=programs is not None, why="there is no PostgreSQL server on this machine")
    assert programs is not None
    # Not in pytest's own folder, which it shuts for the user of PostgreSQL.
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-cluster-") as name:
        made = Cluster(programs, Path(name), free_port())
        if os.getuid() == 0:
            os.chown(name, pwd.getpwnam("postgres").pw_uid, -1)
        made.run("initdb", "-D", str(made.folder / "data"), "-A", "trust", "-U", "tester", "--no-sync")
        made.start()
        try:
            yield made
        finally:
            made.stop()
