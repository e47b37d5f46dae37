"""The demo site as a process that a test may stop and start again on its port."""

import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

from tests.support.servers import ROOT, START_SECONDS, free_port, manage
from tests.support.template import spawn

END_SECONDS = 20.0


class Demo:
    """``manage.py demo`` with a folder, and so a database, of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "demo.log"
        self._environment = {"DJANGO_SETTINGS_MODULE": "project.settings", "MCP_TASKS_DEMO_DIR": str(folder / "demo")}
        self._database = folder / "demo" / "demo.sqlite3"
        self._process: subprocess.Popen[bytes] | None = None
        lines = manage(self._environment, "demo", "--show-tokens").splitlines()
        self.tokens = dict(line.split() for line in lines)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def log(self) -> str:
        """What the process has printed so far."""
        return self._log.read_text()

    def start(self) -> None:
        """Start it, unless it runs, and wait until it listens."""
        if self._process is not None:
            return
        command = [str(ROOT / "manage.py"), "demo", "--port", str(self.port)]
        with self._log.open("ab") as output:
            self._process = spawn(command, self._environment, stdout=output)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.stop(signal.SIGKILL)
        raise AssertionError(f"the demo did not start: {self.log[-2000:]}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal and wait for the end; nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the demo did not end by itself: {self.log[-2000:]}") from None

    def withdraw_token(self, name: str) -> None:
        """Take a user's token away, behind the back of the process."""
        with closing(sqlite3.connect(self._database, timeout=20)) as connection:
            deleted = connection.execute("DELETE FROM authtoken_token WHERE key = ?", [self.tokens[name]])
            assert deleted.rowcount == 1
            connection.commit()
