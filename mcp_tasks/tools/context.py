"""
TaskContext: what a handler can do and know, the same inline and in a leg.

The context holds no store and no transport. ``execution`` and ``rpc`` hand it callables.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4, uuid5

from ..protocol.capabilities import missing_for
from ..protocol.codec import Json, digest
from ..protocol.errors import invalid_params, missing_capability
from ..protocol.inputs import InvalidAnswer, check_answer, check_deadline, check_requests, nobody_answered
from .cancellation import CancellationToken
from .results import BecomeTask, NobodyAnswered, Suspend
from .steps import StepLog, Steps, refuse_inside_of_a_step


@dataclass(frozen=True, slots=True)
class OwnerIdentity:
    """Who owns the work: the hashed key that every check compares, and a label for people."""

    key: str
    label: str


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer that was checked and stored, with the hash of the question it belongs to."""

    answer: dict[str, Json]
    request_hash: str


def check_finite(**numbers: float | None) -> None:
    """Raise ValueError naming the number that no JSON can carry."""
    for name, number in numbers.items():
        if number is not None and not math.isfinite(number):
            raise ValueError(f"{name} must be a finite number, not {number}")


@dataclass(slots=True, kw_only=True)
class Abilities:
    """What the surroundings lend to a context."""

    report: Callable[[str | None, float | None, float | None], None]
    set_ttl: Callable[[int], bool]
    load_user: Callable[[], Any]
    #: Whether ``become_task`` ends this run: an inline run for a client that can take a task.
    may_become_task: bool = False
    strict_answers: bool = True
    #: Where steps are recorded; None inline.
    steps: StepLog | None = None


