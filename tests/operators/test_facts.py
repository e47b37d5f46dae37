"""What the sentence on a task is made of, read from the database."""

from typing import Any

import pytest

from mcp_tasks.models import Task
from mcp_tasks.operators.vitals import facts_about
from mcp_tasks.operators.why import why
from mcp_tasks.store import get_store
from mcp_tasks.store.processes import tools_hash
from mcp_tasks.store.types import Owner
from mcp_tasks.tools.registry import registry
from tests.store.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

ANN, BOB = Owner(("ann",)), Owner(("bob",))


def create(tool: str, owner: Owner | None = None) -> Any:
    return get_store().create_task(tool, {}, owner=owner).ref


def said(ref: Any) -> str | None:
    """The sentence, in a site with one process that has free slots."""
    tools = tools_hash([tool.name for tool in registry])
    get_store().note_process("web:1", "web", slots=8, busy=0, tools=tools)
    task = Task.objects.get(pk=ref)
    return why(task, facts_about(task, task.created_at))


def test_a_task_that_waits_for_others_of_its_tool_says_so(mcp_tools: Any) -> None:
    mcp_tools(name="few", max_running=2)(lambda: None)
    for _ in range(2):
        assert get_store().claim(create("few"))
    assert "As many tasks of this tool run as may at once: 2." in (said(create("few")) or "")


@pytest.mark.parametrize("owner", [ANN, None], ids=["an owner", "anonymous callers"])
def test_a_task_that_waits_for_others_of_its_owner_says_so(mcp_tools: Any, owner: Owner | None) -> None:
    mcp_tools(name="fair", max_running=5, max_running_per_owner=1)(lambda: None)
    assert get_store().claim(create("fair", owner))
    assert "As many of its owner's tasks of this tool run as may at once: 1." in (said(create("fair", owner)) or "")
    assert "free slots" in (said(create("fair", BOB)) or "")


def test_only_a_tool_with_a_limit_costs_a_statement_for_it(mcp_tools: Any) -> None:
    mcp_tools(name="free")(lambda: None)
    mcp_tools(name="few", max_running=2)(lambda: None)
    said(create("free"))
    costs = []
    for tool in ("free", "few"):
        task = Task.objects.get(pk=create(tool))
        with counted() as statements:
            facts_about(task, task.created_at)
        costs.append(len(statements))
    assert costs == [1, 2]
