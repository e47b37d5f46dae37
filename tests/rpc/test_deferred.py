"""``DeferredTask``: this is a task now, and somebody else does the work."""

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from mcp_tasks import DeferredTask, TaskContext
from mcp_tasks import tasks as worker
from mcp_tasks.models import Task
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient
from mcp_tasks.tools.registry import registry

from .questions import accept, form

Register = Callable[..., Any]
KEY = "django-mcp-tasks/idempotencyKey"


class Broker:
    """Whoever is handed the work: remembers it, or fails."""

    def __init__(self) -> None:
        self.jobs: list[UUID] = []
        self.problem: Exception | None = None
        self.attributes: dict[str, Any] = {}

    def start(self, ref: UUID) -> None:
        assert Task.objects.filter(pk=ref).exists()
        if self.problem is not None:
            raise self.problem
        self.jobs.append(ref)


@pytest.fixture
def broker(mcp_tools: Register) -> Broker:
    broker = Broker()

    @mcp_tools(inline_first=True)
    def export(ctx: TaskContext) -> DeferredTask:
        return DeferredTask(start=broker.start, **broker.attributes)

    @mcp_tools(name="export_leg")
    async def export_leg() -> DeferredTask:
        return DeferredTask(start=broker.start, **broker.attributes)

    @mcp_tools(task="never")
    def export_never() -> DeferredTask:
        return DeferredTask(start=broker.start)

    return broker


@pytest.fixture(params=["export", "export_leg"])
def tool(request: pytest.FixtureRequest) -> str:
    """Handed over inside of the request, and by the first leg of a task."""
    return str(request.param)


def handed_over(client: McpClient, tool: str = "export", **meta: Any) -> tuple[str, UUID]:
    created = client.request("tools/call", {"name": tool, "arguments": {}}, **meta)
    assert (created["resultType"], created["status"]) == ("task", "working")
    run_until_idle()
    return created["taskId"], ref_of(created["taskId"])


def test_the_work_is_handed_over_by_the_name_that_only_servers_know(
    alice: McpClient, broker: Broker, tool: str
) -> None:
    task_id, ref = handed_over(alice, tool)
    assert broker.jobs == [ref]
    assert task_id not in str(ref)
    assert alice.get_task(task_id)["status"] == "working"
    assert run_until_idle() == 0
    assert Task.objects.get().due_at is None  # no lease: whoever works on it has no deadline but the ttl


def test_the_worker_api_drives_a_task_through_progress_a_question_and_its_result(
    alice: McpClient, broker: Broker, tool: str
) -> None:
    task_id, ref = handed_over(alice, tool)
    assert worker.progress(ref, "Reading", done=1, total=2)
    task = alice.get_task(task_id)
    assert (task["statusMessage"], task["_meta"]["django-mcp-tasks/progress"]) == ("Reading", {"done": 1, "total": 2})
    assert worker.require_input(ref, {"go": form("Go on?", go="boolean")}, status_message="Waiting")
    task = alice.get_task(task_id)
    assert (task["status"], task["statusMessage"]) == ("input_required", "Waiting")
    assert task["inputRequests"] == {"go": form("Go on?", go="boolean")}
    with pytest.raises(McpError):
        alice.update_task(task_id, {"go": accept(go="perhaps")})
    alice.update_task(task_id, {"go": accept(go=True)})
    assert alice.get_task(task_id)["status"] == "working"
    assert run_until_idle() == 0
    found = worker.status(ref)
    assert found is not None
    assert (found.status, found.answers) == ("working", {"go": accept(go=True)})
    assert not worker.cancelled(ref)
    assert worker.complete(ref, {"rows": 3}, status_message="All read")
    task = alice.get_task(task_id)
    assert (task["status"], task["statusMessage"]) == ("completed", "All read")
    assert task["result"] == {
        "content": [{"type": "text", "text": '{"rows":3}'}],
        "structuredContent": {"rows": 3},
        "resultType": "complete",
    }
    assert worker.wait(ref, 0) is not None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("the disk is full", {"code": -32603, "message": "the disk is full"}),
        (McpError(7, "no", {"a": 1}), {"code": 7, "message": "no", "data": {"a": 1}}),
    ],
)
def test_the_worker_api_fails_a_task(alice: McpClient, broker: Broker, error: Any, expected: dict[str, Any]) -> None:
    task_id, ref = handed_over(alice)
    assert worker.fail(ref, error)
    assert alice.get_task(task_id)["error"] == expected


