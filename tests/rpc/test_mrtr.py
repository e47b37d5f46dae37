"""Multi round-trip requests: a synchronous call asks, and is called again with the answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import mcp_types
import pytest

from mcp_tasks import InputRequired, TaskContext
from mcp_tasks.models import Task
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import rpc_client

from .questions import OPEN_FORM, ROOTS, accept, form, link, sample

Register = Callable[..., Any]


class Trip:
    """A tool that asks for a place and then for a day; ``runs`` holds the answers that each run began with."""

    def __init__(self, tool: Register) -> None:
        self.runs: list[dict[str, Any]] = []

        @tool(task="never")
        def trip(who: str, ctx: TaskContext) -> str:
            self.runs.append(dict(ctx.answers))
            place = ctx.ask({"place": form("Where?", place="string")})["place"]
            if place["action"] != "accept":
                return "stays"
            day = ctx.ask({"day": form(f"When to {place['content']['place']}?", day="integer")})["day"]
            return f"{who} to {place['content']['place']} on {day['content']['day']}"


@pytest.fixture
def client() -> McpClient:
    """A caller who needs no database: nothing is stored for a call that asks."""
    return rpc_client("alice")


@pytest.fixture(autouse=True)
def trip(mcp_tools: Register) -> Trip:
    return Trip(mcp_tools)


def again(client: McpClient, asked: dict[str, Any], tool: str = "trip", **answers: Any) -> dict[str, Any]:
    arguments = {"who": "Ada"} if tool == "trip" else {}
    return client.call_tool(tool, arguments, inputResponses=answers, requestState=asked["requestState"])


def refusal(client: McpClient, tool: str = "trip", **params: Any) -> tuple[int, int]:
    arguments = {"who": "Ada"} if tool == "trip" else {}
    answer = client.post(client.envelope("tools/call", {"name": tool, "arguments": arguments, **params}))
    return answer.status, answer.messages()[0]["error"]["code"]


def test_a_question_is_the_whole_answer_and_makes_no_task(alice: McpClient) -> None:
    asked = alice.call_tool("trip", {"who": "Ada"})
    assert asked.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"] == {"place": form("Where?", place="string")}
    mcp_types.InputRequiredResult.model_validate(asked)
    assert not Task.objects.exists()


def test_the_newest_answers_are_enough_in_every_round(client: McpClient, trip: Trip) -> None:
    first = client.call_tool("trip", {"who": "Ada"})
    second = again(client, first, place=accept(place="Bern"))
    assert second["inputRequests"] == {"day": form("When to Bern?", day="integer")}
    assert second["requestState"] != first["requestState"]
    done = again(client, second, day=accept(day=7))
    assert (done["resultType"], done["content"][0]["text"]) == ("complete", "Ada to Bern on 7")
    bern, seven = accept(place="Bern"), accept(day=7)
    assert trip.runs == [{}, {"place": bern}, {"place": bern, "day": seven}]


def test_answers_of_earlier_rounds_may_be_sent_along_but_not_changed(client: McpClient) -> None:
    second = again(client, client.call_tool("trip", {"who": "Ada"}), place=accept(place="Bern"))
    done = again(client, second, place=accept(place="Rome"), day=accept(day=7))
    assert done["content"][0]["text"] == "Ada to Bern on 7"


def test_answers_that_come_before_their_question_are_used_by_key(client: McpClient, trip: Trip) -> None:
    answers = {"place": accept(place="Bern"), "day": accept(day=7), "more": {"x": 1}}
    done = client.call_tool("trip", {"who": "Ada"}, inputResponses=answers)
    assert done["content"][0]["text"] == "Ada to Bern on 7"
    assert trip.runs == [{}]  # unchecked, so not shown before its question


def test_where_the_needed_answer_is_missing_the_question_comes_again(client: McpClient) -> None:
    first = client.call_tool("trip", {"who": "Ada"})
    for answers in ({}, {"other": {"action": "accept"}}):
        repeated = again(client, first, **answers)
        assert repeated["inputRequests"] == first["inputRequests"]
    assert again(client, repeated, place={"action": "decline"})["content"][0]["text"] == "stays"


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize(
    "responses", [None, [], "x", 5, True, {"place": None}, {"place": 5}, {"more": "x"}, {"more": []}]
)
def test_answers_of_a_wrong_shape_are_wrong_params(client: McpClient, trip: Trip, responses: Any, state: bool) -> None:
    more = {"requestState": client.call_tool("trip", {"who": "Ada"})["requestState"]} if state else {}
    runs = len(trip.runs)
    assert refusal(client, inputResponses=responses, **more) == (200, -32602)
    assert len(trip.runs) == runs


@pytest.mark.parametrize(
    "answer", [{}, {"action": "maybe"}, accept(), accept(place=5), {"action": "accept"}, accept(place={"x": 1})]
)
def test_an_answer_that_does_not_fit_its_question_is_refused_before_the_tool_runs(
    client: McpClient, trip: Trip, answer: dict[str, Any]
) -> None:
    first = client.call_tool("trip", {"who": "Ada"})
    more = {"inputResponses": {"place": answer}}
    assert refusal(client, **more, requestState=first["requestState"]) == (200, -32602)
    assert len(trip.runs) == 1
    assert refusal(client, **more) == (200, -32602)
    assert again(client, first, place=accept(place="Bern"))["resultType"] == "input_required"


def test_a_tool_may_take_forms_that_violate_their_schema(client: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(task="never", strict_answers=False)
    def lenient(ctx: TaskContext) -> str:
        return str(ctx.ask({"sure": form("Sure?", sure="boolean")})["sure"])

    answer = accept(input="yes")
    asked = client.call_tool("lenient")
    assert again(client, asked, "lenient", sure=answer)["content"][0]["text"] == str(answer)
    assert client.call_tool("lenient", inputResponses={"sure": answer})["content"][0]["text"] == str(answer)
    assert refusal(client, "lenient", inputResponses={"sure": {"action": 5}}) == (200, -32602)


def test_questions_can_be_returned_and_asked_together(client: McpClient, mcp_tools: Register) -> None:
    four = {"a": form("A?", a="string"), "b": link("B?"), "c": sample(), "d": ROOTS}

    @mcp_tools(task="never")
    def returned(ctx: TaskContext) -> Any:
        return InputRequired(four) if not ctx.answers else sorted(ctx.answers)

    @mcp_tools(task="never")
    def asked(ctx: TaskContext) -> str:
        return ",".join(sorted(ctx.ask(four)))

    answers = {
        "a": accept(a="x"),
        "b": {"action": "accept"},
        "c": {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "m"},
        "d": {"roots": []},
    }
    for name in ("returned", "asked"):
        first = client.call_tool(name)
        assert first["inputRequests"] == four
        rest = again(client, first, name, a=answers["a"], d=answers["d"])
        if name == "asked":
            assert rest["inputRequests"] == {"b": four["b"], "c": four["c"]}
        done = again(client, first, name, **answers)
        assert done["resultType"] == "complete"


def test_questions_of_parallel_branches_are_asked_together(client: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(task="never")
    async def parallel(ctx: TaskContext) -> str:
        async def branch(name: str) -> str:
            await asyncio.sleep(0)
            return str(ctx.elicit(name, f"{name}?", OPEN_FORM)["action"])

        async with asyncio.TaskGroup() as group:
            branches = [group.create_task(branch(name)) for name in ("a", "b")]
        return ",".join(branch.result() for branch in branches)

    asked, answered = client.call_tool("parallel"), {}
    while asked["resultType"] == "input_required":
        assert not asked["inputRequests"].keys() & answered.keys()
        answered |= {key: {"action": "cancel"} for key in asked["inputRequests"]}
        asked = again(client, asked, "parallel", **answered)
    assert asked["content"][0]["text"] == "cancel,cancel"


def test_a_careless_handler_cannot_swallow_its_own_question(client: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(task="never")
    def careless(ctx: TaskContext) -> str:
        try:
            return str(ctx.elicit("a", "A?", OPEN_FORM)["action"])
        except Exception:
            return "swallowed"

    assert client.call_tool("careless")["resultType"] == "input_required"


def test_an_answered_question_that_is_returned_again_is_the_tools_fault(client: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(task="never")
    def stuck() -> InputRequired:
        return InputRequired({"a": form("A?")})

    first = client.call_tool("stuck")
    params = {"inputResponses": {"a": {"action": "cancel"}}, "requestState": first["requestState"]}
    assert refusal(client, "stuck", **params) == (200, -32603)
    assert refusal(client, "stuck", inputResponses={"a": {"action": "cancel"}}) == (200, -32603)


@pytest.mark.parametrize("asked", [{}, {"": ROOTS}, {"x" * 129: ROOTS}, {"a": {"method": "ping"}}, {"a": 5}, {"a": {}}])
def test_what_no_client_can_answer_is_the_tools_fault(client: McpClient, mcp_tools: Register, asked: Any) -> None:
    @mcp_tools(task="never")
    def confused(ctx: TaskContext) -> Any:
        return InputRequired(asked)

    assert refusal(client, "confused") == (200, -32603)


#: What is asked, what a client declares that cannot answer it, and what it would have to declare.
UNDECLARED = {
    "a form, nothing": (form("?"), {}, {"elicitation": {"form": {}}}),
    "a form, links": (form("?"), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    "a form, no object": (form("?"), {"elicitation": True}, {"elicitation": {"form": {}}}),
    "a link, nothing": (link("?"), {}, {"elicitation": {"url": {}}}),
    "a link, empty": (link("?"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
    "a link, forms": (link("?"), {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
    "a sample, nothing": (sample(), {}, {"sampling": {}}),
    "a sample with tools": (sample(tools=[]), {"sampling": {}}, {"sampling": {"tools": {}}}),
    "a sample with a choice": (sample(toolChoice={"mode": "auto"}), {"sampling": {}}, {"sampling": {"tools": {}}}),
    "a sample with context": (
        sample(includeContext="thisServer"),
        {"sampling": {"tools": {}}},
        {"sampling": {"context": {}}},
    ),
    "roots, nothing": (ROOTS, {"elicitation": {}, "sampling": {}}, {"roots": {}}),
}


@pytest.mark.parametrize(("question", "declared", "needed"), UNDECLARED.values(), ids=UNDECLARED.keys())
@pytest.mark.parametrize("returned", [False, True])
def test_a_kind_that_was_not_declared_on_this_request_is_never_asked(
    client: McpClient, mcp_tools: Register, question: Any, declared: Any, needed: Any, returned: bool
) -> None:
    @mcp_tools(task="never")
    def curious(ctx: TaskContext) -> Any:
        return InputRequired({"q": question}) if returned else ctx.ask({"q": question})

    assert client.call_tool("curious")["resultType"] == "input_required"
    bare = client.declaring(declared)
    answer = bare.post(bare.envelope("tools/call", {"name": "curious", "arguments": {}}))
    (message,) = answer.messages()
    assert (answer.status, message["error"]["code"]) == (400, -32021)
    assert message["error"]["data"] == {"requiredCapabilities": needed}


@pytest.mark.parametrize(
    ("question", "declared"),
    [
        (form("?"), {"elicitation": {}}),
        (form("?"), {"elicitation": {"form": {}}}),
        (form("?"), {"elicitation": {"form": {}, "url": {}, "later": {}}}),
        (sample(), {"sampling": {}}),
        (sample(includeContext="none"), {"sampling": {}}),
        (sample(tools=[]), {"sampling": {"tools": {}}}),
        (ROOTS, {"roots": {"listChanged": True}}),
    ],
)
def test_a_kind_that_was_declared_is_asked(
    client: McpClient, mcp_tools: Register, question: Any, declared: Any
) -> None:
    @mcp_tools(task="never")
    def curious(ctx: TaskContext) -> Any:
        return ctx.ask({"q": question})

    assert client.declaring(declared).call_tool("curious")["inputRequests"] == {"q": question}


def test_an_answered_question_needs_no_declaration_any_more(client: McpClient, mcp_tools: Register) -> None:
    @mcp_tools(task="never")
    def curious(ctx: TaskContext) -> str:
        return str(ctx.roots("r")["roots"])

    asked = client.call_tool("curious")
    assert again(client.declaring({}), asked, "curious", r={"roots": []})["content"][0]["text"] == "[]"


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_methods_that_never_ask_take_no_notice_of_answers(client: McpClient, method: str) -> None:
    params = {"inputResponses": None, "requestState": 5}
    assert client.request(method, params)["resultType"] == "complete"


def test_wrong_arguments_are_told_before_a_question_is_asked(client: McpClient, trip: Trip) -> None:
    with pytest.raises(McpError):
        client.call_tool("trip", {"who": "Ada"}, requestState="forged")
    assert client.call_tool("trip", {"who": 5})["isError"] is True
    assert not trip.runs
