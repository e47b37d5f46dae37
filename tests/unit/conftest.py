"""Fixtures of the unit tests."""

from collections.abc import Callable

import hypothesis
import pytest

from mcp_tasks.tools.cancellation import CancellationToken
from mcp_tasks.tools.context import Abilities, TaskContext

# No deadline: how long an example takes says more of a busy machine than of the code.
hypothesis.settings.register_profile("mcp_tasks", deadline=None, max_examples=50)
hypothesis.settings.load_profile("mcp_tasks")


@pytest.fixture
def make_context() -> Callable[..., TaskContext]:
    """A context with abilities that do nothing, for a client that can answer everything; a test overrides either."""

    def make(abilities: dict[str, object] | None = None, **options: object) -> TaskContext:
        lent = {
            "report": lambda message, done, total: None,
            "set_ttl": lambda ttl_ms: False,
            "load_user": lambda: None,
            **(abilities or {}),
        }
        everything = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
        given = {"token": CancellationToken(), "capabilities": everything, **options}
        return TaskContext(abilities=Abilities(**lent), **given)

    return make
