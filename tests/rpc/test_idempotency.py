"""A client that lost a reply repeats its call under the same key, and gets the same task."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks.models import Task
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import get_store
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import rpc_client

KEY = "django-mcp-tasks/idempotencyKey"


@pytest.fixture(autouse=True)
def runs(mcp_tools: Callable[..., Any]) -> list[str]:
    ran: list[str] = []

    @mcp_tools(task="required")
    def charge(card: str) -> str:
        ran.append(card)
        return "charged"

    @mcp_tools(task="required")
    def refund(card: str) -> str:
        return "refunded"

    return ran


def charge(client: McpClient, key: Any = "k-77", *, tool: str = "charge", card: Any = "c1") -> dict[str, Any]:
    return client.request("tools/call", {"name": tool, "arguments": {"card": card}}, **{KEY: key})


def test_the_same_call_under_the_same_key_is_one_task_and_one_run(alice: McpClient, runs: list[str]) -> None:
    first, second = charge(alice), charge(alice)
    assert first == second
    run_until_idle()
    third = charge(alice)
    assert third["taskId"] == first["taskId"]
    run_until_idle()
    assert runs == ["c1"]


def test_the_repeated_call_shows_where_the_task_is_now_but_no_payload(alice: McpClient) -> None:
    task_id = charge(alice)["taskId"]
    run_until_idle()
    again = charge(alice)
    assert (again["resultType"], again["status"]) == ("task", "completed")
    assert not {"result", "error", "inputRequests"} & again.keys()
    assert alice.get_task(again["taskId"])["result"]
    alice.cancel_task(task_id)
    assert charge(alice)["status"] == "completed"


def test_the_same_key_of_another_owner_is_another_task(alice: McpClient, bob: McpClient, runs: list[str]) -> None:
    assert charge(alice)["taskId"] != charge(bob)["taskId"]
    run_until_idle()
    assert runs == ["c1", "c1"]


def test_another_key_is_another_task(alice: McpClient) -> None:
    assert charge(alice, "k-77")["taskId"] != charge(alice, "K-77")["taskId"]


@pytest.mark.parametrize("change", [{"card": "c2"}, {"tool": "refund"}])
def test_the_same_key_with_another_call_is_refused(alice: McpClient, runs: list[str], change: dict[str, str]) -> None:
    charge(alice)
    with pytest.raises(McpError) as refused:
        charge(alice, **change)
    assert refused.value.code == -32602
    assert Task.objects.count() == 1
    run_until_idle()
    assert runs == ["c1"]


def test_an_anonymous_key_is_ignored(nobody: McpClient) -> None:
    first, second = charge(nobody), charge(nobody)
    assert first["taskId"] != second["taskId"]
    assert not Task.objects.exclude(idem_hash=None).exists()
    assert charge(nobody, card="c2")["taskId"]


@pytest.mark.parametrize("key", ["", "x" * 256, None, 5, True, [], {"k": 1}])
def test_what_is_no_key_is_refused(alice: McpClient, key: Any) -> None:
    if key is None:  # null is as good as absent
        assert charge(alice, None)["taskId"] != charge(alice, None)["taskId"]
        return
    with pytest.raises(McpError) as refused:
        charge(alice, key)
    assert refused.value.code == -32602
    assert not Task.objects.exists()


@pytest.mark.parametrize("key", ["x", "x" * 255, "ä\x00\ud800 \U0001f600"])
def test_any_other_text_is_a_key(alice: McpClient, key: str) -> None:
    assert charge(alice, key)["taskId"] == charge(alice, key)["taskId"]


@pytest.mark.parametrize("swept", [False, True])
def test_a_key_is_free_again_once_its_task_has_expired(alice: McpClient, runs: list[str], swept: bool) -> None:
    first = charge(alice)["taskId"]
    run_until_idle()
    rewind(ref_of(first), 3601)
    if swept:
        get_store().cleanup_expired()
    second = charge(alice, card="c2")["taskId"]
    assert second != first
    run_until_idle()
    assert runs == ["c1", "c2"]
    assert charge(alice, card="c2")["taskId"] == second
    with pytest.raises(McpError, match="Task has expired"):
        alice.get_task(first)


def test_a_task_is_named_again_after_a_new_secret_key_while_the_old_one_is_kept(
    alice: McpClient, settings: Any
) -> None:
    first = charge(alice)["taskId"]
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "rotated-" + "y" * 40
    settings.SECRET_KEY_FALLBACKS = ["other-" + "z" * 40, old]
    assert charge(alice)["taskId"] == first
    assert alice.get_task(first)["status"] == "working"
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(McpError) as refused:
        charge(alice)
    assert refused.value.code == -32603
    assert Task.objects.count() == 1
    assert alice.get_task(first)["status"] == "working"


def test_a_keyed_id_is_as_unguessable_as_any_and_stands_nowhere(alice: McpClient) -> None:
    ids = [charge(alice, f"k-{number}")["taskId"] for number in range(10)]
    assert len(set(ids)) == 10
    assert {len(task_id) for task_id in ids} == {43}
    rows = str(list(Task.objects.values()))
    assert not any(task_id in rows for task_id in ids)


def test_the_key_is_looked_at_before_the_limit_of_tasks(alice: McpClient, configure: Callable[..., None]) -> None:
    configure(LIMITS={"LIVE_TASKS_PER_OWNER": 1})
    first = charge(alice)["taskId"]
    assert charge(alice)["taskId"] == first
    with pytest.raises(McpError, match="task limit reached"):
        charge(alice, "k-78")


@pytest.mark.usefixtures("transactional_db")
def test_calls_at_the_same_time_under_one_key_are_one_task() -> None:
    from django.db import connections

    barrier, found = threading.Barrier(6), []

    def call() -> None:
        barrier.wait(10)
        try:
            found.append(charge(rpc_client("alice"))["taskId"])
        finally:
            connections.close_all()

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 6
    assert len(set(found)) == 1
    assert Task.objects.count() == 1