@dataclass(slots=True, kw_only=True)
class TaskContext:
    """
    Handed to a tool's parameter that is annotated with it (or called ``ctx``).

    ``ref``: the task's server-side name, None inline. ``leg``: the number of this run of the handler, 0 inline.
    ``token``: raised when the handler should stop. ``owner``, ``scopes``: who called. ``meta``: the call's
    ``_meta``. ``answers``: every answer so far, by key, each checked against its question.
    """

    token: CancellationToken
    abilities: Abilities
    capabilities: dict[str, Json]
    owner: OwnerIdentity | None = None
    scopes: frozenset[str] = frozenset()
    meta: dict[str, Json] = field(default_factory=dict)
    ref: UUID | None = None
    leg: int = 0
    #: Answers that were checked against their questions, with the task or in earlier rounds of the call.
    recorded: dict[str, RecordedAnswer] = field(default_factory=dict)
    #: Answers to what nobody has asked yet: not shown to the handler before their question is.
    given: Mapping[str, Json] = field(default_factory=dict)
    _steps: Steps = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._steps = Steps(self.abilities.steps)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop; a cheap check."""
        return self.token.cancelled

    @property
    def user(self) -> Any:
        """The caller's user, read fresh at each access; None when anonymous or deleted."""
        return self.abilities.load_user()

    @property
    def answers(self) -> dict[str, Json]:
        """Every answer so far by key, as the client sent it, each checked against its question."""
        return {key: item.answer for key, item in self.recorded.items()}

    def progress(self, message: str | None = None, *, done: float | None = None, total: float | None = None) -> None:
        """
        Tell how far the work is.

        In a task: its status message and numbers, coalesced. Inline: ``notifications/progress`` when the caller
        sent a progress token. Never waits for the database. Raises ValueError for a number that is not finite.
        """
        check_finite(done=done, total=total)
        self.abilities.report(None if message is None else str(message), done, total)

    def elicit(
        self, key: str, message: str, schema: Mapping[str, Json], *, deadline_seconds: float | None = None
    ) -> dict[str, Json]:
        """
        Ask the user to fill in a form; returns ``{"action": …, "content": …}`` as the client sent it.

        ``key`` names the question for the life of the task. ``schema`` is a flat object schema. Where there is
        no answer yet this ends the run; the function is called again from the top once there is one. Nobody
        answers within ``deadline_seconds`` of the asking: ``{"action": "cancel"}``.
        """
        requested = dict(schema) if isinstance(schema, Mapping) else schema
        params = {"mode": "form", "message": message, "requestedSchema": requested}
        asked = {key: {"method": "elicitation/create", "params": params}}
        return self.ask(asked, deadline_seconds=deadline_seconds)[key]

    def sample(
        self,
        key: str,
        messages: list[Json],
        *,
        max_tokens: int,
        deadline_seconds: float | None = None,
        **params: Json,
    ) -> dict[str, Json]:
        """
        Ask the client's model (``sampling/createMessage``); further params under their wire names.

        Raises NobodyAnswered where none came within ``deadline_seconds``.
        """
        body = {"messages": messages, "maxTokens": max_tokens, **params}
        asked = {key: {"method": "sampling/createMessage", "params": body}}
        return self.ask(asked, deadline_seconds=deadline_seconds)[key]

    def roots(self, key: str = "roots", *, deadline_seconds: float | None = None) -> dict[str, Json]:
        """Ask which folders the client offers (``roots/list``); NobodyAnswered as for ``sample``."""
        return self.ask({key: {"method": "roots/list"}}, deadline_seconds=deadline_seconds)[key]

    def ask(self, requests: Mapping[str, Json], *, deadline_seconds: float | None = None) -> dict[str, dict[str, Json]]:
        """
        Ask several questions together, in the wire's ``inputRequests`` shape; returns the answers by key.

        ``deadline_seconds``: from the asking, for each of them; inline it means nothing. Raises NobodyAnswered
        where it is over for a question other than an elicitation, whose answer is then ``{"action": "cancel"}``;
        InvalidInputRequest for a malformed question or deadline, McpError -32021 for a kind that the client did
        not declare.
        """
        refuse_inside_of_a_step("asks a question")
        check_deadline(deadline_seconds)
        checked = check_requests(requests)
        open_questions = self.unanswered(checked)
        if open_questions:
            raise Suspend(open_questions, deadline_seconds)
        answers = {key: self.recorded[key].answer for key in checked}
        overdue = [key for key, answer in answers.items() if nobody_answered(checked[key], answer)]
        if overdue:
            raise NobodyAnswered(overdue)
        return answers

    def unanswered(self, checked: dict[str, dict[str, Json]]) -> dict[str, dict[str, Json]]:
        """The questions of a checked map that still need an answer; refuses what the client cannot answer."""
        missing = {key: request for key, request in checked.items() if not self._has_answer(key, request)}
        undeclared = missing_for(missing, self.capabilities)
        if undeclared:
            raise missing_capability(undeclared, "The tool asks for input that the client did not declare")
        return missing

    def _has_answer(self, key: str, request: dict[str, Json]) -> bool:
        if key in self.recorded:
            # In a task another question under a spent key goes on to the store, which refuses it by name.
            return self.recorded[key].request_hash == digest(request)
        if key not in self.given:
            return False
        try:
            check_answer(key, request, self.given[key], strict=self.abilities.strict_answers)
        except InvalidAnswer as problem:
            if self.ref is not None:
                return False  # came before the task did and nobody is there to be told: ask again
            raise invalid_params(str(problem)) from None
        self.recorded[key] = RecordedAnswer(self.given[key], digest(request))
        return True

    def become_task(self) -> None:
        """
        Go on as a task: it is made now with the answers so far, and the function runs again from the top in it.

        Does nothing in a leg, and for a client that did not declare the extension.
        """
        refuse_inside_of_a_step("cannot become a task")
        if self.abilities.may_become_task:
            raise BecomeTask

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """
        Call ``function`` once for the task: its result is recorded, and later legs get it without a call.

        ``name`` is the step's for the life of the task; the arguments must be the same in every leg. Arguments
        and result are JSON, and the result is what was read back from its text, in the first leg too. In an
        async handler this is an awaitable, whatever the function is. What the function raises is not recorded.
        Inline nothing is recorded beyond the run.

        Raises StepError for a broken rule. A leg that was cancelled or fenced out ends here with TaskCancelled.
        """
        return self._steps.run(name, function, args, kwargs)

    def set_ttl(self, ttl_ms: int) -> bool:
        """Ask for a longer life, in milliseconds since creation; False inline, or when the task is gone."""
        return self.abilities.set_ttl(ttl_ms)

    def idempotency_key(self, name: str) -> str:
        """A key for calls to other systems: equal in every leg of the task, new with each inline call."""
        return str(uuid4() if self.ref is None else uuid5(self.ref, name))
