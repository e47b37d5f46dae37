"""What cannot be imported, or was defined wrongly, costs the task that needs it, and no other."""

from typing import Any

import pytest

from mcp_tasks.store import get_store

pytestmark = pytest.mark.django_db(transaction=True)


def end_of(ref: Any) -> Any:
    found = get_store().wait_for_completion(ref, 10.0)
    assert found is not None
    return found


def test_an_import_that_fails_in_a_handler_ends_its_task_with_an_error_result_and_the_next_one_runs(
    mcp_tools: Any, worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @mcp_tools
    def report() -> None:
        import nobody_installed_this  # noqa: F401

    mcp_tools(name="quick")(lambda: "ok")
    refs = [get_store().create_task(name, {}).ref for name in ("report", "quick", "report", "quick")]
    worker(1)
    ends = [end_of(ref) for ref in refs]
    assert [end.task.status for end in ends] == ["completed"] * 4
    assert [end.result.get("isError", False) for end in ends] == [True, False, True, False]
    assert "nobody_installed_this" not in str(ends[0].result), "its client need not know"
    assert "nobody_installed_this" in caplog.text


def test_a_tool_that_was_defined_wrongly_fails_its_task_with_a_reason_and_the_next_one_runs(
    mcp_tools: Any, worker: Any
) -> None:
    called: list[str] = []
    mcp_tools(name="wrong", task="sometimes")(lambda: called.append("wrong"))
    mcp_tools(name="quick")(lambda: called.append("quick"))
    wrong, quick = (get_store().create_task(name, {}).ref for name in ("wrong", "quick"))
    worker(1)
    assert end_of(quick).task.status == "completed"
    assert (end_of(wrong).task.status, end_of(wrong).error["code"]) == ("failed", -32603)
    assert "The tool wrong is no longer available" in end_of(wrong).error["message"]
    assert called == ["quick"]
