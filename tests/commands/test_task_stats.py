"""``task_stats``: exactly what it prints, which limits break, and that it never shows an id or a payload."""

import json
import re
import sys
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line

from mcp_tasks.models import Process, Task
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.processes import JANITOR, WORKER, janitor_name, report
from mcp_tasks.store.types import Owner
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)

store = DatabaseTaskStore()


def run(*arguments: str, **options: Any) -> tuple[str, str, int]:
    """What it printed, what it complained of, and the exit status."""
    out, err = StringIO(), StringIO()
    status = 0
    try:
        call_command("task_stats", *arguments, stdout=out, stderr=err, **options)
    except SystemExit as ended:
        status = int(ended.code or 0)
    except CommandError as refused:
        err.write(str(refused))
        status = refused.returncode
    return out.getvalue(), err.getvalue(), status


def settled(tool: str, *, seconds: float = 0, **result: Any) -> None:
    """A task of this tool that ran so long and has ended."""
    ref = store.create_task(tool, {}).ref
    claim = store.claim(ref)
    assert claim is not None
    Task.objects.filter(pk=ref).update(run_ms=int(seconds * 1000))
    assert store.complete_task(ref, {"content": [], **result}, leg=claim.leg)


def queued_since(seconds: float) -> None:
    rewind(store.create_task("report", {}, ttl_ms=86_400_000).ref, seconds)


def seen(name: str, kind: str, *, slots: int = 0, busy: int = 0) -> None:
    report(name, kind, slots=slots, busy=busy)


def test_an_empty_site_says_so_in_three_lines() -> None:
    out, err, status = run()
    assert (err, status) == ("", 0)
    assert out == (
        "queued 0, running 0, need input 0, stalled 0, expire in 10 min 0, overdue 0\n"
        "finished in 24 h: 0 (completed 0, tool_error 0, failed 0, cancelled 0, expired 0)\n"
        "workers 0, slots 0, busy 0; the janitor never ran\n"
    )


def test_the_overview_as_text() -> None:
    queued_since(3 * 3600 + 610)
    store.claim(store.create_task("report", {}).ref)
    parked = store.create_task("report", {}).ref
    store.require_input(parked, {"k": {"method": "elicitation/create", "params": {"message": "?"}}})
    for _ in range(3):
        settled("report", seconds=20)
    settled("report", seconds=20, isError=True)
    settled("convert\x1b[2J", seconds=0.05)
    seen("web:1", WORKER, slots=4, busy=1)
    seen("web:2", WORKER, slots=4, busy=2)
    seen(janitor_name(), JANITOR)
    out, err, status = run()
    assert (err, status) == ("", 0)
    out = re.sub(r"ran \d s ago", "ran 0 s ago", out)
    out = re.sub(r"need input 1 \(oldest \d s\)", "need input 1 (oldest 0 s)", out)
    assert out == (
        "queued 1 (oldest 3 h 10 min), running 1, need input 1 (oldest 0 s), stalled 0, expire in 10 min 0, overdue 0\n"
        "finished in 24 h: 5 (completed 4, tool_error 1, failed 0, cancelled 0, expired 0), 20.0 % failed\n"
        "workers 2, slots 8, busy 3; the janitor ran 0 s ago\n"
        "\n"
        "TOOL            FINISHED  FAILED  ABOUT HALF WITHIN  95 % WITHIN\n"
        "convert\\x1b[2J  1         0.0 %   0.05 s             0.095 s\n"
        "report          4         25.0 %  20 s               29 s\n"
    )


def test_the_overview_as_json() -> None:
    queued_since(600)
    settled("report", seconds=20)
    found = json.loads(run("--format", "json", "--hours", "2")[0])
    assert 600 <= found.pop("oldest_queued_seconds") < 660
    ended = {
        "count": 1,
        "completed": 1,
        "tool_error": 0,
        "failed": 0,
        "cancelled": 0,
        "expired": 0,
        "failed_share": 0.0,
        "p50_seconds": 20.0,
        "p95_seconds": 29.0,
    }
    assert found == {
        "database": "default",
        "queued": 1,
        "running": 0,
        "needs_input": 0,
        "stalled": 0,
        "expire_soon": 0,
        "overdue": 0,
        "oldest_input_seconds": None,
        "finished": {"hours": 2, **ended},
        "tools": {"report": ended},
        "workers": 0,
        "slots": 0,
        "busy": 0,
        "janitor_seconds": None,
        "broken": [],
    }


def test_what_is_past_its_time_and_not_yet_swept_is_overdue() -> None:
    rewind(store.create_task("report", {}, ttl_ms=60_000).ref, 61)
    assert "overdue 1" in run()[0]


LIMITS = ["--max-queue-age", "60", "--max-stalled", "0", "--max-janitor-age", "300", "--min-workers", "1"]


