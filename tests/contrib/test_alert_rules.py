"""The alert rules on the page: PromQL by its own grammar and types, over metrics and labels that exist."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import CollectorRegistry

from mcp_tasks.contrib.prometheus import counting
from mcp_tasks.contrib.prometheus.counting import Counting
from tests.docs.pages import DOCS, blocks

from .test_pages import gauges

#: Members of a rule, and what a template may do with a value (prometheus.io, "Alerting rules", "Template reference").
MEMBERS = {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
FORMATS = {"humanize", "humanizeDuration", "humanizePercentage", "humanizeTimestamp"}
TEMPLATE = re.compile(r"\$(?:value|labels\.(?P<label>\w+))(?: \| (?P<format>\w+))?")
#: The values of labels that rules choose among.
VALUES = {"outcome": set(counting.OUTCOMES), "reason": set(counting.REASONS), "end": set(counting.ENDS)}


def rules() -> list[dict[str, Any]]:
    """The rules, as a Prometheus server reads them from the file on the page."""
    [text] = [block.text for block in blocks(DOCS / "how-to/alert.md") if block.language == "yaml"]
    read = yaml.safe_load(text)
    assert set(read) == {"groups"}
    assert all(set(group) <= {"name", "rules", "interval"} for group in read["groups"])
    return [rule for group in read["groups"] for rule in group["rules"]]


@lru_cache
def series() -> dict[str, set[str]]:
    """Every name that a server stores, and the labels that it has."""
    found = {name: set(metric.samples[0].labels) for name, metric in gauges().items()}
    for metric in vars(Counting(CollectorRegistry())).values():
        names: Any = getattr(metric, "_labelnames", None)
        if names is None:
            continue
        if metric._type == "histogram":
            for suffix, more in (("_bucket", {"le"}), ("_sum", set()), ("_count", set())):
                found[metric._name + suffix] = {*names, *more}
        else:
            found[metric._name + ("_total" if metric._type == "counter" else "")] = set(names)
    return found


def problems(expression: str) -> Iterator[str]:
    """What is wrong with an expression; its syntax and its types raise ValueError."""
    yield from _problems(promql.parse(expression), frozenset())


def _problems(part: Any, grouped_by: frozenset[str]) -> Iterator[str]:
    match part:
        case promql.AggregateExpr():
            by = part.modifier
            if by is not None and by.type == promql.AggModifierType.Without:
                yield "without names labels that are dropped: say by"
            yield from _problems(part.expr, frozenset(by.labels if by is not None else ()))
        case promql.BinaryExpr():
            yield from _problems(part.lhs, grouped_by)
            yield from _problems(part.rhs, grouped_by)
        case promql.ParenExpr() | promql.UnaryExpr():
            yield from _problems(part.expr, grouped_by)
        case promql.Call():
            for argument in part.args:
                yield from _problems(argument, grouped_by)
        case promql.MatrixSelector():
            yield from _problems(part.vector_selector, grouped_by)
        case promql.VectorSelector():
            yield from _selected(part, grouped_by)
        case promql.NumberLiteral() | promql.StringLiteral():
            pass
        case _:
            yield f"{type(part).__name__} is not looked into"


def _selected(selector: Any, grouped_by: frozenset[str]) -> Iterator[str]:
    if selector.name not in series():
        yield f"there is no {selector.name}"
        return
    labels = series()[selector.name]
    for name in grouped_by - labels:
        yield f"{selector.name} has no label {name} to group by"
    for matcher in selector.matchers.matchers:
        if matcher.name not in labels:
            yield f"{selector.name} has no label {matcher.name}"
        for value in matcher.value.split("|"):
            if value not in VALUES.get(matcher.name, {value}):
                yield f"{matcher.name} is never {value}"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_is_what_a_server_takes_and_looks_at_what_there_is(rule: dict[str, Any]) -> None:
    assert set(rule) <= MEMBERS
    assert re.fullmatch(r"McpTasks\w+", rule["alert"])
    assert list(problems(rule["expr"])) == []
    if "for" in rule:
        assert promql.parse_duration(rule["for"]).total_seconds() >= 60
    grouped = set(re.findall(r"by \((\w+)\)", rule["expr"]))
    for text in rule["annotations"].values():
        for template in re.findall(r"{{ (.*?) }}", text):
            parts = TEMPLATE.fullmatch(template)
            assert parts is not None, template
            assert parts["label"] is None or parts["label"] in grouped
            assert parts["format"] is None or parts["format"] in FORMATS


def test_there_is_a_rule_for_each_thing_that_can_stop() -> None:
    looked_at = {name for rule in rules() for name in re.findall(r"mcp_tasks_\w+", rule["expr"])}
    assert {
        "mcp_tasks_queue_oldest_age_seconds",
        "mcp_tasks_stalled",
        "mcp_tasks_janitor_last_success_timestamp_seconds",
        "mcp_tasks_settled_total",
    } <= looked_at
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("max(mcp_tasks_staled) > 0", "there is no mcp_tasks_staled"),
        ("sum(rate(mcp_tasks_settled[5m]))", "there is no mcp_tasks_settled"),
        ("sum by (owner) (mcp_tasks_live)", "no label owner to group by"),
        ('mcp_tasks_live{tool="x"}', "no label tool"),
        ('mcp_tasks_settled_total{outcome="error"}', "outcome is never error"),
    ],
)
def test_what_is_not_there_is_noticed(expression: str, problem: str) -> None:
    assert problem in "\n".join(problems(expression))


@pytest.mark.parametrize("expression", ["rate(mcp_tasks_live)", "max(mcp_tasks_live) >", 'mcp_tasks_live + "a"', ""])
def test_what_no_server_would_take_is_noticed(expression: str) -> None:
    with pytest.raises(ValueError):
        list(problems(expression))
