"""The pages on metrics, logs and alerts name exactly what there is."""

import argparse
import re

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from mcp_tasks.contrib.opentelemetry import names
from mcp_tasks.contrib.prometheus import counting
from mcp_tasks.contrib.prometheus.collector import _gauges
from mcp_tasks.contrib.prometheus.counting import Counting
from mcp_tasks.execution.settling import ENDS
from mcp_tasks.management.commands import cancel_tasks, task_stats
from mcp_tasks.models import Process
from mcp_tasks.operators.vitals import Vitals
from mcp_tasks.operators.why import Facts
from tests.contrib.test_logs import FIELDS, LOGGERS
from tests.docs.pages import DOCS, ROOT, code, table

METRICS, LOGS, ALERT = (DOCS / name for name in ("reference/metrics.md", "reference/logs.md", "how-to/alert.md"))


def counted() -> dict[str, Metric]:
    """Every metric that a process counts, by the name that a server reads."""
    registry = CollectorRegistry()
    Counting(registry)
    return {f"{m.name}_total" if m.type == "counter" else m.name: m for m in registry.collect()}


def gauges() -> dict[str, Metric]:
    """Every gauge of the database."""
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    janitor = Process(name="janitor", kind="janitor", seen_at=now)
    found = Vitals(now=now, facts=Facts(now=now, processes=[janitor]))
    return {metric.name: metric for metric in _gauges(found)}


def words(cell: str) -> set[str]:
    return set(re.findall(r"`([\w-]+)`", cell))


def test_the_page_names_every_metric_with_its_type_and_labels() -> None:
    rows = {code(row[0]): row for row in table(METRICS, "### Counted in each process")}
    registry = CollectorRegistry()
    made = vars(Counting(registry)).values()
    labels = {metric._name: set(metric._labelnames) for metric in made if hasattr(metric, "_labelnames")}
    assert {name: row[1] for name, row in rows.items()} == {name: metric.type for name, metric in counted().items()}
    assert {name.removesuffix("_total"): words(row[2]) for name, row in rows.items()} == labels


def test_the_page_names_every_value_of_a_label() -> None:
    rows = {code(row[0]): words(row[3]) for row in table(METRICS, "### Counted in each process")}
    assert set(ENDS) <= rows["mcp_tasks_legs_total"]
    assert set(counting.ACTIONS) == rows["mcp_tasks_leases_lapsed_total"]
    assert set(counting.REASONS) == rows["mcp_tasks_access_refused_total"]
    assert set(counting.RESULTS) == rows["mcp_tasks_notifications_total"]
    assert set(counting.KINDS) == rows["mcp_tasks_payload_bytes"]
    assert set(counting.STEPS) == rows["mcp_tasks_janitor_rows_total"]
    assert set(counting.OUTCOMES) == rows["mcp_tasks_settled_total"]


def test_the_page_names_every_gauge_of_the_database() -> None:
    rows = {code(row[0]): row for row in table(METRICS, "### Read from the database")}
    assert set(rows) == set(gauges())
    for name, metric in gauges().items():
        assert words(rows[name][1]) == set(metric.samples[0].labels), name


def test_the_page_names_every_attribute_of_a_span() -> None:
    text = METRICS.read_text()
    for name, value in vars(names).items():
        if name.isupper() and isinstance(value, str) and name != "TRACER":
            assert f"`{value}" in text, name


def test_the_options_on_the_page_are_those_of_the_commands() -> None:
    def options(command: type) -> set[str]:
        parser = command().create_parser("manage.py", "x")
        return {o for action in parser._actions for o in action.option_strings if action.help is not argparse.SUPPRESS}

    known = options(task_stats.Command) | options(cancel_tasks.Command)
    assert set(re.findall(r"--[a-z][a-z-]+", ALERT.read_text())) <= known
    limits = {code(row[0]).split()[0] for row in table(ALERT, "| option | is broken when |")}
    assert limits == {option for option in options(task_stats.Command) if option.startswith(("--max", "--min"))}


def test_the_page_on_logs_names_the_loggers_and_fields() -> None:
    assert {code(row[0]) for row in table(LOGS, "# Logs")} == LOGGERS | {"mcp_tasks.notifications"}
    documented = set().union(*(words(row[0]) for row in table(LOGS, "## Fields")))
    assert documented == FIELDS


def test_the_page_on_logs_names_only_events_that_are_logged() -> None:
    sources = "\n".join(file.read_text() for file in (ROOT / "mcp_tasks").rglob("*.py"))
    for row in table(LOGS, "## Lines that are worth a search"):
        for event in words(row[0]):
            assert f'"event": "{event}"' in sources or event.startswith("operator_"), event


def test_every_logger_of_the_code_is_on_the_page() -> None:
    sources = "\n".join(file.read_text() for file in (ROOT / "mcp_tasks").rglob("*.py"))
    used = set(re.findall(r'getLogger\("([^"]+)"\)', sources))
    assert used == {code(row[0]) for row in table(LOGS, "# Logs")}
