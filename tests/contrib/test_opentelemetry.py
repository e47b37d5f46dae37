"""Spans: which there are, whose children they are, what they link to, and what they never hold."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import context as current
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_tasks import McpError, TaskContext, ToolError, observing
from mcp_tasks.contrib.opentelemetry import apps
from mcp_tasks.contrib.opentelemetry.tracing import Tracing, get_tracing
from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.sweep import sweep
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient

store = DatabaseTaskStore()
YES = {"approval": {"action": "accept", "content": {"approve": True}}}
TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"

Spans = Callable[..., list[ReadableSpan]]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    """An SDK of a project, which keeps everything."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture(autouse=True)
def _traced(provider: TracerProvider, reader: InMemoryMetricReader, observe: Callable[..., None]) -> None:
    observe(Tracing(provider, MeterProvider([reader])))


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    """The spans that have ended, of this name."""

    def named(name: str) -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.name == name]

    return named


def approve(client: McpClient, **meta: Any) -> str:
    task_id: str = client.request("tools/call", {"name": "approve", "arguments": {"service": "web"}}, **meta)["taskId"]
    return task_id


def ids(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def linked(span: ReadableSpan) -> dict[Any, tuple[str, str]]:
    return {
        (link.attributes or {}).get("mcp_tasks.link"): (
            f"{link.context.trace_id:032x}",
            f"{link.context.span_id:016x}",
        )
        for link in span.links
    }


def test_a_request_continues_the_trace_of_its_client(mcp: McpClient, spans: Spans) -> None:
    approve(mcp, traceparent=TRACEPARENT)
    [call] = spans("tools/call approve")
    assert call.kind is trace.SpanKind.SERVER
    assert call.parent is not None
    assert (ids(call)[0], f"{call.parent.span_id:016x}") == (TRACE_ID, SPAN_ID)
    assert dict(call.attributes or {}) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "approve",
        "mcp.protocol.version": "2026-07-28",
        "jsonrpc.request.id": "1",
        "mcp_tasks.ref": str(Task.objects.get().pk),
    }


def test_without_one_it_belongs_to_what_is_current(mcp: McpClient, spans: Spans, provider: TracerProvider) -> None:
    with provider.get_tracer("http").start_as_current_span("POST /mcp") as http:
        approve(mcp)
    [call] = spans("tools/call approve")
    assert call.parent is not None
    assert call.parent.span_id == http.get_span_context().span_id
    assert call.links == ()


@pytest.mark.parametrize("emits", [False, True])
def test_on_every_way_in_a_handler_is_below_its_request_and_that_below_http(
    alice: McpClient, spans: Spans, provider: TracerProvider, mcp_tools: Any, emits: bool
) -> None:
    tracer = provider.get_tracer("project")

    @mcp_tools(task="never")
    def work(ctx: TaskContext) -> str:
        with tracer.start_as_current_span("work"):
            ctx.progress("half")
        return "x"

    with tracer.start_as_current_span("POST /mcp"):
        alice.request("tools/call", {"name": "work"}, **({"progressToken": "t"} if emits else {}))
    assert len(alice.notifications) == emits
    [http], [call], [inner] = spans("POST /mcp"), spans("tools/call work"), spans("work")
    assert http.context is not None
    assert call.context is not None
    assert (call.parent, inner.parent) == (http.context, call.context)
    with provider.get_tracer("http").start_as_current_span("another"):
        alice.request("tools/list")
    assert spans("tools/list")[0].parent == spans("another")[0].context
    assert not current.get_current()


def test_with_both_it_links_to_the_http_request(mcp: McpClient, spans: Spans, provider: TracerProvider) -> None:
    with provider.get_tracer("http").start_as_current_span("POST /mcp"):
        approve(mcp, traceparent=TRACEPARENT)
    [call], [http] = spans("tools/call approve"), spans("POST /mcp")
    assert ids(call)[0] == TRACE_ID
    assert linked(call) == {"transport": ids(http)}


