"""
Which tasks are meant: the filters of the list, and of what is cancelled in bulk.

One reading for both, and nothing is ignored: an unknown name or value is an error that says where.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db.models import Q

from ...lifecycle import RUNNING
from ...operators.instants import instant_of
from ...operators.states import FILTERS
from ...querysets import unfinished
from .base import Parameter
from .problems import INVALID_FILTER, Problem

#: The value of ``owner`` for tasks that nobody owns.
ANONYMOUS = "anonymous"
_MOST_TOOLS = 50

PARAMETERS = (
    Parameter("state", "One of the states that operators see, or `live`.", choices=tuple(FILTERS)),
    Parameter("tool", "A tool's name; several are one of them.", many=True),
    Parameter("owner", f"The key of an owner, 64 hexadecimal digits, or `{ANONYMOUS}`."),
    Parameter("worker", "The process that runs it now."),
    Parameter("created_after", "Created at that time or later."),
    Parameter("created_before", "Created earlier."),
    Parameter("expires_before", "Unfinished, and over before that time."),
)


class _Wrong(ValueError):
    """What is wrong with a value."""


def condition(given: Mapping[str, Sequence[Any]]) -> Q:
    """The rows that match all; raises Problem naming each wrong name and value."""
    found, wrong = Q(), []
    for name, values in given.items():
        try:
            found &= _read(name, values)
        except _Wrong as problem:
            wrong.append((name, str(problem)))
    if wrong:
        raise Problem(INVALID_FILTER, "The filter is not valid.", errors=wrong)
    return found


def parts(given: Mapping[str, Sequence[Any]]) -> list[Q]:
    """
    The same rows, in parts that share none: those of each tool, where several are named.

    An index has each part in the order of the list. Several tools in one query are read as a whole to be sorted.
    """
    whole = condition(given)
    tools = dict.fromkeys(given.get("tool", ()))
    return [whole] if len(tools) < 2 else [condition({**given, "tool": [tool]}) for tool in tools]


def _read(name: str, values: Sequence[Any]) -> Q:
    if name not in _READERS:
        raise _Wrong("There is no such filter.")
    if not all(isinstance(value, str) and value and "\0" not in value and value.isprintable() for value in values):
        raise _Wrong("This must be a text.")
    if name == "tool":
        return _tools(values)
    if len(values) != 1:
        raise _Wrong("This can be given once.")
    return _READERS[name](values[0])


def _tools(names: Sequence[str]) -> Q:
    if not 1 <= len(names) <= _MOST_TOOLS:
        raise _Wrong(f"Name at most {_MOST_TOOLS} tools.")
    return Q(tool=names[0]) if len(names) == 1 else Q(tool__in=names)


def _tool(name: str) -> Q:
    return _tools([name])


def _state(value: str) -> Q:
    if value not in FILTERS:
        raise _Wrong(f"This must be one of {', '.join(FILTERS)}.")
    return FILTERS[value][1]()


def _owner(value: str) -> Q:
    if value == ANONYMOUS:
        return Q(owner_key__isnull=True)
    if len(value) != 64 or any(character not in "0123456789abcdef" for character in value):
        raise _Wrong(f"This must be the key of an owner, 64 hexadecimal digits, or {ANONYMOUS}.")
    return Q(owner_key=value)


def _worker(value: str) -> Q:
    # With the phase an index finds them; after the end the column only says who has still to let go.
    return Q(phase=RUNNING, lease_holder=value)


def _time(lookup: str, more: Q | None = None) -> Callable[[str], Q]:
    def read(value: str) -> Q:
        at = instant_of(value)
        if at is None:
            raise _Wrong("This must be a time with its zone, like 2026-01-31T12:00:00Z.")
        return Q(**{lookup: at}) & (more or Q())

    return read


# Only gte and lt: SQLite compares times as text, in which a whole second is less than itself with zeros.
_READERS: dict[str, Callable[[str], Q]] = {
    "state": _state,
    "tool": _tool,
    "owner": _owner,
    "worker": _worker,
    "created_after": _time("created_at__gte"),
    "created_before": _time("created_at__lt"),
    "expires_before": _time("expires_at__lt", unfinished()),
}
