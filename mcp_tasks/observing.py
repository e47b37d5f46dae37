"""
Moments that somebody may count, time or trace. ``contrib`` listens; whoever tells of a moment knows nobody.

Without an observer a moment costs one function call. Facts never hold a client's id, a payload or a reason.

=============== =================================================================
moment          facts
=============== =================================================================
created         ref, tool, transport
settled         ref, tool, outcome, queue_ms, run_ms, wait_ms
lapsed          ref, tool, action: parked, requeued or failed
late_result     ref, tool
cancel          ref, actor, effect: settled or none
let_go          ref, seconds since the cancellation
poll            ref and interval_ms, or is_throttled
refused         reason: owner, unknown or expired
payload         kind, size
payload_refused kind
notification    result: sent, stale, reconciled or failed; number
listening       transport, change: 1 or -1
operator        ref, action, result
=============== =================================================================

An activity takes time: ``rpc`` (method, tool, ref, version, id, carrier, transport; code), ``leg`` (ref, tool, leg,
tries; end), ``sweep`` (report). What comes after the semicolon is known at its end, as is ``seconds``.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Self

from django.utils.crypto import salted_hmac

logger = logging.getLogger("mcp_tasks.runner")

Facts = Mapping[str, Any]


class Span:
    """What an observer keeps of one activity."""

    def on_thread(self) -> AbstractContextManager[object]:
        """Entered where a part of the activity runs; more than once, on more than one thread."""
        return nullcontext()

    def ended(self, facts: Facts) -> None:
        """It is over."""


class Observer:
    """To be subclassed. What a method raises is logged and changes nothing."""

    def happened(self, moment: str, facts: Facts) -> None:
        """A moment; called on any thread, also on an event loop's, so it must not block."""

    def begun(self, activity: str, facts: Facts) -> Span | None:
        """An activity begins; None where it is of no interest."""
        return None

    def carry(self) -> Callable[[], object] | None:
        """What is current here, as a function that makes it current in an empty context."""
        return None

    def trace(self) -> str | None:
        """What is current here, as a ``traceparent`` of W3C Trace Context."""
        return None


class Activity:
    """Something that takes time. Used as a context manager where it begins and ends on one thread."""

    __slots__ = ("_began", "_here", "_spans", "facts")

    def __init__(self, spans: list[Span], facts: dict[str, Any]) -> None:
        self.facts = facts
        self._spans = spans
        self._began = time.perf_counter()
        self._here: AbstractContextManager[None] | None = None

    def note(self, **facts: Any) -> None:
        """Add what is known only now."""
        self.facts.update(facts)

    @contextmanager
    def on_thread(self) -> Iterator[None]:
        """Around a part of it that runs on this thread."""
        with ExitStack() as stack:
            for span in self._spans:
                _guarded(_enter, stack, span)
            yield

    def end(self) -> None:
        """Tell that it is over."""
        self.facts["seconds"] = time.perf_counter() - self._began
        for span in self._spans:
            _guarded(span.ended, self.facts)

    def __enter__(self) -> Self:
        self._here = self.on_thread()
        self._here.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        assert self._here is not None
        try:
            self._here.__exit__(*raised)
        finally:
            self.end()


_observers: tuple[Observer, ...] = ()


def add(observer: Observer) -> None:
    """Tell this observer of everything from now on; an app does so when it is ready."""
    global _observers
    if observer not in _observers:
        _observers = (*_observers, observer)


def remove(observer: Observer) -> None:
    """Tell it nothing more."""
    global _observers
    _observers = tuple(one for one in _observers if one is not observer)


def is_observed() -> bool:
    """Whether anybody listens: for facts that cost something."""
    return bool(_observers)


def happened(moment: str, **facts: Any) -> None:
    """Tell of a moment."""
    for observer in _observers:
        _guarded(observer.happened, moment, facts)


def begin(activity: str, **facts: Any) -> Activity:
    """Tell that an activity begins."""
    spans = []
    for observer in _observers:
        span = _guarded(observer.begun, activity, facts)
        if span is not None:
            spans.append(span)
    return Activity(spans, facts)


def carry() -> Callable[[], None]:
    """Make what is current here current elsewhere: in the empty context of a handler."""
    carried = [_guarded(observer.carry) for observer in _observers]

    def arrive() -> None:
        for one in carried:
            if one is not None:
                _guarded(one)

    return arrive


def trace() -> str | None:
    """The ``traceparent`` of what runs here; None where nobody traces."""
    for observer in _observers:
        found: str | None = _guarded(observer.trace)
        if found is not None:
            return found
    return None


def trace_id() -> str | None:
    """The part of it that logs and traces are joined by."""
    found = trace()
    return None if found is None else found.split("-")[1]


def owner_hash(owner_key: str | None) -> str | None:
    """An owner in logs: equal for equal owners of one site, and of no use elsewhere."""
    return (
        None
        if owner_key is None
        else salted_hmac("mcp_tasks.observing.owner", owner_key, algorithm="sha256").hexdigest()[:12]
    )


def _enter(stack: ExitStack, span: Span) -> None:
    stack.enter_context(span.on_thread())


def _guarded(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception:
        logger.exception("an observer failed", extra={"event": "observer_failed"})
        return None
