"""The sentence on why a task is where it is: each situation has one, and the first that applies is told."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from mcp_tasks.models import Process, Task
from mcp_tasks.operators.why import AHEAD_LIMIT, Facts, span, why

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_task(**values: Any) -> Task:
    usual = {
        "ref": uuid4(),
        "tool": "report",
        "phase": "queued",
        "status": "working",
        "phase_at": ago(30),
        "due_at": ago(-30),
        "expires_at": ago(-3600),
        "attempts": 0,
        "max_attempts": 3,
    }
    return Task(**{**usual, **values})


def a_process(kind: str = "web", seen: float = 5, **values: Any) -> Process:
    usual = {"name": f"{kind}:1", "kind": kind, "seen_at": ago(seen), "slots": 4, "busy": 0, "tools_hash": "same"}
    return Process(**{**usual, **values})


def facts(*processes: Process, **values: Any) -> Facts:
    return Facts(now=NOW, processes=processes, **{"tools_hash": "same", **values})


JANITOR = a_process("janitor", seen=8)
LEASED = {"phase": "running", "lease_holder": "web-3:654", "attempts": 1}
LAPSED = {**LEASED, "due_at": ago(120)}


@pytest.mark.parametrize(
    ("task", "known", "parts"),
    [
        (a_task(), facts(), ["No process that runs tasks has ever been seen"]),
        (a_task(), facts(a_process(seen=300)), ["has been seen for 5 min"]),
        (a_task(), facts(engine="Celery"), ["waits for a worker of Celery"]),
        (a_task(), facts(a_process(busy=1, slots=1), engine="Celery", ahead=2), ["1 process is busy"]),
        (a_task(), facts(a_process(tools_hash="other")), ["know other tools"]),
        (a_task(), facts(a_process(info='{"only": ["send", "book"]}')), ["told to take those of other tools"]),
        (
            a_task(),
            facts(a_process(busy=4, info='{"only": ["report"]}'), a_process("worker", info='{"only": []}'), ahead=3),
            ["1 process is busy", "About 3 tasks"],
        ),
        (a_task(), facts(a_process(info='{"only": ["report"]}'), JANITOR), ["free slots"]),
        (a_task(), facts(a_process(busy=4), ahead=7), ["1 process is busy", "About 7 tasks are to run"]),
        (
            a_task(),
            facts(a_process(busy=4), a_process("worker", busy=4), ahead=1),
            ["2 processes are", "About 1 task is"],
        ),
        (a_task(), facts(a_process(busy=4), ahead=AHEAD_LIMIT), [f"About {AHEAD_LIMIT}+ tasks"]),
        (a_task(), facts(a_process(), JANITOR), ["free slots", "ran 8 s ago", "sends it again"]),
        (a_task(), facts(a_process(), reached_limit=3), ["As many tasks of this tool run as may at once: 3"]),
        (a_task(), facts(a_process(), reached_owner_limit=2), ["its owner's tasks of this tool run as may at once: 2"]),
        (a_task(), facts(a_process(busy=4), reached_limit=3), ["1 process is busy"]),
        (a_task(not_before=ago(-20)), facts(), ["next one begins in 20 s"]),
        (a_task(**LEASED), facts(), ["web-3:654 has run it for 30 s"]),
        (a_task(**LEASED), facts(slow_after_seconds=10), ["95 %", "within 10 s"]),
        (a_task(**LAPSED), facts(JANITOR), ["web-3:654", "lapse 2 min ago", "try 1 of 3", "queues it again"]),
        (a_task(**{**LAPSED, "attempts": 3}), facts(JANITOR), ["try 3 of 3", "fails it"]),
        (a_task(**{**LAPSED, "status": "input_required"}), facts(JANITOR), ["waits for its answers"[:4], "answers"]),
        (a_task(**LAPSED), facts(a_process("janitor", seen=600)), ["has not run for 10 min", "nothing is recovered"]),
        (a_task(**LAPSED), facts(), ["The janitor has never run"]),
        (
            a_task(phase="parked", status="input_required"),
            facts(question_keys=["approval", "region"]),
            ["waited for its client for 30 s: approval, region.", "It expires in 1 h."],
        ),
        (a_task(phase="running", due_at=None), facts(), ["A job of the project", "expires in 1 h"]),
        (
            a_task(phase="done", status="cancelled", lease_holder="web-3:654", finished_at=ago(20), due_at=None),
            facts(),
            ["The client sees it as cancelled", "web-3:654 was told to stop 20 s ago"],
        ),
    ],
)
def test_the_sentence_says_what_holds_the_task(task: Task, known: Facts, parts: list[str]) -> None:
    sentence = why(task, known)
    assert sentence is not None
    assert [part for part in parts if part not in sentence] == []


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_finished_task_needs_no_sentence(status: str) -> None:
    assert why(a_task(phase="done", status=status, due_at=None, finished_at=ago(5)), facts()) is None


@pytest.mark.parametrize("phase", ["queued", "running", "parked", "expired"])
def test_an_expired_task_needs_none_swept_or_not(phase: str) -> None:
    status = "input_required" if phase == "parked" else "working"
    assert why(a_task(phase=phase, status=status, expires_at=ago(1)), facts()) is None


def test_a_slow_tool_is_named_only_once_it_is_slow() -> None:
    sentence = why(a_task(**LEASED), facts(slow_after_seconds=60))
    assert sentence is not None
    assert "95 %" not in sentence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (119, "1 min 59 s"),
        (3600, "1 h"),
        (8940, "2 h 29 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_is_said_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