def test_what_comes_after_an_outcome_is_not_applied(alice: McpClient, broker: Broker) -> None:
    task_id, ref = handed_over(alice)
    alice.cancel_task(task_id)
    assert worker.cancelled(ref)
    outcomes = [
        worker.complete(ref, "x"),
        worker.fail(ref, "x"),
        worker.progress(ref, "x"),
        worker.require_input(ref, {"go": form("?")}),
    ]
    assert [(bool(outcome), outcome.why) for outcome in outcomes] == [(False, "terminal")] * 4
    assert alice.get_task(task_id)["status"] == "cancelled"


@pytest.mark.parametrize("gone", ["expired", "unknown"])
def test_what_comes_after_the_ttl_is_not_applied(alice: McpClient, broker: Broker, gone: str) -> None:
    _, ref = handed_over(alice)
    if gone == "expired":
        rewind(ref, 3601)
    else:
        ref = UUID(int=5)
    before = Task.objects.values().get()
    assert worker.status(ref) is None
    assert not worker.cancelled(ref)
    assert not worker.complete(ref, "x")
    assert not worker.fail(ref, "x")
    assert not worker.progress(ref, "x")
    assert not worker.require_input(ref, {"go": form("?")})
    assert worker.set_ttl(ref, 9_000_000) is False
    assert worker.wait(ref, 0) is None
    assert Task.objects.values().get() == before


def test_to_wait_longer_than_allowed_is_a_timeout(alice: McpClient, broker: Broker) -> None:
    _, ref = handed_over(alice)
    with pytest.raises(TimeoutError):
        worker.wait(ref, 0.01)


@pytest.mark.django_db
def test_the_async_names_do_the_same(alice: McpClient, broker: Broker) -> None:
    from asgiref.sync import async_to_sync

    task_id, ref = handed_over(alice)
    assert async_to_sync(worker.aprogress)(ref, "Reading")
    assert async_to_sync(worker.arequire_input)(ref, {"go": form("?")})
    alice.update_task(task_id, {"go": {"action": "decline"}})
    assert async_to_sync(worker.astatus)(ref).answers == {"go": {"action": "decline"}}
    assert async_to_sync(worker.aset_ttl)(ref, 9_000_000)
    assert not async_to_sync(worker.acancelled)(ref)
    assert async_to_sync(worker.acomplete)(ref, "x")
    assert not async_to_sync(worker.afail)(ref, "x")
    assert alice.get_task(task_id)["ttlMs"] == 9_000_000


def test_what_is_said_of_the_task_is_shown(alice: McpClient, broker: Broker, tool: str) -> None:
    broker.attributes = {"ttl_ms": 60_000, "status_message": "Queued", "meta": {"com.example/queue": "slow"}}
    task_id, _ = handed_over(alice, tool)
    task = alice.get_task(task_id)
    assert (task["ttlMs"], task["statusMessage"], task["_meta"]["com.example/queue"]) == (60_000, "Queued", "slow")


def test_inside_of_the_request_it_is_said_in_the_creation_too(alice: McpClient, broker: Broker) -> None:
    broker.attributes = {"poll_interval_ms": 50, "status_message": "Queued", "meta": {"com.example/queue": "slow"}}
    created = alice.call_tool("export")
    assert (created["pollIntervalMs"], created["statusMessage"]) == (50, "Queued")
    assert created["_meta"]["com.example/queue"] == "slow"


