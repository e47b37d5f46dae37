"""
Steps: what a handler does once for its task, however often it is replayed.

Knows no store: ``execution`` lends a log in which results are recorded. Inline there is none, and what a step
returned is only known to the run itself.
"""

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from asgiref.sync import async_to_sync, sync_to_async

from ..protocol.codec import Json, JsonError, digest, dumps, loads

_NAME = re.compile(r"[!-~]{1,128}")

#: The step that runs in this context.
_inside: ContextVar[str | None] = ContextVar("inside", default=None)


class StepError(Exception):
    """
    A tool broke a rule of its steps; the message names the step. Uncaught it fails the task with -32603.

    A wrong name, arguments or a result without JSON form or too large, other arguments than those recorded, a
    question inside of a step, a step inside of a transaction.
    """


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What a step returned, as JSON text, with the hash of the arguments that it was called with."""

    args_hash: str
    result_json: str


class StepLog(Protocol):
    """Where a leg records its steps."""

    def recorded(self) -> dict[str, RecordedStep]:
        """The steps of earlier legs by name."""

    def check(self, name: str) -> None:
        """Raise StepError or TaskCancelled where a step that begins now could not be recorded."""

    def record(self, name: str, step: RecordedStep) -> RecordedStep:
        """Record a step and return what holds from now on; raises StepError, or TaskCancelled to a leg that is over."""


class Steps:
    """The steps of one run of a handler."""

    def __init__(self, log: StepLog | None) -> None:
        self._log = log
        self._known: dict[str, RecordedStep] | None = None
        self._open: set[str] = set()
        self._lock = threading.Lock()

    def run(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The recorded result, or that of the function, which is then recorded; in an event loop an awaitable of it."""
        args_hash = _hash(name, args, kwargs)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run(name, args_hash, function, args, kwargs)
        return self._run_async(name, args_hash, function, args, kwargs)

    def _run(
        self, name: str, args_hash: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Json:
        with self._opened(name):
            step = self._find(name, args_hash)
            if step is None:
                value = function(*args, **kwargs)
                value = async_to_sync(_await)(value) if inspect.isawaitable(value) else value
                step = self._record(name, args_hash, value)
        return loads(step.result_json)

    async def _run_async(
        self, name: str, args_hash: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Json:
        with self._opened(name):
            # What may ask the database runs on a thread, as a function that is no coroutine function does.
            step = await sync_to_async(self._find)(name, args_hash)
            if step is None:
                called = function if inspect.iscoroutinefunction(function) else sync_to_async(function)
                value = await called(*args, **kwargs)
                value = await value if inspect.isawaitable(value) else value
                step = await sync_to_async(self._record)(name, args_hash, value)
        return loads(step.result_json)

    @contextmanager
    def _opened(self, name: str) -> Iterator[None]:
        with self._lock:
            if name in self._open:
                raise StepError(f"the step {name!r} runs already: a name is for one step of the task")
            self._open.add(name)
        token = _inside.set(name)
        try:
            yield
        finally:
            _inside.reset(token)
            with self._lock:
                self._open.discard(name)

    def _find(self, name: str, args_hash: str) -> RecordedStep | None:
        with self._lock:  # else a slower look would forget what was recorded meanwhile
            if self._known is None:
                self._known = {} if self._log is None else self._log.recorded()
        step = self._known.get(name)
        if step is None:
            if self._log is not None:
                self._log.check(name)
        elif step.args_hash != args_hash:
            raise StepError(f"the step {name!r} was recorded with other arguments")
        return step

    def _record(self, name: str, args_hash: str, value: Any) -> RecordedStep:
        try:
            step = RecordedStep(args_hash, dumps(value))
        except JsonError as problem:
            raise StepError(f"the step {name!r} returned what has no JSON form: {problem}") from None
        if self._log is not None:
            step = self._log.record(name, step)
        assert self._known is not None
        self._known[name] = step
        return step


def refuse_inside_of_a_step(what: str) -> None:
    """Raise StepError in a step: it is not replayed, so what ends its run would be lost with it."""
    name = _inside.get()
    if name is not None:
        raise StepError(f"the step {name!r} {what}")


def _hash(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise StepError(f"{name!r} is no name of a step: 1 to 128 visible ASCII characters")
    try:
        return digest([args, kwargs])
    except JsonError as problem:
        raise StepError(f"the step {name!r} has arguments without JSON form: {problem}") from None


async def _await(value: Any) -> Any:
    return await value