@pytest.mark.parametrize("wrong", ["", "x" * 600, "00-0-0-00", "ff-" + TRACE_ID, 5, None, ["a"], {"a": 1}])
def test_a_malformed_traceparent_is_as_none(mcp: McpClient, spans: Spans, wrong: Any) -> None:
    approve(mcp, traceparent=wrong)
    [call] = spans("tools/call approve")
    assert call.parent is None
    assert call.links == ()


def test_each_leg_is_a_trace_of_its_own_linked_to_what_led_to_it(mcp: McpClient, spans: Spans) -> None:
    task_id = approve(mcp, traceparent=TRACEPARENT)
    run_until_idle()
    mcp.update_task(task_id, YES)
    run_until_idle()
    [call], [update] = spans("tools/call approve"), spans("tasks/update")
    first, second = spans("mcp_tasks.leg approve")
    assert {first.kind, second.kind} == {trace.SpanKind.CONSUMER}
    assert (first.parent, second.parent) == (None, None)
    assert len({ids(span)[0] for span in (call, update, first, second)}) == 4
    assert linked(first) == {"call": ids(call)}
    assert linked(second) == {"call": ids(call), "answer": ids(update)}
    for number, leg in enumerate((first, second), start=1):
        attributes = dict(leg.attributes or {})
        assert (attributes["mcp_tasks.leg"], attributes["mcp_tasks.try"]) == (number, 1)
        assert attributes["mcp_tasks.ref"] == str(Task.objects.get().pk)
    assert [dict(leg.attributes or {})["mcp_tasks.end"] for leg in (first, second)] == ["parked", "settled"]


def test_the_timeline_keeps_the_trace_of_an_answer_and_its_count(mcp: McpClient, spans: Spans) -> None:
    task_id = approve(mcp)
    run_until_idle()
    mcp.update_task(task_id, YES)
    [update] = spans("tasks/update")
    detail = TaskEvent.objects.get(kind="answered").detail
    assert detail is not None
    assert re.fullmatch(rf'{{"keys":1,"trace":"00-{ids(update)[0]}-{ids(update)[1]}-0[13]"}}', detail)


def test_looks_at_a_task_link_to_the_call_that_made_it(mcp: McpClient, spans: Spans) -> None:
    task_id = approve(mcp)
    mcp.get_task(task_id)
    mcp.cancel_task(task_id)
    [call] = spans("tools/call approve")
    for name in ("tasks/get", "tasks/cancel"):
        [look] = spans(name)
        assert linked(look) == {"call": ids(call)}
        assert ids(look)[0] != ids(call)[0]
        assert dict(look.attributes or {})["mcp_tasks.ref"] == str(Task.objects.get().pk)


def test_a_leg_links_to_the_client_where_the_call_was_not_traced(transactional_db: None, spans: Spans) -> None:
    store.create_task("echo", {"text": "x"}, trace_context=TRACEPARENT)
    run_until_idle()
    [leg] = spans("mcp_tasks.leg echo")
    assert linked(leg) == {"call": (TRACE_ID, SPAN_ID)}


def test_what_a_handler_traces_is_below_its_leg(
    mcp: McpClient, spans: Spans, provider: TracerProvider, mcp_tools: Any
) -> None:
    tracer = provider.get_tracer("project")

    @mcp_tools
    def sync_work() -> str:
        with tracer.start_as_current_span("sync work"):
            return "x"

    @mcp_tools
    async def async_work() -> str:
        with tracer.start_as_current_span("async work"):
            return "x"

    for name in ("sync", "async"):
        mcp.call_tool(f"{name}_work")
        run_until_idle()
        [leg], [work] = spans(f"mcp_tasks.leg {name}_work"), spans(f"{name} work")
        assert work.parent is not None
        assert work.parent.span_id == leg.context.span_id  # type: ignore[union-attr]
    assert not current.get_current()


