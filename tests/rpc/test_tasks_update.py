"""``tasks/update``: answers to open questions, stored whole or not at all."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks import InputRequired, TaskContext
from mcp_tasks import tasks as worker
from mcp_tasks.models import Task, TaskEvent, TaskInput
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store.types import InvalidTransition, ref_of
from mcp_tasks.testing import run_until_idle
from mcp_tasks.testing.client import McpClient

from .questions import ROOTS, accept, form, link, sample

ACK = {"resultType", "_meta"}


FOUR = {
    "a": form("A?", sure="boolean"),
    "b": link("B?"),
    "c": sample(),
    "d": ROOTS,
}
GOOD = {
    "a": accept(sure=True),
    "b": {"action": "accept"},
    "c": {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "m"},
    "d": {"roots": [{"uri": "file:///x"}]},
}


class Asking:
    """A tool that asks four questions at once, then one more, and what it saw in each of its runs."""

    def __init__(self, tool: Callable[..., Any]) -> None:
        self.runs: list[dict[str, Any]] = []

        @tool(task="required")
        def asking(ctx: TaskContext) -> str:
            self.runs.append(dict(ctx.answers))
            ctx.ask(FOUR)
            ctx.elicit("e", "E?", {"type": "object", "properties": {}})
            return "done"

        @tool(task="required")
        def idle() -> str:
            return "done"

        @tool(task="required", strict_answers=False)
        def lenient(ctx: TaskContext) -> str:
            answer = ctx.ask({"a": FOUR["a"]})["a"]
            return str(answer.get("content"))


@pytest.fixture(autouse=True)
def asking(mcp_tools: Callable[..., Any]) -> Asking:
    return Asking(mcp_tools)


def parked(client: McpClient, tool: str = "asking") -> str:
    task_id: str = client.call_tool(tool)["taskId"]
    run_until_idle()
    return task_id


def rows() -> list[Any]:
    return [*Task.objects.values(), *TaskInput.objects.order_by("id").values(), *TaskEvent.objects.values()]


def test_an_answer_is_acknowledged_with_nothing_else(alice: McpClient) -> None:
    task_id = parked(alice)
    acknowledgement = alice.update_task(task_id, GOOD)
    assert acknowledgement.keys() == ACK
    assert acknowledgement["resultType"] == "complete"


def test_answered_questions_disappear_at_once_and_the_rest_stays_open(alice: McpClient, asking: Asking) -> None:
    task_id = parked(alice)
    for answered in ("b", "d", "a"):
        alice.update_task(task_id, {answered: GOOD[answered]})
        task = alice.get_task(task_id)
        assert task["status"] == "input_required"
        assert answered not in task["inputRequests"]
        assert run_until_idle() == 0
    assert task["inputRequests"] == {"c": sample()}
    assert len(asking.runs) == 1
    alice.update_task(task_id, {"c": GOOD["c"]})
    assert alice.get_task(task_id)["status"] == "working"
    assert run_until_idle() == 1


def test_the_handler_goes_on_once_with_exactly_what_was_answered_and_keeps_it(alice: McpClient, asking: Asking) -> None:
    task_id = parked(alice)
    alice.update_task(task_id, GOOD)
    run_until_idle()
    alice.update_task(task_id, {"e": {"action": "cancel"}})
    run_until_idle()
    assert asking.runs == [{}, GOOD, {**GOOD, "e": {"action": "cancel"}}]
    assert alice.get_task(task_id)["status"] == "completed"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_to_decline_is_an_answer_too(alice: McpClient, action: str) -> None:
    task_id = alice.call_tool("approve", {"service": "web"})["taskId"]
    run_until_idle()
    alice.update_task(task_id, {"approval": {"action": action}})
    run_until_idle()
    assert alice.get_task(task_id)["result"]["content"][0]["text"] == "no"


@pytest.mark.parametrize(
    "responses", [{}, {"ghost": {"action": "accept"}}, {"ghost": None, "unknown-key": {"ignored": True}, "x": [5]}]
)
def test_answers_to_what_nobody_asked_are_acknowledged_and_change_nothing(
    alice: McpClient, asking: Asking, responses: dict[str, Any]
) -> None:
    task_id = parked(alice)
    working: str = alice.call_tool("idle")["taskId"]
    before = rows()
    for one in (task_id, working):
        assert alice.update_task(one, responses).keys() == ACK
    assert rows() == before
    assert run_until_idle() == 1  # the other one's first leg
    assert len(asking.runs) == 1


def test_unknown_keys_beside_a_good_answer_do_not_spoil_it(alice: McpClient) -> None:
    task_id = parked(alice)
    alice.update_task(task_id, {"ghost": None, "a": GOOD["a"], "x\x00\ud800": 5})
    assert alice.get_task(task_id)["inputRequests"].keys() == {"b", "c", "d"}


def test_a_second_answer_to_a_spent_key_is_acknowledged_and_ignored(alice: McpClient, asking: Asking) -> None:
    task_id = parked(alice)
    alice.update_task(task_id, {"a": GOOD["a"]})
    alice.update_task(task_id, {"a": {"action": "decline"}})
    alice.update_task(task_id, {"a": "nonsense"})
    alice.update_task(task_id, GOOD)
    run_until_idle()
    assert asking.runs[-1]["a"] == GOOD["a"]


@pytest.mark.parametrize("container", [None, [], "x", 5, True, [["a", 1]], "missing"])
def test_a_wrong_container_refuses_the_request(alice: McpClient, container: Any) -> None:
    task_id = parked(alice)
    before = rows()
    params = {"taskId": task_id} if container == "missing" else {"taskId": task_id, "inputResponses": container}
    answer = alice.post(alice.envelope("tasks/update", params))
    assert (answer.status, answer.messages()[0]["error"]["code"]) == (200, -32602)
    assert rows() == before


BAD: list[tuple[str, Any]] = [
    *[(key, value) for key in FOUR for value in (None, 5, "yes", [], True)],
    ("a", {}),
    ("a", {"action": "maybe"}),
    ("a", {"action": True}),
    ("a", {"content": {"sure": True}}),
    ("a", {"action": "accept"}),
    ("a", {"action": "accept", "content": None}),
    ("a", {"action": "accept", "content": []}),
    ("a", {"action": "accept", "content": {}}),
    ("a", {"action": "accept", "content": {"sure": "yes"}}),
    ("a", {"action": "accept", "content": {"sure": {"nested": True}}}),
    ("a", {"action": "accept", "content": {"sure": True, "more": [1]}}),
    ("b", {"action": "opened"}),
    ("b", {}),
    ("c", {"action": "accept"}),
    ("c", {"role": "assistant"}),
    ("c", {"role": "robot", "content": {"type": "text", "text": "x"}, "model": "m"}),
    ("c", {"role": "assistant", "content": {"type": "text"}, "model": "m"}),
    ("d", {}),
    ("d", {"roots": None}),
    ("d", {"roots": ["file:///x"]}),
    ("d", {"roots": [{"name": "x"}]}),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_one_wrong_answer_refuses_all_and_leaves_every_question_open(alice: McpClient, key: str, value: Any) -> None:
    task_id = parked(alice)
    before = rows()
    with pytest.raises(McpError) as refused:
        alice.update_task(task_id, {**GOOD, key: value})
    assert refused.value.code == -32602
    assert repr(key) in refused.value.message
    assert rows() == before
    assert run_until_idle() == 0
    assert alice.update_task(task_id, GOOD).keys() == ACK


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "accept", "content": {"sure": False}},
        {"action": "accept", "content": {"sure": True, "why": "\x00\ud800", "tags": ["x"], "n": 0.5}},
        {"action": "decline", "content": None},
        {"action": "cancel", "note": {"any": ["thing"]}},
    ],
)
def test_members_beyond_the_form_are_welcome_and_kept(alice: McpClient, asking: Asking, answer: Any) -> None:
    task_id = parked(alice)
    alice.update_task(task_id, {**GOOD, "a": answer})
    run_until_idle()
    assert asking.runs[-1]["a"] == answer


def test_a_tool_may_take_forms_that_violate_their_schema_but_no_other_shape(alice: McpClient) -> None:
    task_id = parked(alice, "lenient")
    with pytest.raises(McpError):
        alice.update_task(task_id, {"a": {"action": "perhaps"}})
    alice.update_task(task_id, {"a": {"action": "accept", "content": {"input": "yes"}}})
    run_until_idle()
    assert alice.get_task(task_id)["result"]["content"][0]["text"] == "{'input': 'yes'}"


def test_an_answer_too_large_to_keep_is_refused_without_a_trace(
    alice: McpClient, configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    task_id = parked(alice)
    configure(LIMITS={"PAYLOAD_BYTES": 1024})
    before = rows()
    with pytest.raises(McpError) as refused:
        alice.update_task(task_id, {"b": GOOD["b"], "a": {"action": "decline", "why": "hunter2" * 500}})
    assert refused.value.code == -32602
    assert "hunter2" not in refused.value.message
    assert "hunter2" not in caplog.text
    assert rows() == before


@pytest.mark.parametrize("kind", ["completed", "failed", "cancelled"])
def test_an_answer_to_a_finished_task_is_acknowledged_and_changes_nothing(alice: McpClient, kind: str) -> None:
    task_id = parked(alice)
    ref = ref_of(task_id)
    {
        "completed": lambda: worker.complete(ref, "done"),
        "failed": lambda: worker.fail(ref, "lost"),
        "cancelled": lambda: alice.cancel_task(task_id),
    }[kind]()
    before = rows()
    assert alice.get_task(task_id)["status"] == kind
    assert alice.update_task(task_id, GOOD).keys() == ACK
    assert alice.update_task(task_id, {"a": None}).keys() == ACK
    assert rows() == before
    assert run_until_idle() == 0


def test_a_key_that_was_answered_or_replaced_is_never_asked_again(alice: McpClient) -> None:
    task_id: str = alice.call_tool("idle")["taskId"]
    ref = ref_of(task_id)
    ok, where = form("OK?", ok="boolean"), form("Where?", place="string")
    worker.require_input(ref, {"ok": ok, "where": where})
    worker.require_input(ref, {"where": where})  # carried forward; the other one is replaced
    assert alice.get_task(task_id)["inputRequests"] == {"where": where}
    before = rows()
    for spent in ({"ok": ok}, {"where": form("Where else?", place="string")}, {"where": where, "ok": ok}):
        with pytest.raises(InvalidTransition, match="key_spent"):
            worker.require_input(ref, spent)
        assert rows() == before
    alice.update_task(task_id, {"where": {"action": "decline"}, "ok": {"action": "decline"}})
    assert alice.get_task(task_id)["status"] == "working"
    with pytest.raises(InvalidTransition, match="'where' was answered"):
        worker.require_input(ref, {"where": where})


@pytest.mark.parametrize(
    "asked", [{}, {"": ROOTS}, {"ä": ROOTS}, {"a b": ROOTS}, {"a": {"method": "ping"}}, {"a": None}]
)
def test_a_tool_that_asks_for_nothing_or_nonsense_fails_its_task(
    alice: McpClient, mcp_tools: Callable[..., Any], asked: dict[str, Any]
) -> None:
    @mcp_tools(task="required")
    def confused() -> InputRequired:
        return InputRequired(asked)

    task = alice.get_task(parked(alice, "confused"))
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert not TaskInput.objects.exists()


def test_a_tool_that_asks_another_question_under_an_answered_key_fails_and_says_which(
    alice: McpClient, mcp_tools: Callable[..., Any]
) -> None:
    @mcp_tools(task="required")
    def restless(ctx: TaskContext) -> str:
        ctx.elicit("again", f"Round {ctx.leg}?", {"type": "object", "properties": {}})
        return "never"

    task_id = parked(alice, "restless")
    alice.update_task(task_id, {"again": {"action": "decline"}})
    run_until_idle()
    task = alice.get_task(task_id)
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert "again" in task["error"]["message"]


@pytest.mark.parametrize("kind", ["a", "b", "c", "d"])
def test_a_question_of_a_kind_that_was_not_declared_at_the_creation_fails_the_task(
    alice: McpClient, mcp_tools: Callable[..., Any], kind: str
) -> None:
    @mcp_tools(task="required")
    def curious(ctx: TaskContext) -> str:
        ctx.ask({kind: FOUR[kind]})
        return "never"

    needed = {
        "a": {"elicitation": {"form": {}}},
        "b": {"elicitation": {"url": {}}},
        "c": {"sampling": {}},
        "d": {"roots": {}},
    }
    others = {name: value for name, value in alice.capabilities.items() if name not in needed[kind]}
    task_id = alice.declaring(others).call_tool("curious")["taskId"]
    run_until_idle()
    task = alice.get_task(task_id)
    assert (task["status"], task["error"]["code"]) == ("failed", -32021)
    assert task["error"]["data"] == {"requiredCapabilities": needed[kind]}
    assert "inputRequests" not in task
