"""Questions that nobody answers in time: by a worker's own loop and sweep, with either store."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from mcp_tasks import InputRequired, NobodyAnswered, TaskContext
from mcp_tasks.execution.worker import Worker
from mcp_tasks.store import DatabaseTaskStore, MemoryTaskStore, TaskStore, get_store

pytestmark = pytest.mark.django_db(transaction=True)

Tools = Callable[..., Any]
ABLE = {"capabilities": {"elicitation": {}, "sampling": {}, "roots": {}}}
YES = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
ACCEPT = {"action": "accept", "content": {"yes": True}}
DEADLINE_SECONDS = 0.2


@pytest.fixture(params=["database", "memory"])
def store(request: pytest.FixtureRequest, configure: Any) -> TaskStore:
    """The store of this process, of either kind, in a process that sweeps each second."""
    configure(SWEEP_SECONDS=1)
    if request.param == "memory":
        configure(STORE="mcp_tasks.store.MemoryTaskStore")
    store = get_store()
    assert isinstance(store, MemoryTaskStore if request.param == "memory" else DatabaseTaskStore)
    return store


@pytest.fixture
def worker(store: TaskStore) -> Iterator[Worker]:
    worker = Worker(2)
    worker.start()
    yield worker
    worker.drain(5.0)


def create(store: TaskStore, tool: str) -> UUID:
    return store.create_task(tool, {}, context=ABLE).ref


def text(store: TaskStore, ref: UUID) -> str:
    """What the finished task says."""
    found = store.wait_for_completion(ref, 20)
    assert found is not None
    return str(found.result["content"][0]["text"])


def test_a_form_that_nobody_answers_is_cancelled_and_the_handler_goes_on(
    mcp_tools: Tools, store: TaskStore, worker: Worker
) -> None:
    @mcp_tools
    def ask(ctx: TaskContext) -> str:
        answer = ctx.elicit("sure", "Sure?", YES, deadline_seconds=DEADLINE_SECONDS)
        return f"{answer} in leg {ctx.leg}"

    ref = create(store, "ask")
    assert text(store, ref) == "{'action': 'cancel'} in leg 2"
    assert store.input_responses(ref) == {"sure": {"action": "cancel"}}


def test_a_model_and_folders_that_do_not_answer_raise(mcp_tools: Tools, store: TaskStore, worker: Worker) -> None:
    @mcp_tools
    def sample(ctx: TaskContext) -> str:
        try:
            return str(ctx.sample("poem", [], max_tokens=9, deadline_seconds=DEADLINE_SECONDS))
        except NobodyAnswered as late:
            return f"without {late.keys}"

    @mcp_tools
    def roots(ctx: TaskContext) -> str:
        return str(ctx.roots(deadline_seconds=DEADLINE_SECONDS))

    refs = [create(store, tool) for tool in ("sample", "roots")]
    assert [text(store, ref) for ref in refs] == ["without ('poem',)", "Nobody answered in time: roots"]
    task = store.get_task(refs[1])
    assert task is not None
    assert task.tool_error


def test_a_returned_question_has_its_deadline_too(mcp_tools: Tools, store: TaskStore, worker: Worker) -> None:
    @mcp_tools
    def ask(ctx: TaskContext) -> str | InputRequired:
        if "roots" not in ctx.answers:
            return InputRequired({"roots": {"method": "roots/list"}}, deadline_seconds=DEADLINE_SECONDS)
        return str(ctx.answers["roots"])

    assert text(store, create(store, "ask")) == "{'action': 'cancel'}"


def test_an_answer_before_the_deadline_is_the_answer(mcp_tools: Tools, store: TaskStore, worker: Worker) -> None:
    @mcp_tools
    def ask(ctx: TaskContext) -> str:
        return str(ctx.elicit("sure", "Sure?", YES, deadline_seconds=3600)["action"])

    ref = create(store, "ask")
    _parked(store, ref)
    assert store.apply_input_responses(ref, {"sure": ACCEPT}) is not None
    assert text(store, ref) == "accept"


def test_an_answer_at_the_deadline_and_the_janitor_agree_on_who_was_first(
    mcp_tools: Tools, store: TaskStore, worker: Worker
) -> None:
    @mcp_tools
    def ask(ctx: TaskContext) -> str:
        return str(ctx.elicit("sure", "Sure?", YES, deadline_seconds=DEADLINE_SECONDS)["action"])

    # The worker's own sweep, and one that looks as often as it can.
    stopped = threading.Event()
    janitor = threading.Thread(target=lambda: _sweep(store, stopped))
    janitor.start()
    try:
        outcomes = []
        for _ in range(12):
            ref = create(store, "ask")
            worker.ring()
            asked_at = _parked(store, ref)
            time.sleep(max(0.0, asked_at + DEADLINE_SECONDS + random.uniform(-0.03, 0.01) - time.monotonic()))
            applied = store.apply_input_responses(ref, {"sure": ACCEPT})
            # Accepted, ignored because it was answered, or too late altogether: the task had ended.
            outcomes.append((ref, applied is not None and applied.accepted == ("sure",)))
        for ref, accepted in outcomes:
            assert text(store, ref) == ("accept" if accepted else "cancel")
            assert store.input_responses(ref) == {"sure": ACCEPT if accepted else {"action": "cancel"}}
            task = store.get_task(ref)
            assert task is not None
            assert task.leg == 2
    finally:
        stopped.set()
        janitor.join()


def _parked(store: TaskStore, ref: UUID) -> float:
    """Wait until the task has asked; returns when that was seen, which is hardly later."""
    deadline = time.monotonic() + 10
    while not store.outstanding_input_requests(ref):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return time.monotonic()


def _sweep(store: TaskStore, stopped: threading.Event) -> None:
    try:
        while not stopped.wait(0.002):
            store.answer_overdue()
    finally:
        connections.close_all()
