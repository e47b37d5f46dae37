"""``tools/call``: what is refused before anything is stored, and who gets an answer, who a task."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from mcp_tasks import TaskContext
from mcp_tasks.models import OwnerGate, Task
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import rpc_client

TASKS = "io.modelcontextprotocol/tasks"
DECLARED = {"extensions": {TASKS: {}}}


@pytest.fixture
def runs(mcp_tools: Callable[..., Any]) -> list[str]:
    """The names of the tools that ran: one of each kind, all taking a number and a day."""
    ran: list[str] = []

    def add(kind: str, **options: Any) -> None:
        @mcp_tools(name=kind, **options)
        def run(number: int, day: date = date(2026, 1, 1)) -> str:
            ran.append(kind)
            return f"{number!r} {day!r}"

    for kind in ("never", "optional", "required"):
        add(kind, task=kind)
    add("quick", inline_first=True)
    return ran


def nothing_stored() -> bool:
    return not Task.objects.exists() and not OwnerGate.objects.exists()


def refusal(client: McpClient, params: dict[str, Any]) -> tuple[int, int]:
    message = client.envelope("tools/call", params)
    answer = client.post(message)
    (reply,) = answer.messages()
    assert reply["id"] == message["id"]
    return answer.status, reply["error"]["code"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": None},
        {"name": 5},
        {"name": ["never"]},
        {"name": ""},
        {"name": "nowhere"},
        {"name": "Never"},
        {"name": "never "},
        {"name": "x" * 100_000},
        {"name": "never", "arguments": None},
        {"name": "never", "arguments": []},
        {"name": "never", "arguments": "number=1"},
        {"name": "required", "arguments": 1},
    ],
)
def test_an_unknown_tool_and_arguments_of_a_wrong_shape_are_wrong_params(
    alice: McpClient, runs: list[str], params: dict[str, Any]
) -> None:
    assert refusal(alice, params) == (200, -32602)
    assert not runs
    assert nothing_stored()


def test_the_error_about_an_unknown_tool_repeats_only_the_beginning_of_its_name(alice: McpClient) -> None:
    with pytest.raises(McpError) as refused:
        alice.call_tool("x" * 100_000)
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("kind", ["never", "optional", "required", "quick"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"number": "soon"},
        {"number": "3"},
        {"number": 3.5},
        {"number": None},
        {"number": True},
        {"number": [3]},
        {"number": 3, "day": "tomorrow"},
        {"number": 3, "day": "2026-02-30"},
        {"number": 3, "day": 20260102},
        {"number": 3, "extra": 1},
    ],
)
def test_arguments_that_violate_the_schema_are_told_to_the_model_at_once(
    alice: McpClient, runs: list[str], kind: str, arguments: dict[str, Any]
) -> None:
    result = alice.call_tool(kind, arguments)
    assert (result["resultType"], result["isError"]) == ("complete", True)
    assert result["content"][0]["text"].startswith("Invalid arguments: ")
    assert "taskId" not in result
    assert not runs
    assert nothing_stored()


@pytest.mark.parametrize(("number", "day"), [(3, "2026-01-02"), (3.0, "2026-01-02"), (10**300, "2026-01-02")])
def test_arguments_are_converted_alike_inline_and_in_a_task(
    alice: McpClient, runs: list[str], number: float, day: str
) -> None:
    arguments = {"number": number, "day": day}
    inline = alice.call_tool("never", arguments)["content"]
    created = alice.call_tool("required", arguments)
    run_until_idle()
    assert alice.get_task(created["taskId"])["result"]["content"] == inline
    assert inline[0]["text"] == f"{int(number)!r} datetime.date(2026, 1, 2)"


def test_a_task_only_tool_without_the_extension_is_refused_before_it_runs(alice: McpClient, runs: list[str]) -> None:
    for capabilities in ({}, {"elicitation": {}, "tasks": {}}, {"extensions": {}}, {"experimental": {"tasks": {}}}):
        with pytest.raises(McpError) as refused:
            alice.declaring(capabilities).call_tool("required", {"number": 1})
        assert refused.value.code == -32021
        assert refused.value.data == {"requiredCapabilities": DECLARED}
    assert refusal(alice.declaring({}), {"name": "required", "arguments": {"number": 1}}) == (400, -32021)
    run_until_idle()
    assert not runs
    assert nothing_stored()


def test_an_optional_tool_without_the_extension_answers_at_once(alice: McpClient, runs: list[str]) -> None:
    result = alice.declaring({"elicitation": {}}).call_tool("optional", {"number": 1})
    assert (result["resultType"], runs) == ("complete", ["optional"])
    assert nothing_stored()


@pytest.mark.parametrize("settings", [{}, {"later": True}])
@pytest.mark.parametrize("kind", ["optional", "required"])
def test_with_the_extension_a_task_is_made_before_the_tool_starts(
    alice: McpClient, runs: list[str], kind: str, settings: dict[str, Any]
) -> None:
    client = alice.declaring({"extensions": {TASKS: settings}})
    assert client.call_tool(kind, {"number": 1})["resultType"] == "task"
    assert not runs
    assert run_until_idle() == 1
    assert runs == [kind]


def test_a_task_has_the_tries_and_the_priority_that_its_tool_says(
    alice: McpClient, mcp_tools: Callable[..., Any]
) -> None:
    mcp_tools(name="urgent", max_attempts=4, priority=7)(lambda: None)
    task = Task.objects.get(pk=ref_of(alice.call_tool("urgent")["taskId"]))
    assert (task.max_attempts, task.priority) == (4, 7)


@pytest.mark.parametrize("kind", ["never", "quick"])
def test_a_tool_that_never_is_a_task_or_answers_first_answers_at_once(
    alice: McpClient, runs: list[str], kind: str
) -> None:
    assert alice.call_tool(kind, {"number": 1})["resultType"] == "complete"
    assert runs == [kind]
    assert nothing_stored()


def test_the_result_of_a_creation_is_flat_and_has_no_payload(alice: McpClient, runs: list[str]) -> None:
    result = alice.call_tool("required", {"number": 1})
    assert result.keys() == {
        "resultType",
        "taskId",
        "status",
        "createdAt",
        "lastUpdatedAt",
        "ttlMs",
        "pollIntervalMs",
        "_meta",
    }
    assert (result["resultType"], result["status"]) == ("task", "working")
    assert (result["ttlMs"], result["pollIntervalMs"]) == (3_600_000, 1000)
    assert type(result["ttlMs"]) is type(result["pollIntervalMs"]) is int
    assert result["createdAt"] == result["lastUpdatedAt"]
    assert list(result["_meta"]) == ["io.modelcontextprotocol/serverInfo"]


@pytest.mark.parametrize("hint", [{"ttl": 5000}, {"ttl": None}, {}, None, "yes", 5, []])
def test_the_older_hint_for_tasks_is_neither_refused_nor_obeyed(alice: McpClient, runs: list[str], hint: Any) -> None:
    assert alice.call_tool("never", {"number": 1}, task=hint)["resultType"] == "complete"
    assert alice.declaring({}).call_tool("optional", {"number": 1}, task=hint)["resultType"] == "complete"
    assert alice.call_tool("optional", {"number": 1}, task=hint)["ttlMs"] == 3_600_000
    assert alice.call_tool("optional", {"number": 1}, task={"ttl": 1}, ttlMs=1)["ttlMs"] == 3_600_000


def test_a_tool_has_its_own_ttl_and_poll_interval(alice: McpClient, mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(ttl_ms=5_000, poll_interval_ms=250)
    def short() -> str:
        return ""

    created = alice.call_tool("short")
    assert (created["ttlMs"], created["pollIntervalMs"]) == (5_000, 250)
    assert alice.get_task(created["taskId"])["pollIntervalMs"] == 250


def test_two_equal_calls_are_two_tasks_and_two_runs(alice: McpClient, runs: list[str]) -> None:
    first, second = (alice.call_tool("required", {"number": 1})["taskId"] for _ in range(2))
    assert first != second
    run_until_idle()
    assert runs == ["required"] * 2


def test_ids_are_unguessable_header_safe_and_say_nothing(alice: McpClient) -> None:
    ids = [alice.call_tool("echo", {"text": "x"})["taskId"] for _ in range(30)]
    assert len(set(ids)) == 30
    assert {len(task_id) for task_id in ids} == {43}
    assert all(task_id.isascii() and task_id.replace("-", "").replace("_", "").isalnum() for task_id in ids)
    for position in range(42):
        assert len({task_id[position] for task_id in ids}) > 10  # no place of it is fixed, nor counts up
    assert sorted(ids) != ids
    for row in Task.objects.all():
        assert not any(str(row.pk) in task_id or row.pk.hex in task_id for task_id in ids)


@pytest.mark.usefixtures("transactional_db")  # progress of a leg is written on a connection of its own
def test_a_progress_token_on_a_call_that_becomes_a_task_is_taken_and_means_nothing() -> None:
    alice = rpc_client("alice")
    params = {"name": "echo", "arguments": {"text": "x"}}
    created = alice.request("tools/call", params, progressToken="p")
    run_until_idle()
    assert alice.notifications == []
    assert alice.get_task(created["taskId"])["status"] == "completed"


def limited(configure: Callable[..., None], **limits: int) -> None:
    configure(LIMITS=limits)


def test_an_owner_at_the_limit_is_refused_and_everybody_else_is_not(
    alice: McpClient, bob: McpClient, configure: Callable[..., None]
) -> None:
    limited(configure, LIVE_TASKS_PER_OWNER=2)
    ids = [alice.call_tool("echo", {"text": "x"})["taskId"] for _ in range(2)]
    with pytest.raises(McpError, match="task limit reached") as refused:
        alice.call_tool("echo", {"text": "x"})
    assert (refused.value.code, refused.value.data) == (-32603, None)
    assert refusal(alice, {"name": "echo", "arguments": {"text": "x"}}) == (200, -32603)
    assert bob.call_tool("echo", {"text": "x"})["taskId"]
    assert Task.objects.count() == 3
    alice.cancel_task(ids[0])
    ids[0] = alice.call_tool("echo", {"text": "x"})["taskId"]
    rewind(ref_of(ids[1]), 3601)
    assert alice.call_tool("echo", {"text": "x"})["taskId"]


def test_anonymous_callers_share_one_limit(nobody: McpClient, alice: McpClient, configure: Callable[..., None]) -> None:
    limited(configure, LIVE_TASKS_ANONYMOUS=1)
    nobody.call_tool("echo", {"text": "x"})
    with pytest.raises(McpError, match="task limit reached"):
        rpc_client().call_tool("echo", {"text": "x"})
    assert alice.call_tool("echo", {"text": "x"})["taskId"]


def test_a_limit_does_not_touch_calls_that_are_answered_at_once(
    alice: McpClient, runs: list[str], configure: Callable[..., None]
) -> None:
    limited(configure, LIVE_TASKS_PER_OWNER=1)
    alice.call_tool("echo", {"text": "x"})
    assert alice.call_tool("never", {"number": 1})["resultType"] == "complete"


def test_arguments_that_are_too_large_to_keep_make_no_task(alice: McpClient, configure: Callable[..., None]) -> None:
    limited(configure, PAYLOAD_BYTES=1024)
    with pytest.raises(McpError) as refused:
        alice.call_tool("echo", {"text": "x" * 2000})
    assert refused.value.code == -32602
    assert "xxx" not in refused.value.message
    assert not Task.objects.exists()
    with pytest.raises(McpError) as refused:
        alice.request("tools/call", {"name": "echo", "arguments": {"text": ""}}, **{"com.example/note": "x" * 2000})
    assert refused.value.code == -32602
    assert not Task.objects.exists()


def test_a_call_of_a_task_only_tool_never_runs_it_in_the_request(
    alice: McpClient, mcp_tools: Callable[..., Any]
) -> None:
    seen = []

    @mcp_tools(task="required")
    def where(ctx: TaskContext) -> str:
        seen.append((ctx.ref, ctx.leg))
        return "x"

    created = alice.call_tool("where")
    run_until_idle()
    assert seen == [(ref_of(created["taskId"]), 1)]


@pytest.mark.parametrize("mode", ["never", "required"])
def test_an_argument_cannot_take_the_place_of_the_context(
    alice: McpClient, mcp_tools: Callable[..., Any], mode: str
) -> None:
    @mcp_tools(task=mode)
    def open_to_all(ctx: TaskContext, **rest: Any) -> str:
        return f"{type(ctx).__name__} {sorted(rest)}"

    answer = alice.call_tool("open_to_all", {"ctx": "mine", "values": 1, "a b": 2, "arg_ctx": 3})
    if mode == "required":
        run_until_idle()
        answer = alice.get_task(answer["taskId"])["result"]
    assert answer["content"][0]["text"] == "TaskContext ['a b', 'arg_ctx', 'values']"
