"""Two server processes on one database: nothing of a task depends on the process that made it."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing.client import McpClient
from tests.faults.databases import Database, database, kinds, recommended
from tests.support.servers import manage, serving

pytestmark = [
    pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite"),
    pytest.mark.xdist_group("two processes"),
]

APPROVED = {"approval": {"action": "accept", "content": {"approve": True}}}


@dataclass(frozen=True, slots=True)
class Site:
    """Clients of one user through each of two processes."""

    first: McpClient
    second: McpClient
    stranger: McpClient
    database: Database

    def column(self, task_id: str, name: str) -> object:
        """One column of a task's row."""
        ref: UUID = ref_of(task_id)
        # The vendors write a UUID differently; digits alone are the same in both.
        rows = self.database.query(f"SELECT {name} FROM mcp_tasks_task WHERE {_digits('ref')} = '{ref.hex}'")
        return rows[0][0]


def _digits(column: str) -> str:
    return f"REPLACE(CAST({column} AS TEXT), '-', '')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("two")
    with database(recommended(), f"two_{os.getpid()}", folder) as shared:
        tokens = dict(line.split() for line in manage(shared.environment, "demo", "--show-tokens").splitlines())
        with serving(shared.environment, folder) as one, serving(shared.environment, folder, kind="daphne") as two:
            yield Site(
                McpClient.http(one.url, token=tokens["alice"]),
                McpClient.http(two.url, token=tokens["alice"]),
                McpClient.http(two.url, token=tokens["bob"]),
                shared,
            )


def test_a_task_made_through_one_process_is_found_at_once_through_the_other(site: Site) -> None:
    for _ in range(20):
        created = site.first.call_tool("slow_echo", {"text": "hi", "seconds": 0})
        assert site.second.get_task(created["taskId"])["taskId"] == created["taskId"]


def test_a_question_asked_in_one_process_is_answered_through_the_other(site: Site) -> None:
    task_id = site.first.call_tool("needs_approval", {"service": "web"})["taskId"]
    question = site.second.wait_for(task_id, ("input_required",))["inputRequests"]
    assert list(question) == ["approval"]
    site.second.update_task(task_id, APPROVED)
    assert site.first.get_task(task_id)["status"] != "input_required"
    assert site.first.wait_for(task_id)["result"]["content"][0]["text"] == "deployed web"


def test_a_cancel_through_one_process_stops_the_handler_in_whichever_runs_it(site: Site) -> None:
    task_id = site.first.call_tool("countdown", {"n": 500})["taskId"]
    _until(lambda: site.column(task_id, "lease_holder") is not None)
    site.second.cancel_task(task_id)
    assert site.first.get_task(task_id)["status"] == "cancelled"
    # The holder is cleared when the handler has let go, which the heartbeat of its process tells it to.
    _until(lambda: site.column(task_id, "lease_holder") is None)


def test_a_stranger_learns_nothing_through_either(site: Site) -> None:
    task_id = site.first.call_tool("slow_echo", {"text": "mine", "seconds": 0})["taskId"]
    for call in (site.stranger.get_task, site.stranger.cancel_task):
        with pytest.raises(McpError, match="Task not found") as refused:
            call(task_id)
        assert refused.value.code == -32602
    assert site.second.wait_for(task_id)["status"] == "completed"


def test_many_tasks_are_shared_by_both_processes_and_each_runs_once(site: Site) -> None:
    ids = [site.first.call_tool("slow_echo", {"text": str(n), "seconds": 0.05})["taskId"] for n in range(30)]
    for n, task_id in enumerate(ids):
        assert site.second.wait_for(task_id)["result"]["content"][0]["text"] == str(n)
        assert site.column(task_id, "leg") == 1


def _until(true: Callable[[], bool], timeout_seconds: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.05)
