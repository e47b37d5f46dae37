"""A leg that runs here and a cancel that was made elsewhere: the token is raised as soon as a message says so."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from mcp_tasks import TaskContext
from mcp_tasks.execution import heartbeat as heartbeat_module
from mcp_tasks.execution.heartbeat import Heartbeat
from mcp_tasks.execution.leg import run_leg
from mcp_tasks.execution.running import RunningLeg
from mcp_tasks.models import Task
from mcp_tasks.notifications.groups import TaskChanged, group_of
from mcp_tasks.notifications.hub import Hub
from mcp_tasks.notifications.waiters import follow
from mcp_tasks.protocol.errors import internal_error
from mcp_tasks.store import DatabaseTaskStore, MemoryTaskStore, effects, get_store
from mcp_tasks.testing import rewind
from mcp_tasks.tools.cancellation import CANCELLED, EXPIRED, CancellationToken, token_for
from tests.support.push import PATIENCE, soon
from tests.support.stage import Stage

from .conftest import never_looks
from .layers import Broker, crossing

__all__ = ["crossing"]

RESULT: dict[str, Any] = {"content": []}


@pytest.fixture
def stage(mcp_tools: Callable[..., Any]) -> Stage:
    stage = Stage()

    @mcp_tools
    def patient(ctx: TaskContext) -> str:
        stage.play(ctx)
        return "done"

    return stage


@pytest.fixture
def other(crossing: Broker, transactional_db: None, process: Hub, monkeypatch: Any) -> Iterator[Hub]:
    """The hub of another process. Nothing is found by looking, and no lease is renewed meanwhile."""
    never_looks(monkeypatch)
    monkeypatch.setattr(heartbeat_module, "FOLLOW_SECONDS", 0.02)
    made = Hub()
    yield made
    made.close()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Do something to a task as another process does it: no hook of this one is called."""

    def do(action: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patched:
            for hooks in ("token_hooks", "enqueue_hooks", "publish_hooks"):
                patched.setattr(effects, hooks, [])
            return action()

    return do


def running(on_a_thread: Callable[..., Any], stage: Stage, process: Hub) -> UUID:
    """A leg of a task that runs on a thread and is followed by now."""
    ref = get_store().create_task("patient", {}).ref
    claim = get_store().claim(ref)
    assert claim is not None
    on_a_thread(lambda: run_leg(get_store(), claim))
    assert stage.begun.wait(5)
    assert soon(lambda: process.count() == 1), "the leg is followed"
    return ref


def revision(ref: UUID) -> int:
    return Task.objects.get(ref=ref).revision


def test_a_cancel_of_another_process_raises_the_token_of_the_leg_that_runs_here(
    other: Hub,
    crossing: Broker,
    process: Hub,
    stage: Stage,
    on_a_thread: Callable[..., Any],
    silent: Callable[..., Any],
) -> None:
    ref = running(on_a_thread, stage, process)
    assert soon(lambda: crossing.members(group_of(ref)) == 1)
    time.sleep(0.1)
    silent(lambda: DatabaseTaskStore().cancel_task(ref))
    assert not stage.ended.wait(0.3), "nobody knows yet"
    other.publish(TaskChanged(ref, revision(ref)))
    assert stage.ended.wait(PATIENCE)
    assert stage.reason == CANCELLED
    assert soon(lambda: process.count() == 0), "and the leg is followed no longer"


def test_progress_of_another_process_raises_nothing(
    other: Hub, process: Hub, stage: Stage, on_a_thread: Callable[..., Any], silent: Callable[..., Any]
) -> None:
    ref = running(on_a_thread, stage, process)
    silent(lambda: DatabaseTaskStore().set_status(ref, "elsewhere"))
    other.publish(TaskChanged(ref, revision(ref)))
    assert not stage.ended.wait(0.4)
    stage.release.set()
    assert stage.ended.wait(5)
    assert stage.reason is None


def test_the_legs_own_outcome_raises_no_token(
    other: Hub, process: Hub, stage: Stage, on_a_thread: Callable[..., Any]
) -> None:
    ref = running(on_a_thread, stage, process)
    token = token_for(ref)
    stage.release.set()
    assert soon(lambda: Task.objects.get(ref=ref).status == "completed")
    time.sleep(0.2)
    assert not token.is_raised
    assert stage.reason is None
    assert soon(lambda: process.count() == 0)


def test_a_task_that_is_gone_stops_its_leg(
    other: Hub, process: Hub, stage: Stage, on_a_thread: Callable[..., Any], silent: Callable[..., Any]
) -> None:
    ref = running(on_a_thread, stage, process)
    silent(lambda: (rewind(ref, 10_000_000), DatabaseTaskStore().expire()))
    other.publish(TaskChanged(ref, revision(ref)))
    assert stage.ended.wait(PATIENCE)
    assert stage.reason == EXPIRED


def test_without_a_layer_that_crosses_processes_no_leg_is_followed(
    transactional_db: None, process: Hub, stage: Stage, on_a_thread: Callable[..., Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr(heartbeat_module, "FOLLOW_SECONDS", 0.02)
    ref = get_store().create_task("patient", {}).ref
    claim = get_store().claim(ref)
    assert claim is not None
    thread = on_a_thread(lambda: run_leg(get_store(), claim))
    assert stage.begun.wait(5)
    time.sleep(0.2)
    assert process.count() == 0
    stage.release.set()
    thread.join(5)


def test_a_leg_that_is_over_at_once_is_never_followed(
    other: Hub, crossing: Broker, process: Hub, mcp_tools: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "FOLLOW_SECONDS", 5.0)

    @mcp_tools
    def quick() -> str:
        return "done"

    ref = get_store().create_task("quick", {}).ref
    claim = get_store().claim(ref)
    assert claim is not None
    run_leg(get_store(), claim)
    time.sleep(0.1)
    assert crossing.named("group_add") == []
    assert process.count() == 0


# -- follow, by itself --------------------------------------------------------------------------------------------


def test_following_raises_the_legs_token_and_the_tasks(process: Hub) -> None:
    store = MemoryTaskStore()
    ref = store.create_task("report", {}).ref
    tasks_token, legs_token = token_for(ref), CancellationToken()
    stop = follow(store, ref, legs_token)
    store.set_status(ref, "Reading")
    time.sleep(0.1)
    assert not legs_token.is_raised
    store.cancel_task(ref)
    assert soon(lambda: legs_token.is_raised)
    assert (legs_token.reason, tasks_token.reason) == (CANCELLED, CANCELLED)
    stop()
    stop()
    assert process.count() == 0


@pytest.mark.parametrize("how", ["complete", "fail"])
def test_an_outcome_alone_is_no_reason_to_stop(process: Hub, how: str) -> None:
    store = MemoryTaskStore()
    ref = store.create_task("report", {}).ref
    token = CancellationToken()
    stop = follow(store, ref, token)
    if how == "complete":
        store.complete_task(ref, RESULT)
    else:
        store.fail_task(ref, internal_error())
    time.sleep(0.2)
    assert not token.is_raised
    stop()


def test_who_follows_no_longer_is_told_nothing(process: Hub) -> None:
    store = MemoryTaskStore()
    ref = store.create_task("report", {}).ref
    token = CancellationToken()
    follow(store, ref, token)()
    store.cancel_task(ref)
    time.sleep(0.1)
    assert not token.is_raised


def test_a_leg_is_forgotten_while_it_begins_to_be_followed(process: Hub) -> None:
    """Both in any order leave no listener behind."""
    store, heart = MemoryTaskStore(), Heartbeat()
    for _ in range(20):
        ref = store.create_task("report", {}).ref
        leg = RunningLeg(ref, 1, CancellationToken())
        leg.store, leg.follow_at = store, 0.0
        follower = threading.Thread(target=heart._follow, args=(store, leg))
        follower.start()
        heart.forget(leg)
        follower.join()
    assert process.count() == 0
