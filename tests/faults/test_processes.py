"""One server process ends, or is frozen, in the middle of legs; another one on the same database takes over."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_tasks.store.types import ref_of
from mcp_tasks.testing.client import McpClient
from tests.faults.databases import Database, database, kinds, recommended
from tests.support.servers import Server, manage, serving

pytestmark = [
    pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite"),
    pytest.mark.xdist_group("processes"),
]

#: Longer than any test: what comes back sooner was given back, not taken.
LONG_LEASE = {"LEASE_SECONDS": 300, "HEARTBEAT_SECONDS": 60}


class Site:
    """A database with tokens, and servers on it."""

    def __init__(self, made: Database, folder: Path) -> None:
        self.database, self.folder = made, folder
        self.token = manage(made.environment, "demo", "--show-tokens").split()[1]

    def serving(self, kind: str = "uvicorn", **settings: Any) -> Any:
        environment = {**self.database.environment, "FAULTS_MCP_TASKS": json.dumps(settings)}
        return serving(environment, self.folder, kind=kind)

    def client(self, server: Server) -> McpClient:
        return McpClient.http(server.url, token=self.token)

    def row(self, task_id: str) -> dict[str, Any]:
        """The state of a task, straight from its table."""
        columns = ("phase", "status", "leg", "attempts", "lease_holder")
        statement = f"SELECT {', '.join(columns)} FROM mcp_tasks_task WHERE {_is('ref', task_id)}"
        return dict(zip(columns, self.database.query(statement)[0], strict=True))

    def events(self, task_id: str) -> list[str]:
        """The timeline of a task."""
        statement = f"SELECT kind FROM mcp_tasks_taskevent WHERE {_is('task_id', task_id)} ORDER BY id"
        return [kind for (kind,) in self.database.query(statement)]


def _is(column: str, task_id: str) -> str:
    """SQLite keeps a UUID as text without hyphens, PostgreSQL as a UUID."""
    return f"REPLACE(CAST({column} AS TEXT), '-', '') = '{ref_of(task_id).hex}'"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all tests, since migrating takes longer than most of them; each looks at tasks of its own only."""
    folder = tmp_path_factory.mktemp("site")
    with database(recommended(), f"processes_{os.getpid()}", folder) as made:
        yield Site(made, folder)


def until(true: Callable[[], bool], timeout_seconds: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["uvicorn", "demo"])
def test_a_server_that_is_told_to_stop_gives_back_what_may_be_run_again(site: Site, kind: str) -> None:
    with site.serving(kind, **LONG_LEASE) as first:
        client = site.client(first)
        patient = client.call_tool("patient", {"seconds": 30})["taskId"]
        stubborn = client.call_tool("stubborn", {"seconds": 30})["taskId"]
        charge = client.call_tool("charge", {"text": "once", "seconds": 30})["taskId"]
        until(lambda: all(site.row(task_id)["phase"] == "running" for task_id in (patient, stubborn, charge)))
        assert first.end(signal.SIGTERM) in (0, -signal.SIGTERM)
    released = site.row(patient)
    assert (released["phase"], released["attempts"], released["lease_holder"]) == ("queued", 0, None)
    # Whoever did not stop, or may not run twice, keeps its lease: nothing was stored for it, no exception either.
    for task_id in (stubborn, charge):
        assert (site.row(task_id)["phase"], site.row(task_id)["status"]) == ("running", "working")
    with site.serving(**LONG_LEASE) as second:
        until(lambda: site.row(patient)["leg"] == 2)
        site.client(second).cancel_task(patient)


def test_what_a_handler_raises_because_its_process_ends_is_no_outcome(site: Site) -> None:
    # The demo ends as a program does, by the interpreter's own exit; uvicorn ends by its signal.
    with site.serving("demo", **LONG_LEASE) as server:
        client = site.client(server)
        # While the exit waits for the thread of the second one, the first one is refused another thread.
        steps = [{"seconds": 60, "step_seconds": step} for step in (0.2, 12)]
        task_ids = [client.call_tool("threaded", arguments)["taskId"] for arguments in steps]
        until(lambda: all(site.row(task_id)["phase"] == "running" for task_id in task_ids))
        server.end(signal.SIGTERM, timeout_seconds=40)
    for task_id in task_ids:
        row = site.row(task_id)
        assert (row["phase"], row["status"], row["leg"]) == ("running", "working", 1), site.events(task_id)


def test_a_task_that_waits_for_its_human_does_not_mind_the_restart(site: Site) -> None:
    with site.serving() as first:
        task_id = site.client(first).call_tool("needs_approval", {"service": "web"})["taskId"]
        before = site.client(first).wait_for(task_id, ("input_required",))
        first.end(signal.SIGKILL)
    with site.serving() as second:
        client = site.client(second)
        assert client.get_task(task_id) == before
        client.update_task(task_id, {"approval": {"action": "accept", "content": {"approve": True}}})
        assert client.wait_for(task_id)["result"]["content"][0]["text"] == "deployed web"


def test_a_killed_leg_that_may_not_run_again_fails_with_a_reason(site: Site) -> None:
    with site.serving() as first:
        task_id = site.client(first).call_tool("charge", {"text": "once", "seconds": 60})["taskId"]
        until(lambda: site.row(task_id)["phase"] == "running")
        first.end(signal.SIGKILL)
    with site.serving() as second:
        task = site.client(second).wait_for(task_id, timeout_seconds=20)
    assert task["status"] == "failed"
    assert task["error"]["code"] == -32603
    assert task["statusMessage"]


def test_a_frozen_leg_is_taken_over_and_its_late_result_dropped(site: Site) -> None:
    with site.serving() as first, site.serving() as second:
        # One of the two claims it; whichever it is gets frozen.
        task_id = site.client(first).call_tool("stubborn", {"seconds": 4})["taskId"]
        until(lambda: site.client(first).get_task(task_id).get("statusMessage") == "at work")
        holder = int(site.row(task_id)["lease_holder"].rsplit(":", 1)[1])
        frozen, other = (first, second) if holder == first.process.pid else (second, first)
        with site.database.frozen(frozen.send):
            until(lambda: site.row(task_id)["leg"] == 2)
        task = site.client(other).wait_for(task_id, timeout_seconds=30)
        assert task["result"]["content"][0]["text"] == "done on leg 2"
        until(lambda: "late_result" in site.events(task_id))  # the frozen handler has ended too
        assert site.client(frozen).get_task(task_id) == task
    assert site.events(task_id).count("completed") == 1
