"""docs/how-to/write-a-replayable-handler.md: every handler does what the page says of it."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from mcp_tasks import TaskContext, tasks
from mcp_tasks.protocol.codec import Json
from mcp_tasks.store import get_store
from mcp_tasks.testing import McpClient, rewind, run_until_idle

from .conftest import Page

PAGE = "docs/how-to/write-a-replayable-handler.md"


def accept(**content: Json) -> dict[str, Json]:
    return {"action": "accept", "content": content}


YES, DECLINE = accept(yes=True), {"action": "decline"}


def finish(client: McpClient, task: dict[str, Json], *answers: dict[str, Json]) -> str:
    """Run a task to its end, with answers for each round; returns the text of its result."""
    for answer in answers:
        run_until_idle()
        assert client.get_task(task["taskId"])["status"] == "input_required"
        client.update_task(task["taskId"], answer)
    run_until_idle()
    return str(client.get_task(task["taskId"])["result"]["content"][0]["text"])


def test_it_runs_to_each_question_and_to_the_end(ada: McpClient) -> None:
    task = ada.call_tool("close_account", {"account": 7})
    assert finish(ada, task, {"sure": YES}, {"export": YES}) == "closed, exported"
    (stored,) = get_store().list_tasks()
    assert stored.leg == 3
    assert finish(ada, ada.call_tool("close_account", {"account": 7}), {"sure": DECLINE}) == "kept"


def test_questions_asked_together_are_one_round(ada: McpClient) -> None:
    task = ada.call_tool("open_account")
    assert finish(ada, task, {"name": accept(name="Bo"), "branch": accept(branch="Ulm")}) == "opened for Bo in Ulm"


def test_questions_may_be_returned(ada: McpClient) -> None:
    assert finish(ada, ada.call_tool("rename_account", {"account": 7}), {"name": accept(name="Bo")}) == "Bo"
    plain = ada.declaring({"elicitation": {}})
    asked = plain.call_tool("rename_account", {"account": 7})
    answers = {"requestState": asked["requestState"], "inputResponses": {"name": accept(name="Bo")}}
    assert plain.call_tool("rename_account", {"account": 7}, **answers)["content"][0]["text"] == "Bo"


@pytest.mark.parametrize(
    "summary", [None, {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Bo"}}]
)
def test_a_deadline_ends_a_wait(ada: McpClient, summary: dict[str, Json] | None) -> None:
    task = ada.call_tool("publish", {"page": "home"})
    run_until_idle()
    ada.update_task(task["taskId"], {"approve": YES})
    run_until_idle()
    if summary is None:
        pass_by(61)
    else:
        ada.update_task(task["taskId"], {"summary": summary})
    assert finish(ada, task) == f"published, summary: {'none' if summary is None else 'Bo'}"


def test_a_form_that_nobody_answers_is_cancelled(ada: McpClient) -> None:
    task = ada.call_tool("publish", {"page": "home"})
    run_until_idle()
    pass_by(1801)
    assert finish(ada, task) == "not published"


def pass_by(seconds: float) -> None:
    """Time passes for the only task, and a janitor looks."""
    (stored,) = get_store().list_tasks()
    rewind(stored.ref, seconds)
    assert get_store().answer_overdue().timed_out == 1


def test_a_step_is_done_once_in_all_legs(page: Page, ada: McpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def book_seat(train: str) -> dict[str, Json]:
        done.append(train)
        return {"train": train, "seat": 17}

    def charge(amount: int, *, idempotency_key: str) -> str:
        done.append(idempotency_key)
        return f"payment of {amount}"

    for function in (book_seat, charge):
        monkeypatch.setattr(page.module("shop.mcp_tools"), function.__name__, function)
    task = ada.call_tool("buy_ticket", {"train": "ICE 1"})
    assert finish(ada, task, {"pay": YES}) == "payment of 30"
    assert done[0] == "ICE 1"
    assert len(done) == 2


def test_after_a_crash_an_import_goes_on_behind_the_last_page(
    page: Page, ada: McpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    async def import_page(number: int) -> int:
        seen.append(number)
        if seen == [0, 1]:
            await sync_to_async(lose_the_leg)()
        return 10

    monkeypatch.setattr(page.module("shop.mcp_tools"), "import_page", import_page)
    task = ada.call_tool("import_pages", {"pages": 3})
    assert finish(ada, task) == "30 rows"
    assert seen == [0, 1, 1, 2]


def lose_the_leg() -> None:
    """As if its process were gone: another leg will run."""
    (stored,) = get_store().list_tasks()
    assert get_store().release(stored.ref, 1)


def test_a_step_fixes_a_moment(page: Page, ada: McpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(["2026-01-01T10:00", "2026-01-01T10:01"])
    monkeypatch.setattr(page.module("shop.mcp_tools"), "now", lambda: next(moments))
    task = ada.call_tool("freeze_prices")
    assert finish(ada, task, {"sure": YES}) == "frozen as of 2026-01-01T10:00"


def test_the_key_for_other_systems_is_the_same_in_each_leg_of_one_task_only(
    page: Page, ada: McpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def pay_out(amount: int, *, idempotency_key: str) -> str:
        seen.append(idempotency_key)
        return "paid"

    monkeypatch.setattr(page.module("shop.mcp_tools"), "pay_out", pay_out)
    task = ada.call_tool("refund", {"order": 1, "amount": 5})
    claim = get_store().claim()
    assert claim is not None
    assert claim.max_attempts == 3
    context = get_store().resume_context(claim.ref, claim.leg)
    assert context is not None
    get_store().release(claim.ref, claim.leg)
    assert finish(ada, task) == "paid"
    finish(ada, ada.call_tool("refund", {"order": 1, "amount": 5}))
    ada.declaring({}).call_tool("refund", {"order": 1, "amount": 5})
    assert len(set(seen)) == len(seen) == 3


@pytest.mark.parametrize(("name", "arguments"), [("count_rows", {"pages": 1}), ("watch_feed", {})])
def test_what_watches_its_token_also_ends_without_it(
    page: Page, ada: McpClient, monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, Json]
) -> None:
    assert finish(ada, ada.call_tool(name, arguments)) in ("1 pages", "nothing new")


def test_a_task_may_be_given_longer(ada: McpClient) -> None:
    task = ada.call_tool("inventory", {"shelves": 2000})
    assert task["ttlMs"] == 24 * 3_600_000
    finish(ada, task)
    assert ada.get_task(task["taskId"])["ttlMs"] == 72 * 3_600_000


def test_a_tool_decides_inside_of_the_call(ada: McpClient) -> None:
    assert ada.call_tool("search", {"text": "lamp"})["content"][0]["text"] == "found at once"
    long = {"text": "a lamp with a green shade"}
    asked = ada.call_tool("search", long)
    assert asked["resultType"] == "input_required"
    answers = {"inputResponses": {"everywhere": YES}, "requestState": asked["requestState"]}
    task = ada.call_tool("search", long, **answers)
    assert task["resultType"] == "task"
    assert finish(ada, task) == "found in the archive"
    assert ada.declaring({"elicitation": {}}).call_tool("search", long, **answers)["resultType"] == "complete"


def test_the_work_is_done_elsewhere(page: Page, ada: McpClient) -> None:
    jobs: Any = page.module("shop.jobs")
    task = ada.call_tool("render", {"scene": "shop"})
    assert (task["statusMessage"], task["ttlMs"]) == ("Queued", 6 * 3_600_000)
    ref = jobs.queue.pop()
    jobs.work(ref)
    assert finish(ada, task) == "rendered"
    assert not tasks.progress(ref, "Too late")
    another = ada.call_tool("render", {"scene": "shop"})
    jobs.give_up(jobs.queue.pop())
    given_up = ada.get_task(another["taskId"])
    assert given_up["status"] == "completed"
    assert given_up["result"]["isError"]
    assert given_up["result"]["content"][0]["text"] == "The scene has no camera."


@pytest.mark.django_db(transaction=True)
def test_the_worker_functions_refuse_to_write_inside_of_a_transaction(page: Page) -> None:
    ref = get_store().create_task("render", {"scene": "shop"}).ref
    with transaction.atomic(), pytest.raises(RuntimeError):
        tasks.progress(ref, "Half way")
    with transaction.atomic():
        found = tasks.status(ref)
    assert found is not None
    assert found.status == "working"
    assert tasks.complete(ref, "rendered")


def test_the_same_key_with_another_question_fails_the_task(
    page: Page, ada: McpClient, mcp_tools: Callable[..., object]
) -> None:
    form, asked = page.module("shop.mcp_tools").YES_OR_NO, []

    @mcp_tools
    def fickle(ctx: TaskContext) -> str:
        """Ask something else each time."""
        asked.append(1)
        return str(ctx.elicit("it", f"Question {len(asked)}?", form)["action"])

    task = ada.call_tool("fickle")
    run_until_idle()
    ada.update_task(task["taskId"], {"it": YES})
    run_until_idle()
    assert ada.get_task(task["taskId"])["error"]["code"] == -32603
