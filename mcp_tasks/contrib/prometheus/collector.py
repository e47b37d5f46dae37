"""Gauges of what is in the database, the same whichever process is asked: combine them with ``max()``."""

import logging
import threading
import time
from collections.abc import Iterable, Iterator

from django.db import DatabaseError, InterfaceError
from prometheus_client import REGISTRY, CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mcp_tasks.connections import look_after_connections
from mcp_tasks.operators.vitals import Vitals, vitals

logger = logging.getLogger("mcp_tasks.rpc")

#: A process looks at the database at most so often, however often it is asked.
CACHE_SECONDS = 15.0


class DatabaseGauges(Collector):
    """What waits, what is late, and who is alive. Where the database does not answer there are no such gauges."""

    def __init__(self, cache_seconds: float = CACHE_SECONDS) -> None:
        self._cache_seconds = cache_seconds
        self._lock = threading.Lock()
        self._made: list[Metric] = []
        self._made_at = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry that takes it up must not ask the database."""
        return []

    def collect(self) -> Iterable[Metric]:
        with self._lock:  # who asks meanwhile waits for the same answer
            now = time.monotonic()
            if now >= self._made_at + self._cache_seconds:
                self._made, self._made_at = self._look(), now
            return self._made

    def _look(self) -> list[Metric]:
        try:
            look_after_connections()
            return list(_gauges(vitals()))
        except (DatabaseError, InterfaceError):
            logger.warning("the state of the tasks cannot be read", exc_info=True, extra={"event": "not_ready"})
            return []
        finally:
            look_after_connections()


def _gauges(found: Vitals) -> Iterator[Metric]:
    live = found.live
    phases = {
        "queued": live.queued,
        "running": live.running,
        "needs_input": live.needs_input,
        "stalled": live.stalled,
    }
    yield _gauge("live", "Unfinished tasks", phases, "phase")
    yield _gauge("stalled", "Tasks whose lease lapsed", live.stalled)
    yield _gauge("overdue", "Tasks past their time to live that still hold payloads", found.overdue)
    yield _gauge("queue_oldest_age_seconds", "How long the oldest queued task waits", found.oldest_queued_seconds or 0)
    yield _gauge("input_oldest_age_seconds", "How long the oldest question is open", found.oldest_input_seconds or 0)
    yield _gauge("workers", "Processes that run tasks and were seen within a minute", found.workers)
    slots = {"busy": found.busy, "free": max(0, found.slots - found.busy)}
    yield _gauge("worker_slots", "Places for running tasks", slots, "state")
    janitor_seen_at = found.facts.janitor_seen_at
    if janitor_seen_at is not None:
        text = "When the janitor last ran, in this or another process"
        yield _gauge("janitor_last_success_timestamp_seconds", text, janitor_seen_at.timestamp())


def _gauge(name: str, text: str, value: float | dict[str, int], label: str | None = None) -> Metric:
    family = GaugeMetricFamily(f"mcp_tasks_{name}", text, labels=None if label is None else [label])
    if isinstance(value, dict):
        for word, number in value.items():
            family.add_metric([word], number)
    else:
        family.add_metric([], value)
    return family


database_gauges = DatabaseGauges()


class Everything(Collector):
    """What another registry holds, and the gauges of the database."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        names = set()
        for metric in self._registry.collect():
            names.add(metric.name)
            yield metric
        for metric in database_gauges.collect():
            if metric.name not in names:  # a project may have registered them itself
                yield metric


def serve_database_gauges(registry: CollectorRegistry = REGISTRY) -> None:
    """Add the gauges to a registry, for a process that serves it by ``prometheus_client.start_http_server``."""
    registry.register(database_gauges)
