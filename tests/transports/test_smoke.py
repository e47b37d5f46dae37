"""The whole way through each adapter."""

from mcp_tasks.testing import McpClient, run_until_idle


def test_a_task_is_created_answered_and_completed(alice: McpClient) -> None:
    created = alice.call_tool("approve", {"service": "web"})
    assert created["resultType"] == "task"
    assert created["status"] == "working"
    run_until_idle()
    waiting = alice.get_task(created["taskId"])
    assert waiting["status"] == "input_required"
    alice.update_task(created["taskId"], {"approval": {"action": "accept", "content": {"approve": True}}})
    run_until_idle()
    done = alice.get_task(created["taskId"])
    assert done["status"] == "completed"
    assert done["result"]["content"] == [{"type": "text", "text": "ok"}]


def test_a_synchronous_call_is_answered_at_once(alice: McpClient) -> None:
    assert alice.call_tool("add", {"a": 2, "b": 3})["content"] == [{"type": "text", "text": "5"}]
