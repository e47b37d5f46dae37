"""``tasks/get``: the whole state of a task, as often as somebody asks."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks import McpError, TaskContext
from mcp_tasks import tasks as worker
from mcp_tasks.models import Task
from mcp_tasks.protocol.codec import dumps
from mcp_tasks.store import get_store
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient
from mcp_tasks.tools.registry import registry

TASKS = "io.modelcontextprotocol/tasks"
ALWAYS = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


@pytest.fixture(autouse=True)
def _tools(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="required")
    def outcome(kind: str, ctx: TaskContext) -> str:
        if kind == "failed":
            raise McpError(-32602, "no such region", {"field": "region"})
        if kind == "crashed":
            raise RuntimeError("hunter2")
        return "done"


def create(client: McpClient, tool: str = "outcome", **arguments: Any) -> str:
    if tool == "outcome" and not arguments:
        arguments = {"kind": "completed"}
    task_id: str = client.call_tool(tool, arguments)["taskId"]
    return task_id


def finished(client: McpClient, kind: str) -> dict[str, Any]:
    task_id = create(client, kind=kind)
    run_until_idle()
    return client.get_task(task_id)


def params_of(method: str, task_id: Any) -> dict[str, Any]:
    return {"taskId": task_id, **({"inputResponses": {}} if method == "tasks/update" else {})}


def test_a_working_task_has_no_payload(alice: McpClient) -> None:
    task = alice.get_task(create(alice))
    assert task.keys() == ALWAYS
    assert (task["resultType"], task["status"]) == ("complete", "working")


def test_a_waiting_task_has_all_its_open_questions(alice: McpClient) -> None:
    task_id = create(alice, "approve", service="web")
    run_until_idle()
    task = alice.get_task(task_id)
    assert task.keys() == ALWAYS | {"inputRequests"}
    assert (task["resultType"], task["status"]) == ("complete", "input_required")
    schema = {"type": "object", "properties": {"approve": {"type": "boolean"}}, "required": ["approve"]}
    params = {"mode": "form", "message": "Deploy web?", "requestedSchema": schema}
    assert task["inputRequests"] == {"approval": {"method": "elicitation/create", "params": params}}


def test_a_completed_task_has_exactly_what_the_call_would_have_returned(alice: McpClient) -> None:
    task = finished(alice, "completed")
    assert task.keys() == ALWAYS | {"result"}
    assert (task["resultType"], task["status"]) == ("complete", "completed")
    assert task["result"] == {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}


def test_a_tool_that_failed_completes_its_task(alice: McpClient) -> None:
    task = finished(alice, "crashed")
    assert task.keys() == ALWAYS | {"result"}
    assert (task["resultType"], task["status"], task["result"]["isError"]) == ("complete", "completed", True)


def test_a_failed_task_has_the_error_whole_and_says_why(alice: McpClient) -> None:
    task = finished(alice, "failed")
    assert task.keys() == ALWAYS | {"error", "statusMessage"}
    assert (task["resultType"], task["status"]) == ("complete", "failed")
    assert task["error"] == {"code": -32602, "message": "no such region", "data": {"field": "region"}}
    assert task["statusMessage"] == "no such region"


def test_a_cancelled_task_has_no_payload(alice: McpClient) -> None:
    task_id = create(alice)
    alice.cancel_task(task_id)
    task = alice.get_task(task_id)
    assert task.keys() == ALWAYS | {"statusMessage"}
    assert (task["resultType"], task["status"]) == ("complete", "cancelled")


def test_times_are_utc_with_milliseconds_and_every_visible_change_moves_the_later_one(alice: McpClient) -> None:
    task_id = create(alice, "approve", service="web")
    ref = ref_of(task_id)
    seen = [alice.get_task(task_id)]
    rewind(ref, 10)
    worker.progress(ref, "half", done=1, total=2)
    seen.append(alice.get_task(task_id))
    rewind(ref, 10)
    run_until_idle()
    seen.append(alice.get_task(task_id))
    rewind(ref, 10)
    alice.update_task(task_id, {"approval": {"action": "decline"}})
    seen.append(alice.get_task(task_id))
    rewind(ref, 10)
    run_until_idle()
    seen.append(alice.get_task(task_id))
    for task in seen:
        assert TIME.fullmatch(task["createdAt"])
        assert TIME.fullmatch(task["lastUpdatedAt"])
        assert task["createdAt"] <= task["lastUpdatedAt"]
    assert seen[0]["createdAt"] == seen[0]["lastUpdatedAt"]
    # Without a change the time would have gone back by ten seconds.
    moments = [task["lastUpdatedAt"] for task in seen]
    assert moments == sorted(moments)


def test_reading_changes_nothing_and_takes_nothing_away(alice: McpClient) -> None:
    first = finished(alice, "completed")
    before = Task.objects.values().get()
    again = [alice.get_task(first["taskId"]) for _ in range(3)]
    assert again == [first] * 3
    assert Task.objects.values().get() == before


def test_progress_is_shown_as_a_message_and_as_numbers(alice: McpClient) -> None:
    task_id = create(alice)
    worker.progress(ref_of(task_id), "Reading rows", done=3, total=9.5)
    task = alice.get_task(task_id)
    assert task["statusMessage"] == "Reading rows"
    assert task["_meta"]["django-mcp-tasks/progress"] == {"done": 3, "total": 9.5}
    assert type(task["_meta"]["django-mcp-tasks/progress"]["done"]) is int


def test_meta_that_the_server_sets_is_shown_and_cannot_shadow_its_own(alice: McpClient) -> None:
    task_id = create(alice)
    server_info, related = "io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/related-task"
    get_store().set_task_meta(ref_of(task_id), {"com.example/job": 7, server_info: {"name": "x"}, related: {}})
    answer = alice.post(alice.envelope("tasks/get", {"taskId": task_id}))
    meta = answer.messages()[0]["result"]["_meta"]
    assert meta["com.example/job"] == 7
    assert meta[server_info]["name"] == "django-mcp-tasks"
    assert related not in meta
    assert answer.body.count(server_info.encode()) == 1


def test_a_task_without_a_ttl_says_null(
    alice: McpClient, configure: Callable[..., None], mcp_tools: Callable[..., Any]
) -> None:
    configure(MAX_TTL_MS=None)

    @mcp_tools(ttl_ms=None)
    def for_ever() -> str:
        return ""

    task = alice.get_task(create(alice, "for_ever"))
    assert "ttlMs" in task
    assert task["ttlMs"] is None


def test_nothing_of_the_older_era_is_in_any_view(alice: McpClient) -> None:
    for task in (alice.get_task(create(alice)), finished(alice, "completed"), finished(alice, "failed")):
        assert not {"ttl", "pollInterval", "task", "requestState"} & task.keys()
        assert type(task["ttlMs"]) is type(task["pollIntervalMs"]) is int


def test_a_poll_need_not_declare_what_the_questions_need(alice: McpClient) -> None:
    task_id = create(alice, "approve", service="web")
    run_until_idle()
    bare = alice.declaring({"extensions": {TASKS: {}}})
    assert bare.get_task(task_id)["inputRequests"].keys() == {"approval"}


def test_a_tool_that_is_gone_leaves_its_tasks_readable_and_fails_the_next_leg(
    alice: McpClient, mcp_tools: Callable[..., Any]
) -> None:
    @mcp_tools(task="required")
    def doomed(ctx: TaskContext) -> str:
        ctx.roots("folders")
        return "never"

    task_id = create(alice, "doomed")
    run_until_idle()
    registry.remove("doomed")
    assert alice.get_task(task_id)["status"] == "input_required"
    alice.update_task(task_id, {"folders": {"roots": []}})
    run_until_idle()
    task = alice.get_task(task_id)
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert "no longer available" in task["error"]["message"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task_id", [None, 5, 0, True, 1.5, [], {}, ["x"]])
def test_an_id_that_is_no_text_is_wrong_params(alice: McpClient, method: str, task_id: Any) -> None:
    for params in (params_of(method, task_id), {"inputResponses": {}}):
        answer = alice.post(alice.envelope(method, params))
        assert (answer.status, answer.messages()[0]["error"]["code"]) == (200, -32602)


@pytest.mark.parametrize("method", METHODS)
def test_every_text_that_names_no_task_gets_the_same_answer(alice: McpClient, method: str) -> None:
    known = create(alice)
    texts = ["", "x", "x" * 43, "x" * 10_240, "a\x00b", known[:42] + "\x00", known + "\n", " " + known, "\ud800" * 43]
    texts += [known.swapcase(), known[:-1], known + "=", known.replace("-", "+") + "A", str(ref_of(known)), "é" * 43]
    answers = {nameless(alice, method, params_of(method, task_id)) for task_id in texts}
    assert answers == {(200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}')}
    assert Task.objects.get().status == "working"


def nameless(client: McpClient, method: str, params: dict[str, Any]) -> tuple[int, bytes]:
    """A request without the header that mirrors the id: no header could hold some of these."""
    message = {**client.envelope(method, params), "id": 1}
    headers = {**client.headers(client.envelope(method)), "Mcp-Name": None}
    answer = client.post(dumps(message).encode(), headers)
    return answer.status, answer.body


@pytest.mark.parametrize("method", METHODS)
def test_a_client_without_the_extension_is_refused_and_nothing_happens(alice: McpClient, method: str) -> None:
    task_id = create(alice, "approve", service="web")
    run_until_idle()
    before = Task.objects.values().get()
    params = {"taskId": task_id, "inputResponses": {"approval": {"action": "decline"}}}
    for capabilities in (
        {},
        {"extensions": {}},
        {"tasks": {"get": {}}},
        {"extensions": {"tasks": {}, "x.y/tasks": {}}},
    ):
        answer = alice.declaring(capabilities).post(alice.declaring(capabilities).envelope(method, params))
        (message,) = answer.messages()
        assert (answer.status, message["error"]["code"]) == (400, -32021)
        assert message["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    assert Task.objects.values().get() == before


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_name_in_the_header_is_a_mismatch_before_the_task_is_looked_up(alice: McpClient, method: str) -> None:
    task_id = create(alice)
    before = Task.objects.values().get()
    for asked, name in ((task_id, "other"), ("x" * 43, task_id), (task_id, ""), (task_id, task_id.swapcase())):
        answer = alice.post(alice.envelope(method, params_of(method, asked)), {"Mcp-Name": name})
        assert (answer.status, answer.messages()[0]["error"]["code"]) == (400, -32020)
        assert task_id.encode() not in answer.body
    answer = alice.post(alice.envelope(method, params_of(method, task_id)), {"Mcp-Method": "tasks/other"})
    assert (answer.status, answer.messages()[0]["error"]["code"]) == (400, -32020)
    assert Task.objects.values().get() == before


@pytest.mark.parametrize("method", METHODS)
def test_no_name_in_the_header_is_tolerated_unless_the_settings_are_strict(
    alice: McpClient, configure: Callable[..., None], method: str
) -> None:
    message = alice.envelope(method, params_of(method, create(alice)))
    assert "result" in alice.post(message, {"Mcp-Name": None}).messages()[0]
    configure(STRICT_HEADERS=True)
    answer = alice.post(message, {"Mcp-Name": None})
    assert (answer.status, answer.messages()[0]["error"]["code"]) == (400, -32020)
    assert "result" in alice.post(message).messages()[0]


@pytest.mark.parametrize("method", METHODS)
def test_past_its_ttl_a_task_is_absent_on_every_method_and_before_it_on_none(alice: McpClient, method: str) -> None:
    task_id = create(alice, "approve", service="web")
    run_until_idle()
    rewind(ref_of(task_id), 3590)
    assert alice.request(method, params_of(method, task_id))["resultType"] == "complete"
    rewind(ref_of(task_id), 11)
    before = Task.objects.values().get()
    with pytest.raises(McpError, match="Task has expired") as refused:
        alice.request(method, params_of(method, task_id))
    assert refused.value.code == -32602
    assert Task.objects.values().get() == before


def test_a_swept_task_is_expired_to_its_owner_until_its_tombstone_is_purged(
    alice: McpClient, configure: Callable[..., None]
) -> None:
    task_id = create(alice)
    rewind(ref_of(task_id), 3601)
    get_store().cleanup_expired()
    with pytest.raises(McpError, match="Task has expired"):
        alice.get_task(task_id)
    rewind(ref_of(task_id), 86_401)
    get_store().cleanup_expired()
    with pytest.raises(McpError, match="Task not found"):
        alice.get_task(task_id)


def test_a_longer_life_is_visible_and_counts_from_the_creation(alice: McpClient) -> None:
    task_id = create(alice)
    assert worker.set_ttl(ref_of(task_id), 7_200_000)
    rewind(ref_of(task_id), 7000)
    assert alice.get_task(task_id)["ttlMs"] == 7_200_000
    assert worker.set_ttl(ref_of(task_id), 1_000)
    with pytest.raises(McpError, match="Task has expired"):
        alice.get_task(task_id)
