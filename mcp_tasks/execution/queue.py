"""Which task a process starts next: the limits that its tools set, and their turn for those of low priority."""

from random import randrange
from uuid import UUID

from ..store import get_store
from ..store.processes import own_name
from ..store.types import Claim, RunningLimit
from ..tools.registry import registry

#: Of so many starts one takes the oldest task, whatever its priority: so no task waits for ever.
OLDEST_EVERY = 5


class Queue:
    """
    The table as one process sees it. ``tools``: those whose tasks it starts, where it does not start all.

    Used by one thread at a time.
    """

    def __init__(self, tools: tuple[str, ...] | None = None) -> None:
        self._tools = tools
        self._holder = own_name()
        # Else processes that end after a few legs would never come to the oldest.
        self._started = randrange(OLDEST_EVERY)  # noqa: S311

    def take(self, ref: UUID | None = None) -> Claim | None:
        """Start the next leg, of this task where one is named; None when there is nothing to start."""
        claim = get_store().claim(
            ref,
            tools=self._tools,
            limits=running_limits(),
            oldest_first=(self._started + 1) % OLDEST_EVERY == 0,
            holder=self._holder,
        )
        self._started += claim is not None
        return claim


def running_limits() -> dict[str, RunningLimit]:
    """The limits of the tools of this process that have one; a wrong definition has none, and its tasks fail."""
    limited = (tool for tool in registry if tool.legs.is_limited and not tool.problems)
    return {tool.name: RunningLimit(tool.legs.max_running, tool.legs.max_running_per_owner) for tool in limited}
