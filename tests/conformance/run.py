#!/usr/bin/env python
"""
Run the official MCP conformance suite: ``python tests/conformance/run.py [URL]``.

Without a URL the fixture server is started for it. npm installs the suite, and Node 22 where there is none,
once, into ``CONFORMANCE_CACHE`` or the user's cache folder. The verdict is made from the suite's records of
every check, because its exit status leaves out the scenarios of the tasks extension.

Exit status: 0 when the numbers are those promised below, 1 when they are not, 2 when it could not run.
But for 2 the last line is always ``checks: P passed, F failed, S skipped``.
"""

import argparse
import http.client
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SUITE = "@modelcontextprotocol/conformance"
SUITE_VERSION = "0.2.0-alpha.12"
REVISION = "2026-07-28"
NODE_MAJOR = 22
#: What npm's packages of Node call a machine.
NODE_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}

START_SECONDS = 60
#: The whole run takes some 15 seconds.
SUITE_SECONDS = 900
SCENARIO_MILLISECONDS = 60_000

ROOT = Path(__file__).resolve().parents[2]


class Numbers(NamedTuple):
    """How many checks ended how. Warnings and notes are in none of them, so each also lowers ``passed``."""

    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


#: What this project promises. The one that is skipped is of task notifications, which the suite skips for every
#: server until it is rewritten.
PROMISED = Numbers(197, 0, 1)
PROMISED_FOR_TASKS = Numbers(44, 0, 1)


class CannotRun(Exception):
    """There is no verdict; the message says why."""


def main() -> int:
    """Parse the command line, run, and return the exit status."""
    parser = argparse.ArgumentParser(description="Run the official MCP conformance suite.")
    parser.add_argument("url", nargs="?", help="the endpoint to test; without it the fixtures are served")
    parser.add_argument("-o", "--output", type=Path, help="keep the suite's records and logs in this folder")
    options = parser.parse_args()
    if options.url is not None and not options.url.startswith(("http://", "https://")):
        parser.error(f"{options.url} is no URL")
    try:
        with tempfile.TemporaryDirectory(prefix="mcp-conformance-") as temporary:
            output = _empty_folder(options.output or Path(temporary) / "output")
            cache = cache_folder()
            command = [str(node(cache)), str(suite(cache))]
            if options.url:
                run_suite(command, options.url, output)
            else:
                with fixture_server(Path(temporary) / "site", output / "server.log") as url:
                    run_suite(command, url, output)
            return verdict(output)
    except (CannotRun, OSError) as problem:
        print(f"conformance: {problem}", file=sys.stderr)
        return 2


def _empty_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise CannotRun(f"{path} is not empty, and records of an earlier run would be counted")
    return path


# What is needed to run it


def cache_folder() -> Path:
    """Where packages are kept from run to run; raises CannotRun when no folder for it can be written."""
    named = os.environ.get("CONFORMANCE_CACHE")
    if named:
        candidates = [Path(named)]
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        temporary = Path(tempfile.gettempdir())
        candidates = [caches / "mcp-conformance", temporary / f"mcp-conformance-{os.getuid()}"]
    for folder in candidates:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        # Its programs are executed, so a folder that somebody else put there will not do.
        if os.access(folder, os.W_OK) and (named or folder.stat().st_uid == os.getuid()):
            return folder.resolve()
    raise CannotRun("no cache folder can be written; name one with CONFORMANCE_CACHE")


def node(cache: Path) -> Path:
    """The installed Node when it is new enough, else one from npm."""
    installed = shutil.which("node")
    if installed is not None:
        version = subprocess.run([installed, "--version"], capture_output=True, text=True, check=False).stdout
        major = re.match(r"v(\d+)\.", version)
        if major is not None and int(major[1]) >= NODE_MAJOR:
            return Path(installed)
    machine = NODE_MACHINES.get(platform.machine().lower())
    if machine is None:
        raise CannotRun(f"Node {NODE_MAJOR} or newer is needed")
    package = f"node-{platform.system().lower()}-{machine}"
    return npm_install(cache, package, str(NODE_MAJOR)) / "bin" / "node"


def suite(cache: Path) -> Path:
    """The suite's program."""
    return npm_install(cache, SUITE, SUITE_VERSION) / "dist" / "index.js"


