"""How often, how long and how many at once the legs of a tool may run: what ``@tool`` says of it, and what is wrong."""

import math
from dataclasses import dataclass
from typing import TypeGuard

MOST_ATTEMPTS, MOST_PRIORITY = 100, 1000

#: Tries of a tool that a repeat does no harm, and of any other, where the tool says nothing itself.
REPEATABLE_ATTEMPTS, ATTEMPTS = 3, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LegRules:
    """
    The parameters of ``@tool`` of these names.

    ``retry_on`` is one exception class or a tuple of them as it was given; ``transient`` is always a tuple.
    """

    max_attempts: int | None = None
    timeout_seconds: float | None = None
    retry_on: object = ()
    max_running: int | None = None
    max_running_per_owner: int | None = None
    priority: int = 0

    @property
    def is_limited(self) -> bool:
        """Whether only so many of its tasks may run at once."""
        return self.max_running is not None or self.max_running_per_owner is not None

    @property
    def transient(self) -> tuple[type[Exception], ...]:
        """The exceptions after which a leg is tried again."""
        named = self.retry_on if isinstance(self.retry_on, (tuple, list)) else (self.retry_on,)
        return tuple(named)

    def problems(self, *, attempts: int) -> list[str]:
        """What is wrong, as clauses that follow the tool's name. ``attempts``: its tries with its annotations."""
        found = []
        if self.max_attempts is not None and not is_whole(self.max_attempts, 1, MOST_ATTEMPTS):
            found.append(f"max_attempts must be a whole number from 1 to {MOST_ATTEMPTS}")
        elif self.transient and attempts < 2:
            found.append("retry_on needs max_attempts of at least 2: the first try counts")
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in self.transient):
            found.append("retry_on must be exception classes")
        if self.timeout_seconds is not None and not _is_duration(self.timeout_seconds):
            found.append("timeout_seconds must be a positive number of seconds")
        for name in ("max_running", "max_running_per_owner"):
            limit = getattr(self, name)
            if limit is not None and not is_whole(limit, 1, 2**31):
                found.append(f"{name} must be a positive whole number")
        if not is_whole(self.priority, -MOST_PRIORITY, MOST_PRIORITY):
            found.append(f"priority must be a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}")
        return found


def is_whole(number: object, least: int, most: float) -> TypeGuard[int]:
    """Whether it is an integer, and no bool, within these bounds."""
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def _is_duration(number: object) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number) and number > 0
