"""Ids, credentials and payloads of a task stand in its payload columns and on the wire, and nowhere else."""

import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from mcp_tasks import DeferredTask, InputRequired, TaskContext
from mcp_tasks import tasks as worker
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import get_store
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.testing.client import McpClient

from .questions import accept, form

KEY = "django-mcp-tasks/idempotencyKey"
ARGUMENT, ANSWER, RESULT, PROBLEM, PROGRESS, IDEMPOTENCY = (
    f"{word}-5e55a9e5ecre7" for word in ("argument", "answer", "result", "problem", "progress", "idempotency")
)


class Records(logging.Handler):
    """Everything that any logger says, from DEBUG on."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        parts = [record.getMessage(), str(record.args), str(record.exc_text), str(record.stack_info)]
        if record.exc_info:
            parts += traceback.format_exception(*record.exc_info)
        parts += [f"{name}={value!r} {value}" for name, value in record.__dict__.items()]
        self.texts.append(f"{record.name}: " + " | ".join(parts))


@pytest.fixture
def records() -> Iterator[Records]:
    handler = Records()
    loggers = [logging.getLogger(name) for name in [*logging.root.manager.loggerDict, "mcp_tasks"]]
    before = [(logger, logger.level, logger.propagate, logger.disabled) for logger in [*loggers, logging.root]]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.propagate, logger.disabled = True, False
    logging.root.setLevel(logging.DEBUG)
    logging.root.addHandler(handler)
    yield handler
    logging.root.removeHandler(handler)
    for logger, level, propagate, disabled in before:
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled


@pytest.fixture
def _tools(mcp_tools: Callable[..., Any]) -> None:
    @mcp_tools(task="required", output_schema={"type": "object"})
    def job(text: str, ctx: TaskContext, how: str = "ask") -> Any:
        ctx.progress(PROGRESS, done=1)
        if how == "ask":
            ctx.ask({"name": form(f"Who? {ARGUMENT}", name="string")})
            return {"text": RESULT}
        if how == "fail":
            raise McpError(7, PROBLEM, {"why": PROBLEM})
        if how == "mismatch":
            return RESULT
        if how == "nonsense":
            return InputRequired({"a": {"method": "elicitation/create", "params": {"message": ARGUMENT}}})
        if how == "huge":
            return {"text": RESULT * 500}
        raise AssertionError(how)

    @mcp_tools(inline_first=True)
    def hand_over(text: str, ctx: TaskContext) -> DeferredTask:
        ctx.ask({"name": form(f"Who? {ARGUMENT}", name="string")})
        return DeferredTask(start=lambda ref: worker.complete(ref, RESULT), status_message=PROGRESS)


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(McpError):
        call()


def whole_lives(alice: McpClient, bob: McpClient, configure: Callable[..., None]) -> list[str]:
    """Live tasks to every kind of end, with mistakes on the way; returns their ids."""
    ids = []

    def create(how: str = "ask", **meta: Any) -> str:
        params = {"name": "job", "arguments": {"text": ARGUMENT, "how": how}}
        task_id: str = alice.request("tools/call", params, **meta)["taskId"]
        ids.append(task_id)
        return task_id

    asked = create(**{KEY: IDEMPOTENCY})
    create(**{KEY: IDEMPOTENCY})
    refused(lambda: alice.request("tools/call", {"name": "job", "arguments": {"text": ""}}, **{KEY: IDEMPOTENCY}))
    run_until_idle()
    refused(lambda: alice.update_task(asked, {"name": {"action": ANSWER}}))
    refused(lambda: alice.update_task(asked, {"name": accept(name=[ANSWER])}))
    alice.update_task(asked, {"other": ANSWER})
    for client, method in ((bob, "tasks/get"), (bob, "tasks/cancel"), (bob, "tasks/update")):
        refused(lambda client=client, method=method: client.request(method, {"taskId": asked, "inputResponses": {}}))
    alice.post(alice.envelope("tasks/get", {"taskId": asked}), {"Mcp-Name": ids[0][:-1]})
    alice.declaring({}).post(alice.declaring({}).envelope("tasks/get", {"taskId": asked}))
    alice.update_task(asked, {"name": accept(name=ANSWER)})
    run_until_idle()
    assert RESULT in str(alice.get_task(asked))
    alice.cancel_task(asked)
    for how in ("fail", "mismatch", "nonsense"):
        create(how)
    configure(LIMITS={"PAYLOAD_BYTES": 4096})
    create("huge")
    run_until_idle()
    assert [alice.get_task(task_id)["status"] for task_id in ids[2:]] == ["failed"] * 4
    parked = create()
    run_until_idle()
    refused(lambda: alice.update_task(parked, {"name": accept(name=ANSWER * 500)}))
    alice.cancel_task(parked)
    expired = create()
    rewind(ref_of(expired), 3601)
    refused(lambda: alice.get_task(expired))
    get_store().cleanup_expired()
    refused(lambda: alice.update_task(expired, {"name": accept(name=ANSWER)}))
    assert alice.call_tool("job", {"text": [ARGUMENT]})["isError"] is True
    refused(lambda: alice.call_tool("job", {"text": ARGUMENT}, requestState=ARGUMENT))
    round_one = alice.call_tool("hand_over", {"text": ARGUMENT})
    answers = {"inputResponses": {"name": accept(name=ANSWER)}, "requestState": round_one["requestState"]}
    ids.append(alice.call_tool("hand_over", {"text": ARGUMENT}, **answers)["taskId"])
    assert RESULT in str(alice.get_task(ids[-1]))
    return ids


@pytest.mark.usefixtures("_tools")
def test_no_log_record_no_column_and_no_text_of_a_model_holds_an_id_or_a_secret(
    client_of: Callable[[str], McpClient], configure: Callable[..., None], records: Records
) -> None:
    alice, bob = client_of("alice"), client_of("bob")
    ids = whole_lives(alice, bob, configure)
    assert len(set(ids)) > 7
    assert any(text.startswith("mcp_tasks.") for text in records.texts)
    assert alice.token is not None
    for secret in (*ids, alice.token, str(bob.token), ARGUMENT, ANSWER, RESULT, PROBLEM, PROGRESS, IDEMPOTENCY):
        assert [text[:500] for text in records.texts if secret in text] == []
    for table, column, value in every_value():
        assert not any(task_id in value for task_id in ids), f"{table}.{column}"
        assert alice.token not in value, f"{table}.{column}"
    for model in apps.get_app_config("mcp_tasks").get_models():
        for row in model._base_manager.all():
            shown = f"{row} {row!r}"
            assert not any(secret in shown for secret in (*ids, ARGUMENT, ANSWER, RESULT, PROBLEM))


def every_value() -> Iterator[tuple[str, str, str]]:
    """Each value of each column of each of our tables, as text."""
    with connection.cursor() as cursor:
        tables = [t for t in connection.introspection.table_names(cursor) if t.startswith("mcp_tasks_")]
        assert len(tables) >= 5
        for table in tables:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            columns = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                for column, value in zip(columns, row, strict=True):
                    yield table, column, str(value)


def test_the_id_cannot_be_computed_from_what_is_stored(alice: McpClient) -> None:
    from mcp_tasks.models import Task

    created = alice.request("tools/call", {"name": "echo", "arguments": {"text": "x"}}, **{KEY: "k"})
    row = Task.objects.values().get()
    assert row["ref"] == ref_of(created["taskId"])
    assert row["id_nonce"] not in created["taskId"]
    assert str(row["ref"]) not in str(created)
