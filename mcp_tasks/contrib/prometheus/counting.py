"""Counters and histograms of this process, fed by the moments that the rest tells of."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import UUID

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from mcp_tasks.execution.settling import ENDS
from mcp_tasks.lifecycle import DURATION_BOUNDS_SECONDS, OUTCOMES
from mcp_tasks.observing import Facts, Observer, Span
from mcp_tasks.operators import audit
from mcp_tasks.operators.acting import CODES
from mcp_tasks.operators.policy import VERBS
from mcp_tasks.protocol.errors import MISSING_CLIENT_CAPABILITY
from mcp_tasks.rpc.methods import table
from mcp_tasks.rpc.watching import OTHER
from mcp_tasks.store.types import SweepReport

from . import labels

#: A client that asks sooner than this share of the interval it was told is early.
EARLY_SHARE = 0.9
#: The tasks whose last poll is remembered, to tell early ones.
_POLLS_REMEMBERED = 4096
_SIZES = tuple(4**power for power in range(5, 13))  # 1 KiB to 16 MiB

ACTIONS = ("requeued", "parked", "failed")
REASONS = ("owner", "unknown", "expired", "capability")
KINDS = ("arguments", "context", "ask", "answer", "step", "result", "error", "_meta")
TRANSPORTS = ("http", "sse", "websocket")
RESULTS = ("sent", "stale", "reconciled", "failed")
OPERATOR_ACTIONS = (*VERBS, "bulk_cancel", "download", "download_unmasked")
OPERATOR_RESULTS = (*dict.fromkeys(CODES.values()), audit.PERMISSION_DENIED, audit.WRONG_REQUEST, audit.FAILED)
#: What a pass of the janitor counts, by the step that did it.
STEPS = {
    "recover": "recovered",
    "fail": "failed",
    "redeliver": "redelivered",
    "deadlines": "timed_out",
    "expire": "expired",
    "purge": "purged",
}


class Counting(Observer):
    """All metrics of this process on one registry; a registry takes them once."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, *names: str) -> Counter:
            return Counter(f"mcp_tasks_{name}", text, names, registry=registry)

        def histogram(name: str, text: str, *names: str, buckets: Any = DURATION_BOUNDS_SECONDS) -> Histogram:
            return Histogram(f"mcp_tasks_{name}", text, names, registry=registry, buckets=buckets)

        self._created = counter("created", "Tasks that were created", "tool", "transport")
        self._settled = counter("settled", "Tasks that ended", "tool", "outcome")
        self._queue = histogram("queue_seconds", "Time that ended tasks had spent in the queue", "tool")
        self._run = histogram("run_seconds", "Time that ended tasks had run", "tool")
        self._wait = histogram("input_wait_seconds", "Time that ended tasks had waited for answers", "tool")
        self._legs = counter("legs", "Runs of handlers", "tool", "end")
        self._lapsed = counter("leases_lapsed", "Leases that the janitor found lapsed", "tool", "action")
        self._late = counter("late_results", "Outcomes that came too late and were dropped", "tool")
        self._cancels = counter("cancels", "Cancellations, and what they did", "actor", "effect")
        self._release = histogram("cancel_release_seconds", "From a cancellation to the worker letting go")
        self._rpc = histogram("rpc_seconds", "Time to answer a request", "method", "code")
        self._polls = counter("polls", "Looks of clients at tasks", "pace")
        self._refused = counter("access_refused", "Requests for what the caller may not see or do", "reason")
        self._notifications = counter("notifications", "Notifications to streams", "result")
        self._listeners = Gauge(
            "mcp_tasks_listeners",
            "Streams that listen",
            ("transport",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._payload = histogram("payload_bytes", "Size of what is stored", "kind", buckets=_SIZES)
        self._payload_refused = counter("payload_refused", "What was too large to be stored", "kind")
        self._operator = counter("operator_actions", "Acts of operators", "action", "result")
        self._janitor_rows = counter("janitor_rows", "Rows that the janitor of this process changed", "step")
        self._janitor = histogram("janitor_seconds", "Time of one pass of the janitor")
        self._tools = labels.Tools()
        self._polled: OrderedDict[UUID, float] = OrderedDict()
        self._lock = threading.Lock()
        self._counted: dict[str, Callable[[Facts], None]] = {
            "created": self._count_created,
            "settled": self._count_settled,
            "lapsed": lambda facts: self._of_tool(self._lapsed, facts, labels.one_of(facts["action"], ACTIONS)).inc(),
            "late_result": lambda facts: self._of_tool(self._late, facts).inc(),
            "cancel": self._count_cancel,
            "let_go": lambda facts: self._release.observe(facts["seconds"]),
            "poll": self._count_poll,
            "refused": lambda facts: self._refused.labels(labels.one_of(facts["reason"], REASONS)).inc(),
            "payload": lambda facts: self._payload.labels(labels.one_of(facts["kind"], KINDS)).observe(facts["size"]),
            "payload_refused": lambda facts: self._payload_refused.labels(labels.one_of(facts["kind"], KINDS)).inc(),
            "notification": self._count_notification,
            "listening": lambda facts: self._listening(facts).inc(facts["change"]),
            "operator": self._count_operator,
        }
        self._ended: dict[str, Callable[[Facts], None]] = {
            "rpc": self._count_rpc,
            "leg": lambda facts: self._of_tool(self._legs, facts, labels.one_of(facts["end"], ENDS)).inc(),
            "sweep": self._count_sweep,
        }

    def happened(self, moment: str, facts: Facts) -> None:
        count = self._counted.get(moment)
        if count is not None:
            count(facts)

    def begun(self, activity: str, facts: Facts) -> Span | None:
        count = self._ended.get(activity)
        return None if count is None else _Timed(count)

    def _of_tool(self, metric: Any, facts: Facts, *more: str) -> Any:
        return metric.labels(self._tools.label(facts["tool"]), *more)

    def _count_created(self, facts: Facts) -> None:
        self._of_tool(self._created, facts, labels.one_of(facts["transport"], TRANSPORTS)).inc()

    def _count_settled(self, facts: Facts) -> None:
        self._of_tool(self._settled, facts, labels.one_of(facts["outcome"], OUTCOMES)).inc()
        self._of_tool(self._queue, facts).observe(facts["queue_ms"] / 1000)
        self._of_tool(self._run, facts).observe(facts["run_ms"] / 1000)
        if facts["wait_ms"]:
            self._of_tool(self._wait, facts).observe(facts["wait_ms"] / 1000)

    def _count_cancel(self, facts: Facts) -> None:
        effect = labels.one_of(facts["effect"], ("settled", "none"))
        self._cancels.labels(labels.actor(facts["actor"]), effect).inc()

    def _count_poll(self, facts: Facts) -> None:
        pace = "throttled" if facts.get("is_throttled") else self._pace(facts["ref"], facts["interval_ms"] / 1000)
        self._polls.labels(pace).inc()

    def _pace(self, ref: UUID, interval_seconds: float) -> str:
        """As far as this process knows: polls that others answered are not seen here."""
        now = time.monotonic()
        with self._lock:
            last = self._polled.pop(ref, None)
            self._polled[ref] = now
            if len(self._polled) > _POLLS_REMEMBERED:
                self._polled.popitem(last=False)
        return "early" if last is not None and now - last < EARLY_SHARE * interval_seconds else "normal"

    def _count_notification(self, facts: Facts) -> None:
        if facts["number"]:
            self._notifications.labels(labels.one_of(facts["result"], RESULTS)).inc(facts["number"])

    def _listening(self, facts: Facts) -> Gauge:
        return self._listeners.labels(labels.one_of(facts["transport"], TRANSPORTS))

    def _count_operator(self, facts: Facts) -> None:
        action = labels.one_of(facts["action"], OPERATOR_ACTIONS)
        self._operator.labels(action, labels.one_of(facts["result"], OPERATOR_RESULTS)).inc()

    def _count_rpc(self, facts: Facts) -> None:
        method = labels.one_of(facts["method"], (*table.methods, "initialize", "ping", OTHER))
        self._rpc.labels(method, labels.code(facts["code"])).observe(facts["seconds"])
        if facts["code"] == MISSING_CLIENT_CAPABILITY:
            self._refused.labels("capability").inc()

    def _count_sweep(self, facts: Facts) -> None:
        report: SweepReport = facts["report"]
        self._janitor.observe(facts["seconds"])
        for step, name in STEPS.items():
            number = getattr(report, name)
            if number:
                self._janitor_rows.labels(step).inc(number)


class _Timed(Span):
    """Counts an activity when it is over."""

    def __init__(self, count: Callable[[Facts], None]) -> None:
        self._count = count

    def ended(self, facts: Facts) -> None:
        self._count(facts)


@lru_cache(maxsize=1)
def get_counting() -> Counting:
    """The one of this process, on the registry that everything in it shares."""
    return Counting()
