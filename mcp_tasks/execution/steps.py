"""The log of a leg's steps: read when the first step asks for it, written under the leg's fence."""

from collections.abc import Callable
from typing import Protocol, TypeVar
from uuid import UUID

from .. import compat
from ..protocol.codec import loads
from ..store.base import TaskStore
from ..store.legs import STOP_REASONS
from ..store.types import InvalidTransition, RetentionLimitExceeded
from ..tools.cancellation import LEASE_LOST, SHUTDOWN, CancellationToken
from ..tools.steps import RecordedStep, StepError

T = TypeVar("T")


class Insist(Protocol):
    """Runs an operation again while the database is away for a moment."""

    def __call__(self, operation: Callable[[], T], /) -> T: ...


class LegSteps:
    """
    Records steps in the store.

    A step is written before its result is used, so what a handler saw is what every later leg sees. Where it
    cannot be written because the leg is over, the leg ends: its result would be unknown to the next one.
    """

    def __init__(self, store: TaskStore, ref: UUID, leg: int, token: CancellationToken, insist: Insist) -> None:
        self._store, self._ref, self._leg = store, ref, leg
        self._token = token
        self._insist = insist

    def recorded(self) -> dict[str, RecordedStep]:
        if self._leg == 1:
            return {}  # there was nobody before
        return self._insist(lambda: self._store.recorded_steps(self._ref))

    def check(self, name: str) -> None:
        # A process that stops lets a handler go on to its end; every other reason means that the leg is over.
        if self._token.reason != SHUTDOWN:
            self._token.raise_if_cancelled()
        if compat.in_transaction():
            raise StepError(f"the step {name!r} is inside of a transaction, which could undo it after it was recorded")

    def record(self, name: str, step: RecordedStep) -> RecordedStep:
        result = loads(step.result_json)
        try:
            outcome = self._insist(lambda: self._store.record_step(self._ref, self._leg, name, step.args_hash, result))
        except (InvalidTransition, RetentionLimitExceeded) as problem:
            raise StepError(f"the step {name!r} cannot be recorded: {problem}") from problem
        if outcome:
            return step
        if outcome.why == "unchanged":
            # Written by a try whose commit was not heard of.
            return self._insist(lambda: self._store.recorded_steps(self._ref))[name]
        self._token.raise_(STOP_REASONS.get(outcome.why, LEASE_LOST))
        self._token.raise_if_cancelled()
        raise AssertionError("unreachable")
