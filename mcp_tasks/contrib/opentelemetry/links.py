"""What a task remembers of traces: the call that made it, and the answer that queued its next leg."""

import logging
from collections.abc import Iterator
from uuid import UUID

from opentelemetry import trace
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.protocol.codec import JsonError, loads
from mcp_tasks.store.locking import database

from . import names

logger = logging.getLogger("mcp_tasks.runner")

propagator = TraceContextTextMapPropagator()

#: Entries of the timeline that can have queued a leg.
_ANSWERS = ("answered", "dismissed", "ask_timeout")


def to_call(ref: UUID) -> list[Link]:
    """The call that made the task, for a look at it."""
    return list(_links(call=_created_in(ref)))


def of_leg(ref: UUID, leg: int) -> list[Link]:
    """The call that made the task; of a later leg the answer that queued it too. One statement, or two."""
    return list(_links(call=_created_in(ref), answer=_answered_in(ref) if leg > 1 else None))


def _created_in(ref: UUID) -> str | None:
    found = Task.objects.using(database()).filter(pk=ref).values_list("trace_context", flat=True)
    return found.first()


def _answered_in(ref: UUID) -> str | None:
    answers = TaskEvent.objects.using(database()).filter(task_id=ref, kind__in=_ANSWERS).order_by("-id")
    detail = answers.values_list("detail", flat=True).first()
    try:
        told = loads(detail) if detail else None
    except JsonError:
        return None
    found = told.get("trace") if isinstance(told, dict) else None
    return found if isinstance(found, str) else None


def _links(**named: str | None) -> Iterator[Link]:
    for name, traceparent in named.items():
        if traceparent is None:
            continue
        # Of the call it may be what a client sent: what does not parse links to nothing.
        context = propagator.extract({"traceparent": traceparent})
        found = trace.get_current_span(context).get_span_context()
        if found.is_valid:
            yield Link(found, {names.LINK: name})
