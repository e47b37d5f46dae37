"""What a leg costs the database, from the look into the table to the stored outcome."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from mcp_tasks import DeferredTask, McpError, TaskContext
from mcp_tasks.execution.leg import run_leg
from mcp_tasks.execution.queue import Queue
from mcp_tasks.store import get_store
from tests.store.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

FORM = {"type": "object", "properties": {}}
ABLE = {"capabilities": {"elicitation": {}}}

CLAIM, RESTORE, SETTLE, RETRY = 3, 2, 3, 2
#: SQLite has no locking read: it writes first, and reads then.
ASK = 6 if connection.vendor == "sqlite" else 5
#: What a limit adds: the legs that run are counted, and again behind the gate that others wait at.
LIMIT = 3


def returns(ctx: TaskContext) -> str:
    return "done"


def fails(ctx: TaskContext) -> None:
    raise McpError(-32050, "closed")


def asks(ctx: TaskContext) -> str:
    ctx.elicit("one", "One?", FORM)
    return "done"


def stumbles(ctx: TaskContext) -> None:
    raise ConnectionError


def statements_of_a_leg() -> list[str]:
    store = get_store()
    with counted() as statements:
        claim = store.claim()
        assert claim is not None
        run_leg(store, claim)
    return statements


@pytest.mark.parametrize(
    ("handler", "cost"),
    [
        (returns, CLAIM + RESTORE + SETTLE),
        (fails, CLAIM + RESTORE + SETTLE),
        (asks, CLAIM + RESTORE + ASK),
        (stumbles, CLAIM + RESTORE + RETRY),
    ],
    ids=["returns", "fails", "asks", "is retried"],
)
def test_a_leg_costs_so_many_statements(mcp_tools: Any, handler: Callable[..., Any], cost: int) -> None:
    mcp_tools(name="work", max_attempts=2, retry_on=ConnectionError)(handler)
    get_store().create_task("work", {}, context=ABLE, max_attempts=2)
    statements = statements_of_a_leg()
    assert len(statements) == cost, "\n".join(statements)


def test_a_leg_that_hands_over_costs_so_many_statements(mcp_tools: Any) -> None:
    mcp_tools(name="work")(lambda: DeferredTask(start=lambda ref: None))
    get_store().create_task("work", {})
    assert len(statements_of_a_leg()) == CLAIM + RESTORE + 4  # the first one asks whether it may still begin


def test_a_leg_costs_no_more_the_more_tasks_wait(mcp_tools: Any) -> None:
    mcp_tools(name="work")(returns)
    for _ in range(30):
        get_store().create_task("work", {})
    assert {len(statements_of_a_leg()) for _ in range(5)} == {CLAIM + RESTORE + SETTLE}


def test_an_empty_queue_costs_one_look(mcp_tools: Any) -> None:
    with counted() as statements:
        assert get_store().claim() is None
    assert len(statements) == 1


def test_a_claim_as_a_worker_makes_it_costs_so_many_statements_where_a_tool_has_a_limit(mcp_tools: Any) -> None:
    mcp_tools(name="few", max_running=9)(returns)
    mcp_tools(name="free")(returns)
    costs: dict[str, int] = {}
    for tool in ("few", "free", "few"):  # the first of a limited tool makes its gate, which stays
        get_store().create_task(tool, {})
        costs[tool] = statements_of_a_take()
    assert costs == {"few": CLAIM + LIMIT, "free": CLAIM}
    assert statements_of_a_take(finds=False) == 1


def statements_of_a_take(*, finds: bool = True) -> int:
    with counted() as statements:
        assert (Queue().take() is not None) is finds
    return len(statements)