def test_what_an_inline_handler_traces_is_below_its_request(
    mcp: McpClient, spans: Spans, provider: TracerProvider, mcp_tools: Any
) -> None:
    @mcp_tools(task="never")
    def work() -> str:
        with provider.get_tracer("project").start_as_current_span("work"):
            return "x"

    mcp.call_tool("work")
    [call], [inner] = spans("tools/call work"), spans("work")
    assert inner.parent is not None
    assert inner.parent.span_id == call.context.span_id  # type: ignore[union-attr]


def test_an_error_is_named_by_its_code(mcp: McpClient, spans: Spans) -> None:
    with pytest.raises(McpError):
        mcp.get_task("x")
    [look] = spans("tasks/get")
    assert look.status.status_code is trace.StatusCode.ERROR
    assert dict(look.attributes or {})["error.type"] == "-32602"
    assert look.status.description is None


def test_one_span_for_each_pass_of_the_janitor(transactional_db: None, spans: Spans) -> None:
    rewind(store.create_task("echo", {}, ttl_ms=60_000).ref, 61)
    sweep(store)
    [run] = spans("mcp_tasks.janitor")
    assert run.kind is trace.SpanKind.INTERNAL
    assert dict(run.attributes or {}) == {"mcp_tasks.changed": 1}


def test_the_duration_of_requests_is_a_metric(mcp: McpClient, reader: InMemoryMetricReader) -> None:
    approve(mcp)
    with pytest.raises(McpError):
        mcp.request("made/up")
    data = reader.get_metrics_data()
    assert data is not None
    [metric] = data.resource_metrics[0].scope_metrics[0].metrics
    assert (metric.name, metric.unit) == ("mcp.server.operation.duration", "s")
    points = [dict(point.attributes or {}) for point in metric.data.data_points]
    assert {"mcp.method.name": "tools/call", "gen_ai.tool.name": "approve"} in points
    assert {"mcp.method.name": "other", "error.type": "-32601", "rpc.response.status_code": "-32601"} in points


def test_no_span_holds_an_id_a_payload_or_a_reason(
    mcp: McpClient, exporter: InMemorySpanExporter, mcp_tools: Any
) -> None:
    secret = "SECRET-OF-A-CLIENT"

    @mcp_tools
    def tells(text: str, ctx: TaskContext) -> str:
        ctx.progress(secret)
        ctx.elicit("k", secret, {"type": "object", "properties": {}})
        raise ToolError(secret)

    task_id = mcp.call_tool("tells", {"text": secret})["taskId"]
    run_until_idle()
    mcp.get_task(task_id)
    mcp.update_task(task_id, {"k": {"action": "accept", "content": {secret: secret}}})
    run_until_idle()
    mcp.get_task(task_id)
    for method, params in ((secret, {}), ("tools/call", {"name": secret}), ("tasks/get", {"taskId": secret})):
        mcp.post({**mcp.envelope(method, params, tracestate=f"a={secret}"), "id": task_id})
    store.cancel(Task.objects.get().pk, actor="operator:1", reason=secret)
    told = "\n".join(span.to_json() for span in exporter.get_finished_spans())
    assert secret not in told
    assert task_id not in told


@pytest.fixture
def installed(settings: Any) -> Iterator[None]:
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "mcp_tasks.contrib.opentelemetry"]
    yield
    observing.remove(get_tracing())


def test_without_an_sdk_the_app_costs_nothing_and_changes_nothing(mcp: McpClient, installed: None) -> None:
    observing._observers = (get_tracing(),)
    approve(mcp, traceparent=TRACEPARENT)
    run_until_idle()
    assert Task.objects.get().status == "input_required"


def test_without_the_package_the_app_does_nothing(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "find_spec", lambda name: None)
    before = observing._observers
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "mcp_tasks.contrib.opentelemetry"]
    assert observing._observers == before
