"""Instants as operators send them."""

from datetime import UTC, datetime, timedelta
from typing import Any

TICK = timedelta(microseconds=1)


def instant_of(text: Any) -> datetime | None:
    """
    An ISO 8601 time with its zone, in UTC; None when it is none.

    Nor is it one where UTC has no such time, or no next one: comparisons go on from it by a tick.
    """
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            return None
        at = at.astimezone(UTC)
        at + TICK
    except (ValueError, OverflowError):
        return None
    return at
