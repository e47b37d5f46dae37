"""The reference names exactly what there is."""

import re

import pytest

from mcp_tasks.access.throttles import DEFAULT_RATES, SCOPES
from mcp_tasks.operators.states import FILTERS
from mcp_tasks.transports.rest import bodies, filters
from mcp_tasks.transports.rest.problems import STATUSES
from mcp_tasks.transports.rest.urls import urlpatterns
from tests.docs.pages import DOCS, code, table

PAGE = DOCS / "reference" / "rest.md"


def address(pattern: object) -> str:
    return str(pattern).replace("<str:ref>", "{ref}")


@pytest.mark.parametrize(("heading", "prefix"), [("## One's own task", "tasks/"), ("## Operators", "operator/")])
def test_the_addresses_are_those_that_are_mounted(heading: str, prefix: str) -> None:
    mounted = {
        f"{method} {address(it.pattern)}"
        for it in urlpatterns
        for method in it.callback.view_class.operations
        if address(it.pattern).startswith(prefix)
    }
    assert {code(row[0]) for row in table(PAGE, heading)} == mounted


def test_the_permissions_are_those_that_are_asked_for() -> None:
    documented = {code(row[0]): row[1].strip("` ") or "view_task" for row in table(PAGE, "## Operators")}
    for it in urlpatterns:
        view = it.callback.view_class
        for method in view.operations:
            if not address(it.pattern).startswith("operator/"):
                continue
            wanted = "delete_task" if method == "DELETE" else view.permission
            if isinstance(wanted, property):
                wanted = "view_task"
            assert documented[f"{method} {address(it.pattern)}"] == wanted


def test_the_codes_are_those_that_are_used() -> None:
    assert {code(row[0]): int(row[1]) for row in table(PAGE, "## Errors")} == STATUSES


def test_the_filters_and_states_are_those_that_are_read() -> None:
    rows = table(PAGE, "### Filters")
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row[0])] == [it.name for it in filters.PARAMETERS]
    assert re.findall(r"`([\w-]+)`", rows[0][1]) == list(FILTERS)


def test_the_members_of_orders_are_those_that_are_taken() -> None:
    taken = {**bodies.SettlingOrder().fields, **bodies.ExtendingOrder().fields}
    assert {code(row[0]) for row in table(PAGE, "### Verbs")} == set(taken)
    assert {code(row[0]) for row in table(PAGE, "### Bulk cancel")} == set(bodies.BulkOrder().fields)


def test_the_rates_are_those_that_count() -> None:
    text = PAGE.read_text()
    for scope, rate in DEFAULT_RATES.items():
        assert f"| `{scope}` | {rate} |" in text
    assert f"| `{SCOPES['tasks/get']}` | twice what `POLL_INTERVAL_MS` asks for" in text
