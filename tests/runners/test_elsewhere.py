"""The outbox of engines: nobody waits for an engine, and what it did not take is sent when it does."""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from mcp_tasks.runners import elsewhere
from mcp_tasks.runners.base import get_runner
from mcp_tasks.runners.elsewhere import EngineRunner, Outbox
from mcp_tasks.store import get_store
from mcp_tasks.store.sweep import sweep
from mcp_tasks.testing import rewind
from tests.support.push import soon


class Engine:
    """Takes messages, unless it is away or slow."""

    def __init__(self) -> None:
        self.taken: list[UUID] = []
        self.is_away = False
        self.calls = 0
        self.gate = threading.Event()
        self.gate.set()

    def send(self, ref: UUID) -> None:
        self.calls += 1
        assert self.gate.wait(10)
        if self.is_away:
            raise ConnectionError("the broker is away")
        self.taken.append(ref)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "REST_SECONDS", 0.02)
    monkeypatch.setattr(elsewhere, "REST_LIMIT_SECONDS", 0.05)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.is_away = False
    engine.gate.set()


def test_messages_are_sent_in_their_order(engine: Engine) -> None:
    outbox, refs = Outbox(engine.send), [uuid4() for _ in range(20)]
    for ref in refs:
        outbox.put(ref)
    assert outbox.flush(5)
    assert engine.taken == refs


def test_a_slow_engine_delays_nobody(engine: Engine) -> None:
    engine.gate.clear()
    outbox = Outbox(engine.send)
    began = time.monotonic()
    for _ in range(100):
        outbox.put(uuid4())
    assert time.monotonic() - began < 0.5
    assert not outbox.flush(0.1)
    engine.gate.set()
    assert outbox.flush(5)
    assert len(engine.taken) == 100


def test_what_an_engine_did_not_take_is_sent_when_it_is_back(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.is_away = True
    outbox, refs = Outbox(engine.send), [uuid4() for _ in range(3)]
    for ref in refs:
        outbox.put(ref)
    assert soon(lambda: engine.calls > 4)
    engine.is_away = False
    with caplog.at_level(logging.WARNING):
        assert outbox.flush(5)
    assert engine.taken == refs
    events = [record.event for record in caplog.records if record.name == "mcp_tasks.runner"]
    assert events == ["engine_failed", "engine_back"], "once each, not for each try"


def test_a_task_that_is_queued_again_while_it_waits_is_one_message(engine: Engine) -> None:
    engine.gate.clear()
    outbox, first, ref = Outbox(engine.send), uuid4(), uuid4()
    outbox.put(first)
    assert soon(lambda: engine.calls == 1)
    for _ in range(5):
        outbox.put(ref)
    engine.gate.set()
    assert outbox.flush(5)
    assert engine.taken == [first, ref]


def test_of_too_many_the_oldest_are_left_to_the_janitor(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "WAITING_LIMIT", 2)
    engine.gate.clear()
    outbox, refs = Outbox(engine.send), [uuid4() for _ in range(5)]
    outbox.put(refs[0])
    assert soon(lambda: engine.calls == 1)
    for ref in refs[1:]:
        outbox.put(ref)
    engine.gate.set()
    assert outbox.flush(5)
    assert engine.taken == [refs[0], *refs[3:]]


def test_no_thread_is_started_before_the_first_message(engine: Engine) -> None:
    def outboxes() -> int:
        return [thread.name for thread in threading.enumerate()].count("mcp-tasks-outbox")

    before = outboxes()
    outbox = Outbox(engine.send)
    assert outbox.flush(0)
    assert outboxes() == before
    outbox.put(uuid4())
    assert outboxes() == before + 1


def test_an_engine_runner_sends_what_is_enqueued_and_waits_for_it_at_the_end(engine: Engine) -> None:
    class Runner(EngineRunner):
        def send(self, ref: UUID) -> None:
            engine.send(ref)

    runner: Any = Runner()
    ref = uuid4()
    runner.enqueue(ref)
    runner.flush()
    assert engine.taken == [ref]


class Kept(EngineRunner):
    """Keeps what it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[UUID] = []

    def send(self, ref: UUID) -> None:
        self.sent.append(ref)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["completed elsewhere", "lost", "expired"])
def test_a_task_under_a_limit_is_rung_when_another_one_ends_wherever_that_is(
    mcp_tools: Any, configure: Any, how: str
) -> None:
    configure(RUNNER={"BACKEND": f"{__name__}.Kept"})
    mcp_tools(name="few", max_running=1)(lambda: None)
    store, runner = get_store(), cast("Kept", get_runner())
    first = store.create_task("few", {}, ttl_ms=100_000).ref
    claim = store.claim(first)
    assert claim is not None
    store.create_task("few", {})
    runner.flush()
    runner.sent.clear()
    if how == "completed elsewhere":
        store.hand_over(first, claim.leg)
        store.complete_task(first, {"content": []})
    else:
        rewind(first, 99 if how == "lost" else 101)
        sweep(store)
    runner.flush()
    assert first in runner.sent


def test_where_no_thread_could_be_started_the_next_message_tries_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    outbox, refs = Outbox(engine.send), [uuid4(), uuid4()]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            outbox.put(refs[0])
    outbox.put(refs[1])
    assert outbox.flush(5)
    assert engine.taken == refs
