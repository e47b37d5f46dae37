"""Brokers that are away and messages that come twice: the table is the queue, so neither loses or doubles a task."""

import time
from collections.abc import Callable

import pytest

from tests.faults.databases import READ_COMMITTED, kinds, recommended
from tests.support.push_needs import Redis
from tests.support.runner_sites import (
    CELERY_RABBITMQ,
    CELERY_REDIS,
    DJANGO_TASKS,
    KINDS,
    WORKER,
    Site,
    ref_in,
    text_of,
    until,
)

from .conftest import each

pytestmark = pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite")

#: How long a client waits for its task to be acknowledged while the broker is away, on a busy machine.
AT_ONCE = 3.0
#: An outbox tries each ten seconds at last, a worker of Celery takes some for its own connection.
BACK = 30.0
#: A worker that rests looks 4.8 and 8.1 seconds after its last leg: what begins within a second of this was rung for.
RESTED = 5.7


@each(*KINDS)
def test_a_message_that_comes_twice_is_one_run(site: Site) -> None:
    site.alive()
    task_id = site.running("charge", text="once", seconds=1.5)
    _ring_again(site, task_id)
    assert text_of(site.end_of(task_id)) == "once"
    _ring_again(site, task_id)  # nor for one that is over
    after = site.call("slow_echo", text="after", seconds=0.01)
    assert text_of(site.end_of(after)) == "after"
    assert site.events(task_id).count("claimed") == 1
    assert (site.row(task_id)["attempts"], site.outcomes(task_id)) == (1, ["completed"])


def _ring_again(site: Site, task_id: str) -> None:
    assert site.ringers
    for client in site.ringers:
        client.call_tool("ring_again", {"ref": str(ref_in(task_id)), "times": 4})


@each(WORKER)
def test_a_worker_that_rests_is_woken_at_once(sites: Callable[..., Site], kind: str) -> None:
    woken_by = {"layer": sites(kind)}
    if recommended() == READ_COMMITTED:
        woken_by["LISTEN"] = sites(kind, name="worker-alone", has_layer=False)
    for site in woken_by.values():
        site.alive(1)
        site.end_of(site.call("slow_echo", text="now it rests", seconds=0.01))
    for _ in range(3):  # the best of them counts, since the machine may be busy
        time.sleep(RESTED)
        took = {name: _begins_after(site) for name, site in woken_by.items()}
        woken_by = {name: site for name, site in woken_by.items() if took[name] >= 1.0}
        if not woken_by:
            break
    assert not woken_by, took


def _begins_after(site: Site) -> float:
    began = time.monotonic()
    task_id = site.call("slow_echo", text="wake up", seconds=0.01)
    until(lambda: "claimed" in site.events(task_id))
    took = time.monotonic() - began
    site.end_of(task_id)
    return took


@each(WORKER, CELERY_REDIS, CELERY_RABBITMQ)
def test_a_broker_that_is_away_neither_delays_nor_loses_a_task(site: Site) -> None:
    site.alive()
    assert text_of(site.end_of(site.call("slow_echo", text="before", seconds=0.01))) == "before"
    with site.broker_away():
        began = time.monotonic()
        task_ids = [site.call("slow_echo", text=str(n), seconds=0.01) for n in range(5)]
        assert time.monotonic() - began < AT_ONCE
        time.sleep(1.0)
    began = time.monotonic()
    assert [text_of(site.end_of(task_id, BACK)) for task_id in task_ids] == ["0", "1", "2", "3", "4"]
    print(f"{site.kind}: tasks ran {time.monotonic() - began:.1f} s after the broker was back")
    for task_id in task_ids:
        assert (site.row(task_id)["attempts"], site.outcomes(task_id)) == (1, ["completed"])
    assert all(worker.is_alive for worker in site.workers)


@each(CELERY_REDIS, CELERY_RABBITMQ)
def test_a_task_whose_message_ended_with_its_server_is_sent_again_when_it_is_due(site: Site) -> None:
    site.alive()
    with site.broker_away():
        task_id = site.call("charge", text="never sent", seconds=0.01)
        site.end_servers()
    site.serve()
    _runs_only_when_it_is_due(site, task_id, "never sent")


@each(CELERY_REDIS)
def test_a_task_whose_message_the_broker_forgot_is_sent_again_when_it_is_due(site: Site) -> None:
    site.stop_workers()
    broker = site.broker
    assert isinstance(broker, Redis)
    broker.ask("DEL", "faults")
    task_id = site.call("charge", text="forgotten", seconds=0.01)
    until(lambda: broker.ask("LLEN", "faults") == 1)
    broker.stop()
    broker.start()
    assert broker.ask("LLEN", "faults") == 0
    site.alive()
    _runs_only_when_it_is_due(site, task_id, "forgotten")


@each(DJANGO_TASKS)
def test_a_task_whose_message_was_deleted_is_sent_again_when_it_is_due(site: Site) -> None:
    site.stop_workers()
    unsent = "SELECT id FROM django_tasks_database_dbtaskresult WHERE status = 'READY'"
    site.made.execute("DELETE FROM django_tasks_database_dbtaskresult")
    task_id = site.call("charge", text="deleted", seconds=0.01)
    until(lambda: len(site.made.query(unsent)) == 1)
    site.made.execute("DELETE FROM django_tasks_database_dbtaskresult")
    site.alive()
    _runs_only_when_it_is_due(site, task_id, "deleted")


def _runs_only_when_it_is_due(site: Site, task_id: str, text: str) -> None:
    """Its first message was lost indeed, and the sweep sends the second one; it need not be waited for a minute."""
    time.sleep(1.0)
    assert site.row(task_id)["phase"] == "queued"
    site.make_due(task_id)
    assert text_of(site.end_of(task_id, BACK)) == text
    assert site.events(task_id).count("claimed") == 1
    assert (site.row(task_id)["attempts"], site.outcomes(task_id)) == (1, ["completed"])


@each(WORKER)
def test_worker_processes_need_no_broker_at_all(site: Site) -> None:
    site.alive()
    with site.broker_away():
        task_id = site.call("slow_echo", text="found by looking", seconds=0.01)
        assert text_of(site.end_of(task_id, 15)) == "found by looking"