def npm_install(cache: Path, package: str, version: str) -> Path:
    """The folder of a package in the cache, installed when it is not there yet."""
    target = cache / f"{package.rpartition('/')[2]}-{version}"
    if not target.is_dir():
        npm = shutil.which("npm")
        if npm is None:
            raise CannotRun(f"npm is needed to install {package}")
        print(f"installing {package}@{version}, once", file=sys.stderr)
        # Beside its place and then renamed: what is in place is complete, also when two runs start together.
        with tempfile.TemporaryDirectory(dir=cache, prefix=".install-") as temporary:
            fresh = Path(temporary) / "package"
            fresh.mkdir()
            (fresh / "package.json").write_text('{"private": true}')
            command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", f"{package}@{version}"]
            done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise CannotRun(f"npm could not install {package}@{version}:\n{done.stderr.strip()}")
            try:
                fresh.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
    return target / "node_modules" / package


# The server


@contextmanager
def fixture_server(site: Path, log: Path) -> Iterator[str]:
    """Serve the fixtures from a site of their own, until the end of the block; yields the endpoint's URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    site.mkdir()
    command = [sys.executable, "manage.py", "demo", "--settings=tests.conformance.settings", f"--port={port}"]
    environment = {**os.environ, "MCP_TASKS_DEMO_DIR": str(site)}
    with log.open("wb") as stream:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        deadline = time.monotonic() + START_SECONDS
        while not answers(url):
            if server.poll() is not None or time.monotonic() > deadline:
                raise CannotRun(f"the server did not start:\n{log.read_text(errors='replace').strip()}")
            time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def answers(url: str) -> bool:
    """Whether anything speaks HTTP at the URL, whatever it says."""
    # The suite goes to the server without a proxy, and so does this.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(url, data=b"{}", timeout=5).close()
    except urllib.error.HTTPError as refused:
        refused.close()
    except (OSError, http.client.HTTPException):
        return False
    return True


# The run


def run_suite(command: list[str], url: str, output: Path) -> None:
    """Run every scenario of the revision; the suite writes a folder with ``checks.json`` for each."""
    if not answers(url):
        raise CannotRun(f"nothing answers at {url}")
    print(f"conformance {SUITE_VERSION}, revision {REVISION}, against {url}", flush=True)
    # Not --spec-version: it silently leaves out every scenario of an extension.
    arguments = ["server", "--url", url, "--requirements", REVISION, "--timeout", str(SCENARIO_MILLISECONDS)]
    with (output / "suite.log").open("wb") as log:
        try:
            subprocess.run(
                [*command, *arguments, "-o", str(output)],
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=SUITE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CannotRun(f"the suite did not end within {SUITE_SECONDS} seconds") from None


def verdict(output: Path) -> int:
    """Print what is not right and the numbers; returns 0 when the numbers are those that are promised."""
    log = (output / "suite.log").read_text(errors="replace")
    scenarios = dict(sorted(records(output)))
    if not scenarios:
        raise CannotRun(f"the suite recorded nothing:\n{log.strip()}")
    for scenario, checks in scenarios.items():
        for check in checks:
            if check["status"] in ("FAILURE", "WARNING"):
                message = " ".join(str(check.get("errorMessage", "no message")).split())
                print(f"{check['status']} {scenario}: {check['id']}: {message}")
    # A scenario that broke off has no record: it shows in the log, and in the numbers by what they lack.
    for line in log.splitlines():
        if "Failed to run scenario" in line:
            print(line.strip())
    every = count(scenarios)
    tasks = count({name: checks for name, checks in scenarios.items() if name.startswith("tasks-")})
    kept = every == PROMISED and tasks == PROMISED_FOR_TASKS
    if not kept:
        print(f"promised: {PROMISED}; of these in scenarios of tasks: {PROMISED_FOR_TASKS}")
    print(f"tasks: {tasks}")
    print(f"checks: {every}")
    return 0 if kept else 1


def records(output: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each scenario's name with its checks."""
    for path in output.glob("server-*/checks.json"):
        name = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", path.parent.name)
        yield name, json.loads(path.read_text())


def count(scenarios: dict[str, list[dict[str, Any]]]) -> Numbers:
    """The numbers of some scenarios."""
    by_status = Counter(check["status"] for checks in scenarios.values() for check in checks)
    return Numbers(by_status["SUCCESS"], by_status["FAILURE"], by_status["SKIPPED"])


if __name__ == "__main__":
    sys.exit(main())
