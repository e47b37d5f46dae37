"""The bell between processes: over a layer, over PostgreSQL, or not at all; and that no fault of it is anybody's."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, transaction

from mcp_tasks.execution import presence, queue
from mcp_tasks.execution import worker as worker_module
from mcp_tasks.execution.worker import Worker
from mcp_tasks.notifications import link as link_module
from mcp_tasks.notifications.hub import hub
from mcp_tasks.runners import bell as bell_module
from mcp_tasks.runners.base import get_runner
from mcp_tasks.runners.bell import Bell, LayerBell, PostgresBell, make_bell
from mcp_tasks.store import get_store
from mcp_tasks.store.sweep import sweep
from tests.notifications.layers import Broker, crossing
from tests.store.statements import IDLE_PASS, hours_are_counted, is_frame
from tests.support.push import soon

__all__ = ["crossing"]

pytestmark = pytest.mark.django_db(transaction=True)
on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="LISTEN and NOTIFY are PostgreSQL's")

EXTERNAL = {"BACKEND": "mcp_tasks.runners.external.ExternalRunner"}


class Rings:
    """Counts how often it was told."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> None:
        self.number += 1

    def heard(self, more_than: int = 0) -> bool:
        return soon(lambda: self.number > more_than)


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test hears of the threads and connections of another."""
    monkeypatch.setattr(bell_module, "_ALIVE_SECONDS", 0.2)
    yield
    bell_module._here.close()
    hub.close()
    for thread in threading.enumerate():
        if thread.name.startswith(("mcp-tasks-bell", "mcp-tasks-link")):
            thread.join(5)


@pytest.fixture
def close(_nothing_is_left: None) -> Iterator[Callable[[Bell], Bell]]:
    """Closes a bell at the end of the test."""
    made: list[Bell] = []

    def later(bell: Bell) -> Bell:
        made.append(bell)
        return bell

    yield later
    for bell in made:
        bell.close()


def test_over_a_layer_a_ring_reaches_other_processes(crossing: Broker, close: Any) -> None:
    here, there, rings = close(make_bell()), close(make_bell()), Rings()
    assert isinstance(here, LayerBell)
    there.answer(rings)
    assert soon(lambda: crossing.members("mcp_tasks.queue") == 1)
    here.ring()
    assert rings.heard()


def test_a_ring_says_nothing_of_any_task(crossing: Broker, close: Any) -> None:
    bell = close(make_bell())
    bell.ring()
    bell.flush(5)
    assert crossing.named("group_send") == [("mcp_tasks.queue", {"type": "mcp_tasks.changed", "queue": True})]


def test_a_membership_that_the_broker_forgot_is_made_anew(
    crossing: Broker, close: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "RENEW_SECONDS", 0.1)
    close(make_bell()).answer(Rings())
    assert soon(lambda: crossing.members("mcp_tasks.queue") == 1)
    crossing.lose_memberships()
    assert soon(lambda: crossing.members("mcp_tasks.queue") == 1)


def test_a_layer_that_is_away_costs_the_one_who_queues_nothing(
    crossing: Broker, configure: Callable[..., None]
) -> None:
    configure(RUNNER=EXTERNAL)
    crossing.hanging.add("group_send")
    began = time.monotonic()
    for _ in range(20):
        get_store().create_task("quick", {})
    assert time.monotonic() - began < 1.5


def test_without_a_layer_that_reaches_others_nobody_is_told(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_tasks.compat.hears_notices", lambda using: False)
    bell, rings = make_bell(), Rings()
    bell.answer(rings)
    bell.ring()
    bell.flush(5)
    assert (type(bell), rings.number) == (Bell, 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mcp-tasks-bell")]


@on_postgresql
def test_over_postgresql_a_ring_reaches_other_processes(close: Any) -> None:
    here, there, rings = close(make_bell()), close(make_bell()), Rings()
    assert isinstance(here, PostgresBell)
    there.answer(rings)
    assert rings.heard()  # once it listens, for whoever rang before
    before = rings.number
    here.ring()
    assert rings.heard(before)


@on_postgresql
def test_a_ring_takes_no_part_in_the_transaction_of_the_one_who_rings(close: Any) -> None:
    here, there, rings = close(make_bell()), close(make_bell()), Rings()
    there.answer(rings)
    assert rings.heard()
    before = rings.number
    with transaction.atomic():
        here.ring()
        assert rings.heard(before)
        transaction.set_rollback(True)


@on_postgresql
def test_rings_that_follow_each_other_closely_are_one(close: Any) -> None:
    here, there, rings = close(make_bell()), close(make_bell()), Rings()
    there.answer(rings)
    assert rings.heard()
    for _ in range(500):
        here.ring()
    here.flush(5)
    time.sleep(0.3)
    assert 2 <= rings.number < 50


@on_postgresql
def test_where_no_thread_could_be_started_the_next_ring_is_heard(close: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    here, there, rings = close(make_bell()), close(make_bell()), Rings()
    there.answer(rings)
    assert rings.heard()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            here.ring()
    before = rings.number
    here.ring()
    assert rings.heard(before)


@on_postgresql
def test_whoever_rang_lets_go_of_the_connection_after_a_while(close: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell_module, "_KEPT_SECONDS", 0.2)
    before = sessions()
    bell = close(make_bell())
    bell.ring()
    assert soon(lambda: sessions() == before + 1)
    assert soon(lambda: sessions() == before)


@on_postgresql
def test_a_listener_whose_connection_is_lost_listens_again(close: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell_module, "_REST_SECONDS", 0.1)
    here, there, rings = close(make_bell()), close(make_bell()), Rings()
    there.answer(rings)
    assert rings.heard()
    ours = " AND datname = current_database()"  # beside this process others test as well
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'" + ours)
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT 1'" + ours)
    assert rings.heard(1)  # it says so when it listens again
    before = rings.number
    here.ring()
    assert rings.heard(before)


def sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.fixture
def woken(configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Worker]]:
    """Starts a worker that looks at the table only when the bell rings, but for its first look."""
    monkeypatch.setattr(worker_module, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(worker_module, "POLL_LIMIT_SECONDS", 60.0)
    configure(RUNNER=EXTERNAL)
    made: list[Worker] = []

    def start() -> Worker:
        worker = Worker(1, "worker")
        worker.start()
        get_runner().answer(worker.ring)
        made.append(worker)
        return worker

    yield start
    for worker in made:
        worker.drain(5)


def is_woken(mcp_tools: Any, start: Callable[[], Worker], ready: Callable[[], bool]) -> bool:
    mcp_tools(name="quick")(lambda: "ok")
    start()
    assert soon(ready)
    time.sleep(0.5)  # it has looked, and waits
    began = time.monotonic()
    found = get_store().wait_for_completion(get_store().create_task("quick", {}).ref, 10)
    assert found is not None
    return time.monotonic() - began < 2


def test_a_worker_elsewhere_begins_at_once_over_a_layer(mcp_tools: Any, crossing: Broker, woken: Any) -> None:
    assert is_woken(mcp_tools, woken, lambda: crossing.members("mcp_tasks.queue") == 1)


@on_postgresql
def test_a_worker_elsewhere_begins_at_once_over_postgresql(mcp_tools: Any, close: Any, woken: Any) -> None:
    assert is_woken(mcp_tools, woken, lambda: True)


def test_an_idle_worker_does_next_to_nothing(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, crossing: Broker
) -> None:
    """
    A minute at ten times the speed: a look each five seconds, a report each fifteen, a sweep each ten, nothing else.
    """
    monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(worker_module, "POLL_LIMIT_SECONDS", 0.5)
    monkeypatch.setattr(presence, "REPORT_SECONDS", 1.5)
    configure(RUNNER=EXTERNAL, SWEEP_SECONDS=1)
    hours_are_counted()
    sweep(get_store())  # else the first one has more to do
    statements: defaultdict[str, list[str]] = defaultdict(list)

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        if not is_frame(sql):
            statements[threading.current_thread().name].append(sql)
        return execute(sql, *rest)

    worker = Worker(4, "worker")
    for module in (worker_module, presence, queue):
        monkeypatch.setattr(module, "get_store", lambda: Counted(get_store(), count))
    worker.start()
    get_runner().answer(worker.ring)
    time.sleep(6)
    worker.drain(5)
    assert soon(lambda: "mcp-tasks-sweep" not in {thread.name for thread in threading.enumerate()}), "a pass is whole"
    looks, reports, sweeps = (statements.pop(f"mcp-tasks-{name}") for name in ("claim", "report", "sweep"))
    assert 8 <= len(looks) <= 20
    assert all(sql.startswith("SELECT") for sql in looks)
    assert 1 <= len(reports) <= 8
    assert all("mcp_tasks_process" in sql for sql in reports)
    passes, rest = divmod(len(sweeps), IDLE_PASS)
    assert (4 <= passes <= 9, rest) == (True, 0), "\n".join(sweeps)
    assert not statements


class Counted:
    """A store whose statements are counted, on whichever thread it is called."""

    def __init__(self, store: Any, count: Any) -> None:
        self._store, self._count = store, count

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            with connections["default"].execute_wrapper(self._count):
                return getattr(self._store, name)(*args, **options)

        return call