def test_each_broken_limit_is_a_line_and_the_exit_status_is_one() -> None:
    queued_since(7200)
    lapsed = store.create_task("report", {}, max_attempts=2, ttl_ms=86_400_000).ref
    store.claim(lapsed)
    rewind(lapsed, 3600)
    seen(janitor_name(), JANITOR)
    rewind_process(janitor_name(), 660)
    out, err, status = run(*LIMITS)
    assert status == 1
    assert out.startswith("queued 1 (oldest 2 h), running 0,")
    assert err == (
        "queue age: 2 h, at most 1 min\nstalled: 1, at most 0\njanitor: ran 11 min ago, at most 5 min\n"
        "workers: 0, at least 1\n"
    )


def rewind_process(name: str, seconds: float) -> None:
    from datetime import timedelta

    process = Process.objects.get(pk=name)
    Process.objects.filter(pk=name).update(seen_at=process.seen_at - timedelta(seconds=seconds))


def test_limits_that_hold_are_silent() -> None:
    seen("web:1", WORKER, slots=4)
    seen(janitor_name(), JANITOR)
    assert run(*LIMITS)[1:] == ("", 0)


def test_a_janitor_that_never_ran_breaks_its_limit() -> None:
    assert run("--max-janitor-age", "300")[1:] == ("janitor: never ran, at most 5 min\n", 1)


def test_json_names_the_broken_limits_too() -> None:
    out, err, status = run("--min-workers", "2", "--format", "json")
    assert json.loads(out)["broken"] == ["workers: 0, at least 2"]
    assert (err, status) == ("workers: 0, at least 2\n", 1)


def test_a_monitor_reads_nothing_but_broken_limits(capsys: pytest.CaptureFixture[str], configure: Any) -> None:
    configure(SWEEP_SECONDS=0)  # of which a system check warns
    execute_from_command_line(["manage.py", "task_stats"])
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "task_stats", "--min-workers", "1"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "workers: 0, at least 1\n"


@pytest.mark.parametrize("wrong", [["--format", "xml"], ["--task-id", "x"], ["--ref", "x"]])
def test_wrong_usage_exits_with_two(capsys: pytest.CaptureFixture[str], wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "task_stats", *wrong])
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_a_process_that_was_not_heard_of_for_a_minute_is_no_worker() -> None:
    seen("web:1", WORKER, slots=4)
    rewind_process("web:1", 61)
    assert "workers 0, slots 0" in run()[0]


# -- one task -------------------------------------------------------------------------------------------------------

SECRET = "SECRET-IN-A-PAYLOAD"


def a_task() -> Any:
    created = store.create_task(
        "report", {"a": SECRET}, owner=Owner(("user", "6"), "al\x1bice"), status_message=SECRET, meta={"m": SECRET}
    )
    store.claim(created.ref, holder="web-1:302")
    return created


def test_one_task_by_its_ref() -> None:
    created = a_task()
    out, err, status = run("--ref", str(created.ref))
    assert (err, status) == ("", 0)
    lines = dict(re.findall(r"^(\w+) {2,}(.*)$", out, re.M))
    assert lines["task"] == f"report {created.ref}"
    assert lines["state"] == "running"
    assert re.fullmatch(r"web-1:302 has run it for \d s and renews its lease\.", lines["why"])
    assert lines["owner"] == "al\\x1bice " + Owner(("user", "6")).key
    assert lines["leg"] == "1, try 1 of 1"
    assert lines["worker"] == "web-1:302"
    assert re.search(r"^\S+ +created +client\n\S+ +claimed +leg 1 +worker$", out, re.M)
    assert SECRET not in out
    assert created.task_id not in out


def test_one_task_by_the_clients_id_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    created = a_task()
    monkeypatch.setattr(sys, "stdin", StringIO(f"{created.task_id}\n"))
    out, err, status = run("--task-id", "-", "--format", "json")
    assert (err, status) == ("", 0)
    found = json.loads(out)
    assert found["ref"] == str(created.ref)
    assert found["owner_label"] == "al\x1bice"
    assert [event["kind"] for event in found["events"]] == ["created", "claimed"]
    assert SECRET not in out
    assert created.task_id not in out


def test_payloads_are_not_even_read() -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    created = a_task()
    with CaptureQueriesContext(
        connection,
    ) as captured:
        run("--ref", str(created.ref))
    read = [query["sql"] for query in captured if "traceback" in query["sql"] or "arguments_json" in query["sql"]]
    assert read == []


def test_an_id_on_the_command_line_is_refused_and_not_repeated() -> None:
    created = a_task()
    out, err, status = run("--task-id", created.task_id)
    assert status == 2
    assert created.task_id not in out + err


def test_what_is_no_id_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("my-secret\n"))
    out, err, status = run("--task-id", "-")
    assert status == 2
    assert "my-secret" not in out + err


def test_a_task_that_is_not_there_is_a_failure() -> None:
    ref = str(uuid4())
    out, err, status = run("--ref", ref)
    assert status == 1
    assert "No task has this name." in err
    assert ref not in out + err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--ref", "x"],
        ["--ref", "0bda41da-2c9e-4f59-8e67-1d524453ba4c", "--task-id", "-"],
        ["--max-queue-age", "-1"],
        ["--hours", "0"],
        ["--hours", "999"],
        ["--format", "xml"],
        ["--database", "nowhere"],
    ],
)
def test_wrong_usage(wrong: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("task_stats", *wrong, stdout=StringIO())
