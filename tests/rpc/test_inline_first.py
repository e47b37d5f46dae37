"""Tools that start inside of the request: they answer, ask, or become a task with the answers so far."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks import TaskContext
from mcp_tasks.models import Task, TaskInput
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.testing import run_until_idle
from mcp_tasks.testing.client import McpClient

from .questions import accept, form

Register = Callable[..., Any]
KEY = "django-mcp-tasks/idempotencyKey"


class Deploy:
    """A tool that asks for a region, becomes a task, and then asks whether it should go on."""

    def __init__(self, tool: Register) -> None:
        self.runs: list[tuple[int, list[str]]] = []

        @tool(inline_first=True)
        def deploy(app: str, ctx: TaskContext, quick: bool = False) -> str:
            self.runs.append((ctx.leg, sorted(ctx.answers)))
            if quick:
                return "nothing to do"
            region = ctx.ask({"region": form("Which region?", region="string")})["region"]
            ctx.become_task()
            go = ctx.ask({"go": form(f"Deploy {app} in {region['content']['region']}?", go="boolean")})["go"]
            return f"{app} {region['content']['region']} {go['content']['go']}"


@pytest.fixture(autouse=True)
def deploy(mcp_tools: Register) -> Deploy:
    return Deploy(mcp_tools)


EU = {"region": accept(region="eu")}
GO = {"go": accept(go=True)}


def task_of(client: McpClient, task_id: str) -> dict[str, Any]:
    run_until_idle()
    return client.get_task(task_id)


def test_a_tool_that_answers_at_once_makes_no_task(alice: McpClient, deploy: Deploy) -> None:
    answer = alice.call_tool("deploy", {"app": "shop", "quick": True})
    assert (answer["resultType"], answer["content"][0]["text"]) == ("complete", "nothing to do")
    assert deploy.runs == [(0, [])]
    assert not Task.objects.exists()


def test_the_answers_so_far_go_with_the_call_into_its_task(alice: McpClient, deploy: Deploy) -> None:
    asked = alice.call_tool("deploy", {"app": "shop"})
    assert asked["resultType"] == "input_required"
    assert "taskId" not in asked
    assert not Task.objects.exists()
    created = alice.call_tool("deploy", {"app": "shop"}, inputResponses=EU, requestState=asked["requestState"])
    assert (created["resultType"], created["status"]) == ("task", "working")
    assert not {"inputRequests", "requestState", "result", "error", "content"} & created.keys()
    waiting = task_of(alice, created["taskId"])
    assert waiting["inputRequests"] == {"go": form("Deploy shop in eu?", go="boolean")}
    assert "requestState" not in waiting
    alice.update_task(created["taskId"], GO)
    done = task_of(alice, created["taskId"])
    assert done["result"]["content"][0]["text"] == "shop eu True"
    assert deploy.runs == [(0, []), (0, ["region"]), (1, ["region"]), (2, ["go", "region"])]


def test_answers_that_came_before_they_were_asked_for_are_used_in_the_task_too(alice: McpClient) -> None:
    created = alice.call_tool("deploy", {"app": "shop"}, inputResponses={**EU, **GO})
    assert created["resultType"] == "task"
    assert task_of(alice, created["taskId"])["result"]["content"][0]["text"] == "shop eu True"
    assert not TaskInput.objects.exists()


def test_an_early_answer_that_does_not_fit_is_asked_for_again_in_the_task(alice: McpClient) -> None:
    wrong = {"go": accept(go="perhaps")}
    created = alice.call_tool("deploy", {"app": "shop"}, inputResponses={**EU, **wrong})
    assert task_of(alice, created["taskId"])["inputRequests"].keys() == {"go"}
    alice.update_task(created["taskId"], GO)
    assert task_of(alice, created["taskId"])["status"] == "completed"


def test_a_key_that_was_answered_inline_may_name_another_question_in_the_task(
    alice: McpClient, mcp_tools: Register
) -> None:
    @mcp_tools(inline_first=True)
    def two_spaces(ctx: TaskContext) -> str:
        question = form("Before?", a="string") if ctx.ref is None else form("After?", a="string")
        answer = ctx.ask({"same": question})["same"]
        ctx.become_task()
        return str(answer["content"]["a"])

    answers = {"same": accept(a="one")}
    asked = alice.call_tool("two_spaces")
    created = alice.call_tool("two_spaces", inputResponses=answers, requestState=asked["requestState"])
    assert task_of(alice, created["taskId"])["inputRequests"] == {"same": form("After?", a="string")}
    alice.update_task(created["taskId"], {"same": accept(a="two")})
    assert task_of(alice, created["taskId"])["result"]["content"][0]["text"] == "two"


def test_for_a_client_without_the_extension_it_stays_a_call_that_asks(alice: McpClient, deploy: Deploy) -> None:
    plain = alice.declaring({"elicitation": {}})
    first = plain.call_tool("deploy", {"app": "shop"})
    second = plain.call_tool("deploy", {"app": "shop"}, inputResponses=EU, requestState=first["requestState"])
    assert second["inputRequests"].keys() == {"go"}
    done = plain.call_tool("deploy", {"app": "shop"}, inputResponses=GO, requestState=second["requestState"])
    assert done["content"][0]["text"] == "shop eu True"
    assert {leg for leg, _ in deploy.runs} == {0}
    assert not Task.objects.exists()


def test_a_task_only_tool_is_refused_without_the_extension_before_it_starts(
    alice: McpClient, mcp_tools: Register
) -> None:
    runs = []

    @mcp_tools(inline_first=True, task="required")
    def strict() -> str:
        runs.append(1)
        return "x"

    with pytest.raises(McpError) as refused:
        alice.declaring({}).call_tool("strict")
    assert refused.value.code == -32021
    assert not runs
    assert alice.call_tool("strict")["resultType"] == "complete"


def test_to_become_a_task_cannot_be_swallowed(alice: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(inline_first=True)
    async def careless(ctx: TaskContext) -> str:
        try:
            ctx.become_task()
        except Exception:
            return "swallowed"
        return f"leg {ctx.leg}"

    created = alice.call_tool("careless")
    assert created["resultType"] == "task"
    assert task_of(alice, created["taskId"])["result"]["content"][0]["text"] == "leg 1"


def test_the_limit_of_tasks_is_told_when_a_call_wants_to_become_one(
    alice: McpClient, configure: Callable[..., None]
) -> None:
    configure(LIMITS={"LIVE_TASKS_PER_OWNER": 1})
    alice.call_tool("approve", {"service": "web"})
    with pytest.raises(McpError, match="task limit reached") as refused:
        alice.call_tool("deploy", {"app": "shop"}, inputResponses=EU)
    assert refused.value.code == -32603
    assert Task.objects.count() == 1


def test_the_last_round_repeated_is_one_task_under_a_key_and_two_without(alice: McpClient) -> None:
    params = {"name": "deploy", "arguments": {"app": "shop"}, "inputResponses": EU}
    keyed = [alice.request("tools/call", params, **{KEY: "k"})["taskId"] for _ in range(2)]
    assert len(set(keyed)) == 1
    free = [alice.request("tools/call", params)["taskId"] for _ in range(2)]
    assert len({*keyed, *free}) == 3


def test_a_leg_knows_what_was_declared_when_the_task_was_made(alice: McpClient) -> None:
    silent = alice.declaring({"extensions": {"io.modelcontextprotocol/tasks": {}}})
    created = silent.call_tool("deploy", {"app": "shop"}, inputResponses=EU)
    task = task_of(alice, created["taskId"])
    assert (task["status"], task["error"]["code"]) == ("failed", -32021)
    assert task["error"]["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
