"""Functions whose annotations are texts, for the tests of tool schemas."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, TypedDict

from pydantic import BaseModel

from mcp_tasks import TaskContext

if TYPE_CHECKING:
    from nowhere import NowhereToBeFound


class Stop(BaseModel):
    """A stop of a plan."""

    name: str


class Plan(BaseModel):
    """What ``plan`` returns."""

    stops: list[Stop]


class Typed(TypedDict):
    """A TypedDict of the standard library."""

    a: int


def plan(when: datetime.date, stops: list[Stop] = [], context: TaskContext | None = None) -> Plan:  # noqa: B006
    """Plan."""
    return Plan(stops=stops)


def unresolvable(x: NowhereToBeFound) -> None:
    """Its annotation exists for type checkers only."""


def unresolvable_return() -> NowhereToBeFound:
    """So does this one."""
    raise AssertionError("a tool whose schema cannot be made is never called")


def typed() -> Typed:
    """Typed."""
    return {"a": 1}
