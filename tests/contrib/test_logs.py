"""What is logged: by which logger, with which fields, and that no record can be used to reach a task or read one."""

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from mcp_tasks import McpError, TaskContext, ToolError, observing
from mcp_tasks.access import refusals
from mcp_tasks.models import OwnerGate, Process, Task, TaskEvent, TaskInput, TaskStat, TaskStep
from mcp_tasks.operators.acting import Order, act
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.sweep import sweep
from mcp_tasks.store.types import Owner
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient
from tests.support.adapters import make_client

store = DatabaseTaskStore()
SECRET = "SECRET-OF-A-CLIENT"

#: The fields of records; a new one is a decision, for what may be in it.
FIELDS = {
    "event",
    "ref",
    "tool",
    "method",
    "owner_hash",
    "status_to",
    "revision",
    "leg",
    "attempts",
    "duration_ms",
    "code",
    "actor",
    "trace_id",
    "reason",
    "why",
    "what",
    "step",
    "recovered",
    "failed",
    "redelivered",
    "timed_out",
    "expired",
    "purged",
}
LOGGERS = {"mcp_tasks.rpc", "mcp_tasks.runner", "mcp_tasks.janitor", "mcp_tasks.access", "mcp_tasks.operator"}
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Kept(logging.Handler):
    """Every record, from the lowest level on."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()
        self.records.append(record)

    def of(self, event: str) -> list[logging.LogRecord]:
        return [record for record in self.records if getattr(record, "event", None) == event]


@pytest.fixture
def log() -> Iterator[Kept]:
    """The root logger at DEBUG, as some project will have it."""
    kept, root = Kept(), logging.getLogger()
    level = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    yield kept
    root.setLevel(level)
    root.removeHandler(kept)


class Asked:
    """The request of an operator."""

    def __init__(self, user: Any) -> None:
        self.user = user


@pytest.fixture
def everything(mcp: McpClient, log: Kept, token: Callable[[str], str], mcp_tools: Any) -> list[str]:
    """A day in the life of a server, with secrets wherever a client or a tool can put one; the ids of its tasks."""

    @mcp_tools
    def works(text: str, ctx: TaskContext) -> str:
        ctx.progress(SECRET)
        ctx.elicit("k", SECRET, {"type": "object", "properties": {}})
        return SECRET

    @mcp_tools
    def breaks(text: str) -> str:
        raise ValueError("a bug")

    @mcp_tools
    def says_no(text: str) -> str:
        raise ToolError(SECRET)

    @mcp_tools
    def fails(text: str) -> str:
        raise McpError(-32000, SECRET, {"data": SECRET})

    @mcp_tools
    def is_cancelled(text: str, ctx: TaskContext) -> str:
        assert ctx.ref is not None
        store.cancel_task(ctx.ref, SECRET)
        return SECRET

    names = ("works", "breaks", "says_no", "fails", "is_cancelled", "works")
    key = {"django-mcp-tasks/idempotencyKey": SECRET}
    task_ids = [mcp.request("tools/call", {"name": name, "arguments": {"text": SECRET}})["taskId"] for name in names]
    task_ids.append(mcp.request("tools/call", {"name": "works", "arguments": {"text": SECRET}}, **key)["taskId"])
    run_until_idle()
    stranger = make_client("view-wsgi", token=token("stranger"))
    for task_id in task_ids:
        mcp.get_task(task_id)
        for caller in (stranger, mcp.declaring({})):
            with pytest.raises(McpError):
                caller.get_task(task_id)
    with pytest.raises(McpError):
        mcp.update_task(task_ids[0], {"k": SECRET})
    mcp.update_task(task_ids[0], {"k": {"action": "accept", "content": {SECRET: SECRET}}})
    mcp.cancel_task(task_ids[5])
    run_until_idle()
    operator = Asked(User.objects.create_superuser("operator"))
    act(operator, Task.objects.get(tool="works", status="input_required"), Order(verb="cancel", reason=SECRET))
    for method in ("tasks/get", "tools/call", SECRET):
        mcp.post({**mcp.envelope(method, {"name": SECRET, "taskId": task_ids[0] + "x"}), "id": task_ids[0]})
    mcp.post(f'{{"broken": "{SECRET}'.encode(), {"Content-Type": "application/json"})
    mcp.post(mcp.envelope("tasks/get"), {"Authorization": f"Bearer {SECRET}"})
    lapsed = store.create_task("works", {"text": SECRET}, owner=Owner((SECRET,), SECRET), ttl_ms=86_400_000)
    store.claim(lapsed.ref)
    rewind(lapsed.ref, 600)
    old = store.create_task("works", {"text": SECRET}, ttl_ms=60_000)
    rewind(old.ref, 61)
    sweep(store)
    refusals.settle(5)
    return [*task_ids, lapsed.task_id, old.task_id]


def test_no_record_holds_an_id_a_payload_or_a_credential(everything: list[str], log: Kept) -> None:
    assert len(log.records) > 40
    for record in log.records:
        told = repr(vars(record)) + logging.Formatter().format(record)
        assert SECRET not in told, told
        for task_id in everything:
            assert task_id not in told, told


def test_no_model_shows_an_id_or_a_payload(everything: list[str]) -> None:
    for model in (Task, TaskEvent, TaskInput, TaskStep, TaskStat, Process, OwnerGate):
        for row in model._default_manager.all():
            told = repr(row) + str(row)
            assert SECRET not in told
            assert not any(task_id in told for task_id in everything)


def test_every_record_is_a_sentence_with_known_fields(everything: list[str], log: Kept) -> None:
    ours = [record for record in log.records if record.name.startswith("mcp_tasks")]
    assert {record.name for record in ours} == LOGGERS
    for record in ours:
        fields = set(vars(record)) - _OWN
        assert "event" in fields, record
        assert fields <= FIELDS, fields - FIELDS
        assert re.fullmatch(r"[a-z][^\n{}]*", str(record.msg)), record.msg
        assert not record.args, record.msg  # else no two of its kind could be counted


def test_a_request_is_one_line(everything: list[str], log: Kept) -> None:
    answered = log.of("answered")
    assert {record.levelno for record in answered} == {logging.DEBUG}
    [update] = [r for r in answered if r.method == "tasks/update" and r.code is None]  # type: ignore[attr-defined]
    fields = {name: value for name, value in vars(update).items() if name not in _OWN}
    assert fields.pop("duration_ms") >= 0
    assert re.fullmatch(r"[0-9a-f]{12}", fields.pop("owner_hash"))
    assert UUID(fields.pop("ref"))
    assert fields == {"event": "answered", "method": "tasks/update", "tool": None, "code": None, "trace_id": None}
    methods = {record.method for record in answered}  # type: ignore[attr-defined]
    assert methods == {"tools/call", "tasks/get", "tasks/update", "tasks/cancel", "other"}


def test_a_leg_an_outcome_and_a_pass_are_one_line_each(everything: list[str], log: Kept) -> None:
    ends = {record.code for record in log.of("leg_ended")}  # type: ignore[attr-defined]
    assert {"parked", "settled", "refused"} <= ends
    outcomes = {record.status_to for record in log.of("settled")}  # type: ignore[attr-defined]
    assert outcomes == {"completed", "tool_error", "failed", "cancelled", "expired"}
    [swept] = log.of("swept")
    assert (swept.failed, swept.expired) == (1, 1)  # type: ignore[attr-defined]


def test_an_act_of_an_operator_is_a_line_of_its_own_logger(everything: list[str], log: Kept) -> None:
    [record] = log.of("operator_cancel")
    assert (record.name, record.levelname) == ("mcp_tasks.operator", "INFO")
    assert (record.code, record.actor) == ("ok", f"operator:{User.objects.get(username='operator').pk}")  # type: ignore[attr-defined]


def test_who_asks_for_the_tasks_of_another_can_be_told_from_others(everything: list[str], log: Kept) -> None:
    refused = [record for record in log.of("access_refused") if record.reason == "owner"]  # type: ignore[attr-defined]
    assert len(refused) == 7
    [stranger] = {record.owner_hash for record in refused}  # type: ignore[attr-defined]
    owners = {record.owner_hash for record in log.of("answered")}  # type: ignore[attr-defined]
    assert stranger in owners
    assert len(owners) == 2


def test_an_owner_in_logs_is_of_no_use_elsewhere(settings: Any) -> None:
    key = Owner(("user", "6")).key
    here = observing.owner_hash(key)
    assert here is not None
    assert re.fullmatch(r"[0-9a-f]{12}", here)
    assert here not in key
    assert observing.owner_hash(None) is None
    settings.SECRET_KEY = "of another site " + "x" * 40
    assert observing.owner_hash(key) != here


def test_with_the_level_of_django_there_is_no_line_for_a_call(mcp: McpClient) -> None:
    kept = Kept()
    logging.getLogger().addHandler(kept)
    try:
        mcp.call_tool("add", {"a": 1, "b": 2})
    finally:
        logging.getLogger().removeHandler(kept)
    assert kept.of("answered") == []
