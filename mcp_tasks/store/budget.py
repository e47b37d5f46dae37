"""What one pass of the janitor may use up: rows, time, and until somebody stops it."""

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True)
class Budget:
    """
    What one pass may use up: ``rows``, the monotonic time ``until`` which it may run, or until ``stopped`` is set.

    ``tell`` hears of each batch: the step's name and the refs that were picked.
    """

    batch_size: int | None = None
    rows: int | None = None
    until: float = float("inf")
    tell: Callable[[str, list[UUID]], None] | None = None
    stopped: threading.Event | None = None

    @property
    def is_spent(self) -> bool:
        is_stopped = self.stopped is not None and self.stopped.is_set()
        return is_stopped or self.rows == 0 or time.monotonic() >= self.until

    def limit(self, usual: int) -> int:
        """How many rows the next batch may have."""
        wanted = usual if self.batch_size is None else self.batch_size
        return wanted if self.rows is None else min(wanted, self.rows)

    def spend(self, name: str, refs: list[UUID]) -> None:
        """A batch was done."""
        if self.rows is not None:
            self.rows = max(0, self.rows - len(refs))
        if self.tell is not None and refs:
            self.tell(name, refs)


#: The budget of the pass that runs in this context; without limits unless a command sets some.
budget: ContextVar[Budget] = ContextVar("budget", default=Budget())  # noqa: B039 - the default is never spent
