"""Pages by cursor: each begins where the last one ended, whatever is added meanwhile, and costs what the first does."""

import base64
import binascii
from datetime import UTC, datetime
from uuid import UUID

from django.db.models import Q
from rest_framework.request import Request

from ...models import Task, TaskEvent
from ...operators.instants import TICK
from .base import Parameter
from .problems import INVALID_FILTER, Problem, invalid

DEFAULT_LIMIT, MOST = 50, 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PARAMETERS = (
    Parameter("cursor", "`next_cursor` of the page before."),
    Parameter("limit", f"How many at most, up to {MOST}; {DEFAULT_LIMIT} unless said.", kind=int),
)


def limit_of(request: Request, *, name: str = "limit", default: int = DEFAULT_LIMIT, most: int = MOST) -> int:
    """A number of the query within its bounds."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:9]) <= most or len(text) > 9:
        raise invalid(name, f"This must be a number from 1 to {most}.", code=INVALID_FILTER)
    return int(text)


def after_task(request: Request) -> Q:
    """Newest first: what comes after the cursor's task."""
    parts = _parts(request, 2)
    if parts is None:
        return Q()
    try:
        at, ref = _EPOCH + int(parts[0]) * TICK, UUID(parts[1])
        next_at = at + TICK
    except (ValueError, OverflowError):
        raise _unknown() from None
    # The first condition is the range of the index. SQLite compares times as text, in which a whole second is less
    # than itself with zeros: so there is neither "at most" nor "equal".
    return Q(created_at__lt=next_at) & (Q(created_at__lt=at) | Q(ref__lt=ref))


def later_than(task: Task) -> Q:
    """Oldest first: what comes after that task."""
    at = task.created_at
    return Q(created_at__gte=at) & (Q(created_at__gte=at + TICK) | Q(ref__gt=task.pk))


def task_cursor(task: Task) -> str:
    return _text(str((task.created_at - _EPOCH) // TICK), task.pk.hex)


def after_event(request: Request) -> Q:
    """Oldest first: what comes after the cursor's event."""
    parts = _parts(request, 1)
    if parts is None:
        return Q()
    if not (parts[0].isascii() and parts[0].isdecimal() and len(parts[0]) < 19):
        raise _unknown()
    return Q(pk__gt=int(parts[0]))


def event_cursor(event: TaskEvent) -> str:
    return _text(str(event.pk))


def _text(*parts: str) -> str:
    return base64.urlsafe_b64encode(".".join(parts).encode()).decode().rstrip("=")


def _parts(request: Request, number: int) -> list[str] | None:
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise _unknown() from None
    parts = text.split(".")
    if len(parts) != number:
        raise _unknown()
    return parts


def _unknown() -> Problem:
    return invalid("cursor", "This is no cursor of this address.", code=INVALID_FILTER)
