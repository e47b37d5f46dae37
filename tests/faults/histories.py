"""What comes of a race: the history of one task, and whether it is one of those that may be."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mcp_tasks.lifecycle import DONE, EXPIRED, OUTSTANDING, PAIRS
from mcp_tasks.protocol.codec import loads
from mcp_tasks.protocol.tasks import COMPLETED, FAILED, INPUT_REQUIRED, TERMINAL

from .operations import Operation, State


@dataclass(frozen=True, slots=True)
class History:
    """Returned values, phase and status of the row (None: no row), additions to its timeline, doorbells."""

    returned: tuple[Any, ...]
    pair: str | None
    events: tuple[str, ...] = ()
    rung: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """One task after its race: what each operation returned, and what is in the database."""

    state: State
    returned: tuple[Any, ...]
    rung: int
    row: dict[str, Any] | None
    events: tuple[str, ...]
    #: State and answer of each question.
    inputs: dict[str, tuple[str, str | None]]

    @property
    def pair(self) -> str | None:
        return None if self.row is None else f"{self.row['phase']}/{self.row['status']}"


@dataclass(frozen=True, slots=True)
class Raised:
    """An operation told its caller nothing: it raised."""

    problem: str


Check = Callable[[Found], Iterator[str]]
Returned = tuple[Any, ...]


def as_told(returned: Returned) -> Returned:
    """Each operation's value in its place."""
    return returned


def alike(returned: Returned) -> Returned:
    """The operations are equal, so it does not matter which of them returned what."""
    return tuple(sorted(returned, key=repr))


def nothing_more(found: Found) -> Iterator[str]:
    """No check beyond the history and what holds for every row."""
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Operations that start together, once for each prepared task; ``times`` at full strength."""

    name: str
    times: int
    prepare: Callable[[], State]
    operations: tuple[Operation, ...]
    histories: frozenset[History]
    #: Called with the state right before the start.
    arm: Callable[[State], None] | None = None
    #: Tasks that are prepared, raced and looked at in one go: few enough that no lease ends by itself meanwhile,
    #: and one where a later race could still change what this one left.
    batch: int = 25
    summary: Callable[[Returned], Returned] = as_told
    further: Check = nothing_more

    def history(self, found: Found) -> History:
        """What came of one task, in the form of the list."""
        raised = any(isinstance(value, Raised) for value in found.returned)
        returned = found.returned if raised else self.summary(found.returned)
        return History(returned, found.pair, found.events, found.rung)

    def violations(self, found: Found) -> Iterator[str]:
        """What is wrong with a task after its race, as sentences."""
        history = self.history(found)
        if history not in self.histories:
            yield f"{self.name}: no such history may be: {history}"
            return
        if found.row is not None:
            yield from (f"{self.name}: {problem}" for problem in _always(found, found.row))
        yield from (f"{self.name}: {problem}" for problem in self.further(found))


def _always(found: Found, row: dict[str, Any]) -> Iterator[str]:
    """What holds for every row, whatever happened to it."""
    if row["status"] not in PAIRS[row["phase"]]:
        yield f"phase {row['phase']} with status {row['status']}"
    ends = Counter(kind for kind in found.events if kind in TERMINAL)
    if ends.total() != (row["status"] in TERMINAL):
        yield f"status {row['status']} with the outcomes {dict(ends)} in its timeline"
    if row["phase"] == EXPIRED:
        return
    if (row["result_json"] is not None) != (row["status"] == COMPLETED):
        yield "a result without completed, or the other way round"
    if (row["error_json"] is not None) != (row["status"] == FAILED):
        yield "an error without failed, or the other way round"
    outstanding = {key for key, (state, _) in found.inputs.items() if state == OUTSTANDING}
    asked = set() if row["asks_json"] is None else set(loads(row["asks_json"]))
    if outstanding != asked or bool(asked) != (row["status"] == INPUT_REQUIRED):
        yield f"asks {sorted(asked)}, outstanding rows {sorted(outstanding)}, status {row['status']}"
    if (row["phase"] == DONE) != (row["finished_at"] is not None):
        yield "finished_at without an outcome, or an outcome without it"
