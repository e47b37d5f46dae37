"""One leg: what a handler gets, how it ends, and what becomes of a result that nobody may store."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.db.models import F

from mcp_tasks import DeferredTask, McpError, TaskContext, ToolError, tasks
from mcp_tasks.execution import leg as leg_module
from mcp_tasks.execution import running, settling
from mcp_tasks.execution.leg import run_leg
from mcp_tasks.models import Process, Task, TaskEvent
from mcp_tasks.protocol.capabilities import NEEDS_TASKS
from mcp_tasks.store import get_store
from mcp_tasks.store.processes import own_name, tools_hash
from mcp_tasks.store.types import Claim, CreatedTask, Owner
from mcp_tasks.testing import rewind, run_until_idle
from mcp_tasks.tools.cancellation import CANCELLED, LEASE_LOST, SHUTDOWN
from mcp_tasks.tools.registry import registry

pytestmark = pytest.mark.django_db(transaction=True)

ABLE = {"capabilities": {"elicitation": {}, **NEEDS_TASKS}}
Tools = Callable[..., Any]
YES = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}


def create(tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> CreatedTask:
    return get_store().create_task(tool, arguments or {}, context=options.pop("context", ABLE), **options)


def claim(created: CreatedTask) -> Claim:
    found = get_store().claim(created.ref)
    assert found is not None
    return found


def snapshot(created: CreatedTask) -> Any:
    found = get_store().get_task_result(created.ref)
    assert found is not None
    return found


def answer(created: CreatedTask, **values: dict[str, Any]) -> None:
    responses = {key: {"action": "accept", "content": content} for key, content in values.items()}
    assert get_store().apply_input_responses(created.ref, responses) is not None


def test_a_result_completes_the_task(mcp_tools: Tools) -> None:
    mcp_tools(task="optional", name="double")(lambda n: n * 2)
    created = create("double", {"n": 21})
    run_leg(get_store(), claim(created))
    assert snapshot(created).task.status == "completed"
    assert snapshot(created).result["content"] == [{"type": "text", "text": "42"}]


def test_an_old_process_leaves_a_tool_that_it_does_not_know_to_a_newer_one(mcp_tools: Tools) -> None:
    store, mine = get_store(), tools_hash([tool.name for tool in registry])
    store.note_process(own_name(), "web", slots=1, busy=0, tools=mine)
    store.note_process("host:2", "web", slots=1, busy=0, tools="newer")
    Process.objects.filter(pk="host:2").update(started_at=F("started_at") + timedelta(seconds=1))
    created = create("added_by_the_deployment")
    run_leg(store, claim(created))
    row = Task.objects.get(pk=created.ref)
    assert (row.status, row.phase, row.attempts) == ("working", "queued", 0)
    assert store.claim(created.ref) is None, "not for a moment, so that the other one comes first"
    store.forget_process("host:2")
    rewind(created.ref, 2)
    run_leg(store, claim(created))
    assert "no longer available" in snapshot(created).error["message"]


def test_a_tool_error_completes_and_says_so(mcp_tools: Tools) -> None:
    @mcp_tools
    def broken() -> None:
        raise ToolError("no luck")

    created = create("broken")
    run_until_idle()
    assert snapshot(created).result["isError"] is True
    assert snapshot(created).task.tool_error is True


def test_a_protocol_error_fails_the_task_with_code_message_and_data(mcp_tools: Tools) -> None:
    @mcp_tools
    def broken() -> None:
        raise McpError(-32602, "no such region", {"field": "region"})

    created = create("broken")
    run_until_idle()
    assert snapshot(created).task.status == "failed"
    assert snapshot(created).error == {"code": -32602, "message": "no such region", "data": {"field": "region"}}
    assert snapshot(created).task.status_message == "no such region"


def test_the_text_of_an_exception_stays_inside(mcp_tools: Tools, caplog: pytest.LogCaptureFixture) -> None:
    @mcp_tools
    def broken() -> None:
        raise RuntimeError("password=hunter2 at /srv/app/db.py")

    created = create("broken")
    run_until_idle()
    assert "hunter2" not in str(snapshot(created))
    assert snapshot(created).result["isError"] is True
    assert "hunter2" in caplog.text


def test_each_leg_runs_from_the_top_with_every_answer_so_far(mcp_tools: Tools) -> None:
    seen: list[tuple[int, dict[str, Any]]] = []

    @mcp_tools
    def rounds(ctx: TaskContext) -> str:
        seen.append((ctx.leg, dict(ctx.answers)))
        first = ctx.elicit("first", "One?", YES)
        second = ctx.elicit("second", "Two?", YES)
        return f"{first['content']['yes']} {second['content']['yes']}"

    created = create("rounds")
    run_until_idle()
    answer(created, first={"yes": True})
    run_until_idle()
    answer(created, second={"yes": False})
    run_until_idle()
    accepted = {"action": "accept", "content": {"yes": True}}
    assert seen == [
        (1, {}),
        (2, {"first": accepted}),
        (3, {"first": accepted, "second": {"action": "accept", "content": {"yes": False}}}),
    ]
    assert snapshot(created).result["content"][0]["text"] == "True False"


def test_every_leg_has_the_ref_owner_user_scopes_and_arguments_of_the_call(mcp_tools: Tools) -> None:
    user = User.objects.create(username="ada")
    seen: list[Any] = []

    @mcp_tools
    def who(n: int, ctx: TaskContext) -> None:
        seen.append((ctx.ref, ctx.owner, ctx.user, ctx.scopes, n, ctx.meta, ctx.idempotency_key("charge")))
        ctx.elicit("go", "Go?", YES)

    context = {**ABLE, "user": str(user.pk), "scopes": ["read"], "meta": {"traceparent": "00-x"}}
    created = create("who", {"n": 1}, owner=Owner(("x",), "Ada"), context=context)
    run_until_idle()
    answer(created, go={"yes": True})
    run_until_idle()
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert seen[0][0] == created.ref
    assert seen[0][1].label == "Ada"
    assert seen[0][2] == user
    assert seen[0][3] == {"read"}


def test_a_deleted_user_is_none_in_the_next_leg(mcp_tools: Tools) -> None:
    user = User.objects.create(username="ada")
    seen: list[Any] = []

    @mcp_tools
    def who(ctx: TaskContext) -> None:
        seen.append(ctx.user)

    create("who", context={**ABLE, "user": str(user.pk)})
    user.delete()
    run_until_idle()
    assert seen == [None]


def test_a_tool_that_is_gone_fails_its_task_and_no_other(mcp_tools: Tools) -> None:
    mcp_tools(name="there")(lambda: "ok")
    lost, kept = create("renamed_away"), create("there")
    run_until_idle()
    assert snapshot(lost).task.status == "failed"
    assert snapshot(lost).error["code"] == -32603
    assert "no longer available" in snapshot(lost).error["message"]
    assert snapshot(kept).task.status == "completed"


NARROW = {"type": "object", "properties": {"amount": {"type": "integer", "maximum": 0}}}


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        pytest.param({}, "'amount' is a required property", id="another signature"),
        pytest.param({"input_schema": NARROW}, "amount: 1 is greater than the maximum of 0", id="another schema"),
    ],
)
def test_arguments_that_the_tool_no_longer_takes_fail_with_a_reason_and_the_worker_goes_on(
    mcp_tools: Tools, made: dict[str, Any], problem: str
) -> None:
    called: list[int] = []
    mcp_tools(name="changed", **made)(lambda amount: called.append(amount))
    mcp_tools(name="other")(lambda: "done")
    created, next_one = create("changed", {"amount": 1} if made else {"sum": 1}), create("other")
    run_until_idle()
    assert snapshot(created).task.status == "failed"
    assert "no longer takes these arguments: " in snapshot(created).error["message"]
    assert problem in snapshot(created).error["message"]
    assert called == []
    assert snapshot(next_one).task.status == "completed"


def test_asking_under_a_spent_key_fails_the_task_and_names_the_key(mcp_tools: Tools) -> None:
    @mcp_tools
    def nagging(ctx: TaskContext) -> None:
        ctx.elicit("go", f"Go, on leg {ctx.leg}?", YES)

    created = create("nagging")
    run_until_idle()
    answer(created, go={"yes": True})
    run_until_idle()
    assert snapshot(created).task.status == "failed"
    assert "'go'" in snapshot(created).error["message"]


def test_asking_for_what_the_client_did_not_declare_fails_with_the_capability(mcp_tools: Tools) -> None:
    @mcp_tools
    def sampling(ctx: TaskContext) -> None:
        ctx.sample("poem", [{"role": "user", "content": {"type": "text", "text": "A poem"}}], max_tokens=5)

    created = create("sampling")
    run_until_idle()
    assert snapshot(created).error["code"] == -32021
    assert snapshot(created).error["data"] == {"requiredCapabilities": {"sampling": {}}}


def test_too_large_a_result_fails_the_task_without_its_content(mcp_tools: Tools, settings: Any) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "LIMITS": {"PAYLOAD_BYTES": 2000}}
    mcp_tools(name="big")(lambda: "secret" * 1000)
    created = create("big")
    run_until_idle()
    assert snapshot(created).task.status == "failed"
    assert "secret" not in str(snapshot(created))


def test_a_result_after_a_cancel_is_dropped_and_the_slot_let_go(
    mcp_tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcp_tasks.runner")

    @mcp_tools
    def slow(ctx: TaskContext) -> str:
        assert ctx.ref is not None
        get_store().cancel_task(ctx.ref)
        assert ctx.cancelled
        return "too late"

    created = create("slow")
    run_until_idle()
    assert snapshot(created).task.status == "cancelled"
    assert snapshot(created).result is None
    assert [record.event for record in caplog.records if hasattr(record, "event")] == ["late_result"]
    assert Task.objects.get(pk=created.ref).lease_holder is None
    assert (
        list(TaskEvent.objects.filter(task_id=created.ref).order_by("id").values_list("kind", flat=True))[-1]
        == "let_go"
    )


@pytest.mark.parametrize("reason", [SHUTDOWN, LEASE_LOST])
@pytest.mark.parametrize("way", ["raises", "returns"])
def test_what_a_handler_does_after_it_was_told_to_stop_is_no_outcome(mcp_tools: Tools, reason: str, way: str) -> None:
    @mcp_tools
    def stoppable(ctx: TaskContext) -> str:
        ctx.token.raise_(reason)
        if way == "raises":
            ctx.token.raise_if_cancelled()
        return f"half done, {ctx.cancelled}"

    created = create("stoppable", max_attempts=1)
    run_leg(get_store(), claim(created))
    assert snapshot(created).task.status == "working"
    assert snapshot(created).task.phase == "running"


def test_a_leg_that_may_be_run_again_is_given_back_uncounted_when_its_process_stops(mcp_tools: Tools) -> None:
    @mcp_tools
    def stoppable(ctx: TaskContext) -> str:
        if ctx.leg == 1:
            ctx.token.raise_(SHUTDOWN)
            ctx.token.raise_if_cancelled()
        return "done"

    created = create("stoppable", max_attempts=3)
    run_leg(get_store(), claim(created))
    assert snapshot(created).task.phase == "queued"
    assert snapshot(created).task.attempts == 0


def test_a_result_that_came_without_looking_at_the_token_stands(mcp_tools: Tools) -> None:
    @mcp_tools
    def busy(ctx: TaskContext) -> str:
        running.stop_all(SHUTDOWN)
        return "whole"

    created = create("busy")
    run_leg(get_store(), claim(created))
    assert snapshot(created).task.status == "completed"


def test_a_question_stands_although_the_process_stops(mcp_tools: Tools) -> None:
    @mcp_tools
    def asking(ctx: TaskContext) -> None:
        ctx.token.raise_(SHUTDOWN)
        assert ctx.cancelled
        ctx.elicit("go", "Go?", YES)

    created = create("asking")
    run_leg(get_store(), claim(created))
    assert snapshot(created).task.phase == "parked"


@pytest.mark.parametrize("raised", [RuntimeError("cannot schedule new futures"), McpError(-32603, "gone")])
def test_in_a_process_that_is_ending_an_exception_is_no_outcome(
    mcp_tools: Tools, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    @mcp_tools
    def dying() -> None:
        raise raised

    monkeypatch.setattr(leg_module, "process_is_ending", lambda: True)
    created = create("dying")
    run_leg(get_store(), claim(created))
    assert snapshot(created).task.status == "working"


def test_an_outcome_waits_for_a_database_that_is_away(mcp_tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    mcp_tools(name="done")(lambda: "precious")
    store, faults = get_store(), [OperationalError("server closed the connection"), OperationalError("refused")]
    complete = store.complete_task

    def flaky(*args: Any, **kwargs: Any) -> Any:
        if faults:
            raise faults.pop()
        return complete(*args, **kwargs)

    monkeypatch.setattr(store, "complete_task", flaky)
    monkeypatch.setattr(settling.time, "sleep", lambda seconds: None)
    created = create("done")
    run_leg(store, claim(created))
    assert snapshot(created).task.status == "completed"


def test_a_deferred_task_is_started_and_handed_over_without_a_lease(mcp_tools: Tools) -> None:
    started: list[UUID] = []

    @mcp_tools
    def export() -> DeferredTask:
        return DeferredTask(start=started.append, status_message="Queued", meta={"shop/queue": "big"})

    created = create("export")
    run_until_idle()
    assert started == [created.ref]
    task = snapshot(created).task
    assert (task.phase, task.due_at, task.status_message) == ("running", None, "Queued")
    assert tasks.complete(created.ref, "exported")
    assert snapshot(created).result["content"] == [{"type": "text", "text": "exported"}]


def test_a_start_that_raises_fails_the_task_with_a_neutral_text(mcp_tools: Tools) -> None:
    def start(ref: UUID) -> None:
        raise ConnectionError("broker at 10.0.0.9 down")

    mcp_tools(name="export")(lambda: DeferredTask(start=start))
    created = create("export")
    run_until_idle()
    assert snapshot(created).error["code"] == -32603
    assert "10.0.0.9" not in str(snapshot(created))


def test_meta_that_is_too_large_fails_a_deferred_task_before_it_is_started(mcp_tools: Tools, settings: Any) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "LIMITS": {"PAYLOAD_BYTES": 2000}}
    started: list[UUID] = []
    mcp_tools(name="export")(lambda: DeferredTask(start=started.append, meta={"shop/note": "x" * 3000}))
    created = create("export")
    run_until_idle()
    assert snapshot(created).task.status == "failed"
    assert started == []


def test_a_job_that_was_quicker_than_the_hand_over_keeps_its_result(mcp_tools: Tools) -> None:
    mcp_tools(name="export")(lambda: DeferredTask(start=lambda ref: tasks.complete(ref, "quick")))
    created = create("export")
    run_until_idle()
    assert snapshot(created).result["content"][0]["text"] == "quick"


def test_a_cancel_reaches_the_token_of_a_leg_in_this_process(mcp_tools: Tools) -> None:
    reasons: list[str | None] = []

    @mcp_tools
    def watched(ctx: TaskContext) -> None:
        assert ctx.ref is not None
        assert not ctx.cancelled
        get_store().cancel_task(ctx.ref)
        reasons.append(ctx.token.reason)
        ctx.token.raise_if_cancelled()

    created = create("watched")
    run_until_idle()
    assert reasons == [CANCELLED]
    assert snapshot(created).task.status == "cancelled"


def test_a_task_that_is_cancelled_right_after_its_claim_is_let_go(mcp_tools: Tools) -> None:
    mcp_tools(name="never_run")(lambda: pytest.fail("the handler ran"))
    created = create("never_run")
    claimed = get_store().claim(created.ref, holder="host:1")
    assert claimed is not None
    get_store().cancel_task(created.ref)
    run_leg(get_store(), claimed)
    assert Task.objects.get(pk=created.ref).lease_holder is None


def test_nothing_of_a_leg_stays_registered_after_it(mcp_tools: Tools) -> None:
    mcp_tools(name="quick")(lambda: "ok")
    create("quick")
    run_until_idle()
    assert running.all_legs() == []
