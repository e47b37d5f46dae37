"""``requestState``: what a client carries from round to round, and cannot forge, stretch or lend."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.core import signing

from mcp_tasks import TaskContext
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import rpc_client

from .questions import OPEN_FORM

YES = {"sure": {"action": "accept", "content": {}}}


@pytest.fixture(autouse=True)
def runs(mcp_tools: Callable[..., Any]) -> list[str]:
    """What ran with an answer, of two tools that ask the same."""
    ran: list[str] = []

    def add(name: str) -> None:
        @mcp_tools(name=name, task="never")
        def ask(what: str, ctx: TaskContext, note: str = "") -> str:
            answer = ctx.elicit("sure", f"Delete {what}?", OPEN_FORM)
            ran.append(name)
            return str(answer["action"])

    add("delete")
    add("purge")
    return ran


@pytest.fixture
def client() -> McpClient:
    """A caller who needs no database."""
    return rpc_client("alice")


ARGUMENTS = {"what": "x"}


def state_of(client: McpClient) -> str:
    state: str = client.call_tool("delete", ARGUMENTS)["requestState"]
    return state


def confirm(client: McpClient, state: Any, *, tool: str = "delete", arguments: Any = None, **more: Any) -> Any:
    return client.call_tool(tool, arguments or ARGUMENTS, inputResponses=YES, requestState=state, **more)


def refused(client: McpClient, state: Any, **options: Any) -> str:
    with pytest.raises(McpError) as refusal:
        confirm(client, state, **options)
    assert refusal.value.code == -32602
    return refusal.value.message


def test_a_state_that_comes_back_unchanged_is_accepted(client: McpClient, runs: list[str]) -> None:
    assert confirm(client, state_of(client))["content"][0]["text"] == "accept"
    assert runs == ["delete"]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state + "-TAMPERED",
        lambda state: state + " ",
        lambda state: " " + state,
        lambda state: state[:-1],
        lambda state: state[1:],
        lambda state: ("B" if state[3] != "B" else "C").join([state[:3], state[4:]]),
        lambda state: state.swapcase(),
        lambda state: state.split(":")[0],
        lambda state: ":".join([state.split(":")[0], "AAAAAA", state.split(":")[2]]),
        lambda state: "",
        lambda state: "::",
        lambda state: "\x00",
        lambda state: "\ud800:é:" + state,
        lambda state: "x" * 100_000,
        lambda state: '{"call": "", "recorded": {}}',
        lambda state: signing.dumps({"call": "x", "recorded": {}}),
        lambda state: signing.dumps({"call": "x"}, key="another", salt="mcp_tasks.rpc.mrtr"),
    ],
)
def test_a_state_that_was_changed_or_made_up_is_refused(
    client: McpClient, runs: list[str], change: Callable[[str], str]
) -> None:
    message = refused(client, change(state_of(client)))
    assert message == "Invalid or expired requestState; call again without it"
    assert not runs


@pytest.mark.parametrize("state", [None, 5, True, [], {}])
def test_a_state_that_is_no_text_is_refused(client: McpClient, runs: list[str], state: Any) -> None:
    refused(client, state)
    assert not runs


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let seconds pass for whoever signs and checks."""

    class Clock:
        passed = 0.0

        def time(self) -> float:
            return time.time() + self.passed

    clock = Clock()
    monkeypatch.setattr(signing, "time", clock)

    def wait(seconds: float) -> None:
        clock.passed += seconds

    return wait


def test_a_state_is_good_for_ten_minutes(client: McpClient, runs: list[str], wait: Callable[[float], None]) -> None:
    state = state_of(client)
    wait(595)
    assert confirm(client, state)["resultType"] == "complete"
    wait(10)
    refused(client, state)
    assert runs == ["delete"]


@pytest.mark.parametrize("other", ["bob", None])
def test_a_state_is_good_for_nobody_else(client: McpClient, runs: list[str], other: str | None) -> None:
    refused(rpc_client(other), state_of(client))
    refused(client, state_of(rpc_client(other)))
    assert not runs


@pytest.mark.parametrize(
    "changed",
    [
        {"arguments": {"what": "y"}},
        {"arguments": {"what": "x", "note": ""}},
        {"tool": "purge"},
        {"later": 1},
    ],
)
def test_a_state_is_good_for_no_other_call(client: McpClient, runs: list[str], changed: dict[str, Any]) -> None:
    assert refused(client, state_of(client), **changed) == "requestState belongs to another call; call again without it"
    assert not runs


def test_what_does_not_make_the_call_may_change(client: McpClient) -> None:
    state = state_of(client)
    assert confirm(client, state, task={"ttl": 5})["resultType"] == "complete"
    arguments = {"name": "delete", "arguments": ARGUMENTS, "inputResponses": YES, "requestState": state}
    assert client.request("tools/call", arguments, progressToken=5)["resultType"] == "complete"
    assert confirm(client.declaring({"elicitation": {}}), state)["resultType"] == "complete"


def test_the_same_state_twice_is_the_same_round_twice(client: McpClient, runs: list[str]) -> None:
    state = state_of(client)
    confirm(client, state)
    confirm(client, state)
    assert runs == ["delete", "delete"]


def test_a_state_survives_a_new_secret_key_while_the_old_one_is_kept(
    client: McpClient, settings: Any, runs: list[str]
) -> None:
    state = state_of(client)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "rotated-" + "y" * 40
    assert confirm(client, state)["resultType"] == "complete"
    settings.SECRET_KEY_FALLBACKS = []
    refused(client, state)
    assert runs == ["delete"]


def test_a_state_carries_no_task_and_no_identity_in_the_clear(client: McpClient) -> None:
    state = state_of(client)
    assert "alice" not in state
    assert state.isascii()
    assert state.isprintable()
