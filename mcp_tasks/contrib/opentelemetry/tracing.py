"""
Spans: one for each request, leg and pass of the janitor, and the duration of requests as a metric.

A request continues the trace of its client. A leg is a trace of its own, linked to the requests that led to it: it may
begin hours later, in another process, and several times.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

from opentelemetry import context as current
from opentelemetry import metrics
from opentelemetry import trace as spans
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from mcp_tasks.observing import Facts, Observer, Span
from mcp_tasks.protocol.tasks import is_task_id

from . import links, names

#: Methods that are looks at a task: they link to the call that made it.
_LOOKS = ("tasks/get", "tasks/update", "tasks/cancel")
_LONGEST_ID = 64


class _Span(Span):
    """A span of the project's SDK, current wherever its activity runs."""

    def __init__(self, span: spans.Span, finish: Callable[[spans.Span, Facts], None]) -> None:
        self.span = span
        self._finish = finish

    def on_thread(self) -> AbstractContextManager[object]:
        return self._current()

    @contextmanager
    def _current(self) -> Iterator[None]:
        token = current.attach(spans.set_span_in_context(self.span))
        try:
            yield
        finally:
            current.detach(token)

    def ended(self, facts: Facts) -> None:
        try:
            self._finish(self.span, facts)
        finally:
            self.span.end()


class Tracing(Observer):
    """Everything goes to the providers given, or to those that the project's SDK has set."""

    def __init__(
        self,
        tracer_provider: spans.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = spans.get_tracer(names.TRACER, tracer_provider=tracer_provider)
        meter = metrics.get_meter(names.TRACER, meter_provider=meter_provider)
        self._duration = meter.create_histogram(
            names.DURATION,
            unit="s",
            description="Duration of MCP requests",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDS,
        )

    def begun(self, activity: str, facts: Facts) -> Span | None:
        match activity:
            case "rpc":
                return self._request(facts)
            case "leg":
                return self._leg(facts)
            case "sweep":
                span = self._tracer.start_span(names.JANITOR_SPAN, context=Context(), kind=SpanKind.INTERNAL)
                return _Span(span, _finish_sweep)
        return None

    def carry(self) -> Callable[[], object] | None:
        here = current.get_current()
        return (lambda: current.attach(here)) if here else None

    def trace(self) -> str | None:
        carrier: dict[str, str] = {}
        links.propagator.inject(carrier)
        return carrier.get("traceparent")

    def _request(self, facts: Facts) -> Span:
        tool, ref = facts["tool"], facts["ref"]
        attributes: dict[str, Any] = {names.METHOD: facts["method"]}
        if tool is not None:
            attributes[names.TOOL] = tool
        if isinstance(facts["version"], str):
            attributes[names.VERSION] = facts["version"][:_LONGEST_ID]
        request_id = str(facts["id"])
        if len(request_id) <= _LONGEST_ID and not is_task_id(request_id):
            attributes[names.REQUEST_ID] = request_id
        parent, linked = self._parent(facts["carrier"])
        span = self._tracer.start_span(
            facts["method"] if tool is None else f"{facts['method']} {tool}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=linked,
        )
        if span.is_recording() and ref is not None:
            span.set_attribute(names.REF, str(ref))
            if facts["method"] in _LOOKS:
                for link in links.to_call(ref):
                    span.add_link(link.context, link.attributes)
        return _Span(span, self._finish_request)

    def _parent(self, carrier: dict[str, str]) -> tuple[Context, list[Link]]:
        """The client's span where it named one, with a link to the HTTP request; else what is current here."""
        here = current.get_current()
        named = links.propagator.extract(carrier, context=Context())
        if not spans.get_current_span(named).get_span_context().is_valid:
            return here, []
        request = spans.get_current_span(here).get_span_context()
        return named, [Link(request, {names.LINK: "transport"})] if request.is_valid else []

    def _finish_request(self, span: spans.Span, facts: Facts) -> None:
        attributes: dict[str, Any] = {names.METHOD: facts["method"]}
        if facts["tool"] is not None:
            attributes[names.TOOL] = facts["tool"]
        if facts["code"] is not None:
            code = str(facts["code"])
            attributes |= {names.ERROR: code, names.CODE: code}
            span.set_status(Status(StatusCode.ERROR))
            span.set_attributes({names.ERROR: code, names.CODE: code})
        if facts["ref"] is not None:
            span.set_attribute(names.REF, str(facts["ref"]))
        self._duration.record(facts["seconds"], attributes)

    def _leg(self, facts: Facts) -> Span:
        tool, leg = facts["tool"], facts["leg"]
        attributes = {names.TOOL: tool, names.REF: str(facts["ref"]), names.LEG: leg, names.TRY: facts["tries"]}
        span = self._tracer.start_span(
            f"{names.LEG_SPAN} {tool}", context=Context(), kind=SpanKind.CONSUMER, attributes=attributes
        )
        if span.is_recording():
            for link in links.of_leg(facts["ref"], leg):
                span.add_link(link.context, link.attributes)
        return _Span(span, _finish_leg)


def _finish_leg(span: spans.Span, facts: Facts) -> None:
    span.set_attribute(names.END, facts["end"])
    if facts["end"] in ("lease_lost", "refused"):
        span.set_attribute(names.ERROR, facts["end"])
        span.set_status(Status(StatusCode.ERROR))


def _finish_sweep(span: spans.Span, facts: Facts) -> None:
    report = facts["report"]
    span.set_attribute("mcp_tasks.changed", report.changed)
    if report.errors:
        span.set_attribute("mcp_tasks.failed_steps", sorted(set(report.errors)))
        span.set_status(Status(StatusCode.ERROR))


@lru_cache(maxsize=1)
def get_tracing() -> Tracing:
    """The one of this process."""
    return Tracing()