def test_a_start_that_raises_fails_a_task_that_the_client_has(
    alice: McpClient, broker: Broker, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.problem = ConnectionError("broker at 10.0.0.9 down")
    task_id, _ = handed_over(alice, tool)
    answer = alice.post(alice.envelope("tasks/get", {"taskId": task_id}))
    task = answer.messages()[0]["result"]
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert task["statusMessage"]
    assert b"10.0.0.9" not in answer.body
    assert "10.0.0.9" in caplog.text


def test_a_job_that_is_done_before_start_returns_keeps_its_result(
    alice: McpClient, mcp_tools: Register, broker: Broker
) -> None:
    @mcp_tools(inline_first=True)
    def instant() -> DeferredTask:
        return DeferredTask(start=lambda ref: worker.complete(ref, "quick"))

    created = alice.call_tool("instant")
    assert (created["resultType"], created["status"]) == ("task", "working")
    assert "result" not in created
    assert alice.get_task(created["taskId"])["result"]["content"][0]["text"] == "quick"


def test_a_repeated_call_under_a_key_hands_nothing_over_again(alice: McpClient, broker: Broker) -> None:
    first, _ = handed_over(alice, **{KEY: "k"})
    second, _ = handed_over(alice, **{KEY: "k"})
    assert first == second
    assert len(broker.jobs) == 1


def test_of_a_tool_with_a_limit_no_more_jobs_are_started_than_may_run(
    alice: McpClient, mcp_tools: Register, broker: Broker
) -> None:
    @mcp_tools(name="limited", inline_first=True, max_running=1)
    def limited() -> DeferredTask:
        return DeferredTask(start=broker.start)

    made = [alice.call_tool("limited")["taskId"] for _ in range(3)]
    run_until_idle()
    assert len(broker.jobs) == 1
    assert worker.complete(broker.jobs[0], "done")
    run_until_idle()
    assert len(broker.jobs) == 2
    assert [alice.get_task(task_id)["status"] for task_id in made].count("completed") == 1


WRONG: list[dict[str, Any]] = [
    {"ttl": 5},
    {"ttl_ms": "5"},
    {"ttl_ms": 0},
    {"ttl_ms": -5},
    {"ttl_ms": True},
    {"ttl_ms": 1.5},
    {"poll_interval_ms": None},
    {"poll_interval_ms": 0},
    {"status_message": 5},
    {"meta": "x"},
    {"meta": None},
]


def refusal(client: McpClient, tool: str) -> tuple[int, int]:
    answer = client.post(client.envelope("tools/call", {"name": tool, "arguments": {}}))
    return answer.status, answer.messages()[0]["error"]["code"]


@pytest.mark.parametrize(
    "attributes",
    [*WRONG, {"meta": {"x": float("nan")}}, {"meta": {"x": object()}}],
)
def test_what_is_said_wrongly_is_the_tools_fault_and_makes_no_task(
    alice: McpClient, broker: Broker, caplog: pytest.LogCaptureFixture, attributes: dict[str, Any]
) -> None:
    broker.attributes = attributes
    assert refusal(alice, "export") == (200, -32603)
    assert not broker.jobs
    assert not Task.objects.exists()
    assert [record for record in caplog.records if record.levelno == logging.ERROR]


@pytest.mark.parametrize("attributes", WRONG)
def test_what_a_leg_says_wrongly_fails_its_task(alice: McpClient, broker: Broker, attributes: dict[str, Any]) -> None:
    broker.attributes = attributes
    task_id, _ = handed_over(alice, "export_leg")
    task = alice.get_task(task_id)
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert not broker.jobs


@pytest.mark.parametrize("ttl_ms", [10**12, None])
def test_a_longer_life_than_the_settings_allow_is_cut_to_theirs(
    alice: McpClient, broker: Broker, tool: str, configure: Callable[..., None], ttl_ms: int | None
) -> None:
    broker.attributes = {"ttl_ms": ttl_ms}
    task_id, _ = handed_over(alice, tool)
    assert alice.get_task(task_id)["ttlMs"] == 604_800_000
    configure(MAX_TTL_MS=None)
    task_id, _ = handed_over(alice, tool)
    assert alice.get_task(task_id)["ttlMs"] == ttl_ms


@pytest.mark.parametrize("start", [None, "send", 5])
def test_a_start_that_cannot_be_called_is_the_tools_fault(alice: McpClient, mcp_tools: Register, start: Any) -> None:
    @mcp_tools(inline_first=True)
    def wrong() -> DeferredTask:
        return DeferredTask(start=start)

    assert refusal(alice, "wrong") == (200, -32603)
    assert not Task.objects.exists()


@pytest.mark.parametrize("name", ["export", "export_leg"])
def test_a_client_without_the_extension_is_told_what_it_needs(alice: McpClient, broker: Broker, name: str) -> None:
    plain = alice.declaring({"elicitation": {}})
    answer = plain.post(plain.envelope("tools/call", {"name": name, "arguments": {}}))
    error = answer.messages()[0]["error"]
    assert (answer.status, error["code"]) == (400, -32021)
    assert error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    assert not broker.jobs
    assert not Task.objects.exists()


def test_where_no_task_can_be_made_it_is_the_tools_fault(
    alice: McpClient, broker: Broker, configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    assert refusal(alice, "export_never") == (200, -32603)
    configure(ENABLED=False)
    assert refusal(alice, "export") == (200, -32603)
    assert not broker.jobs
    assert not Task.objects.exists()
    assert [r.levelname for r in caplog.records if getattr(r, "event", "") == "tool_contract"] == ["ERROR"] * 2


def test_a_task_whose_tool_is_gone_cannot_be_completed_but_ends(alice: McpClient, broker: Broker) -> None:
    task_id, ref = handed_over(alice)
    registry.remove("export")
    worker.complete(ref, "x")
    task = alice.get_task(task_id)
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
