"""Worker processes are killed, frozen and told to stop in the middle of legs, whichever runner they belong to."""

import os
import signal
import time

import pytest

from tests.faults.databases import kinds
from tests.support.runner_sites import (
    CELERY_RABBITMQ,
    CELERY_REDIS,
    DRAIN,
    EMBEDDED,
    GRACE,
    RECOVERY,
    WORKER,
    Site,
    text_of,
    until,
)

from .conftest import each

pytestmark = pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite")

#: What a busy machine takes beyond the lease and the sweep to find a loss.
FINDING = 2.5
#: What it takes to begin again, an engine's own delay included.
SLACK = 4.0
#: What a process takes to end, once it waits for nothing.
ENDING = 4.0


@each()
def test_what_a_killed_process_ran_runs_again_or_fails_within_lease_and_sweep(site: Site) -> None:
    site.alive()
    again = site.running("stubborn", seconds=60, seconds_again=0.05)
    once = site.running("charge", text="once", seconds=60)
    pids = {site.holder(task_id)[1] for task_id in (again, once)}
    killed_at = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for worker in site.workers:
        if worker.process.pid in pids:
            worker.process.wait()
    site.alive()  # at once, as whatever keeps processes running does it
    until(lambda: "leg_lost" in site.events(again) and "failed" in site.events(once), RECOVERY + FINDING)
    for task_id, kind in ((again, "leg_lost"), (once, "failed")):
        assert site.happened_at(task_id, kind) - killed_at < RECOVERY + FINDING
    until(lambda: site.row(again)["leg"] == 2, SLACK)
    took = site.happened_at(again, "claimed") - killed_at
    print(f"{site.kind}: what was lost ran again {took:.1f} s after the kill")
    task = site.end_of(again)
    assert text_of(task) == "done on leg 2"
    assert (site.row(again)["attempts"], site.outcomes(again)) == (2, ["completed"])
    failed = site.end_of(once)
    assert (failed["status"], failed["error"]["code"]) == ("failed", -32603)
    assert (site.row(once)["attempts"], site.outcomes(once)) == (1, ["failed"])


@each()
def test_no_task_and_no_answer_is_lost_when_every_worker_is_killed(site: Site) -> None:
    site.alive()
    survey = site.call("survey")
    first = {"action": "accept", "content": {"value": "kept"}}
    until(lambda: "first" in site.client.get_task(survey).get("inputRequests", {}))
    busy = [site.running("stubborn", seconds=60, seconds_again=0.05) for _ in range(2)]
    queued = [site.call("slow_echo", text=str(n), seconds=0.01) for n in range(4)]
    for worker in site.workers:
        worker.kill()
    site.client.update_task(survey, {"first": first})  # acknowledged while nobody works
    site.alive()
    for task_id in busy:
        assert text_of(site.end_of(task_id)) == "done on leg 2"
        assert site.row(task_id)["attempts"] == 2
    assert [text_of(site.end_of(task_id)) for task_id in queued] == ["0", "1", "2", "3"]
    until(lambda: "second" in site.client.get_task(survey).get("inputRequests", {}))
    site.client.update_task(survey, {"second": {**first, "content": {"value": "too"}}})
    assert text_of(site.end_of(survey)) == "kept too"
    for task_id in (*busy, *queued, survey):
        assert site.outcomes(task_id) == ["completed"]


@each()
def test_a_frozen_worker_is_replaced_and_what_it_says_later_is_refused(site: Site) -> None:
    site.alive()
    task_id = site.at_work("stubborn", seconds=6, seconds_again=2)
    frozen, pid = site.holder(task_id)
    with site.made.frozen(frozen.signal_all):
        # How soon is the first test's subject; here a worker that rests may look in its own time.
        until(lambda: site.row(task_id)["leg"] == 2, 25, lambda: site.history(task_id))
    until(lambda: "late_result" in site.events(task_id))
    assert text_of(site.end_of(task_id)) == "done on leg 2"
    assert (site.row(task_id)["leg"], site.outcomes(task_id)) == (2, ["completed"])
    assert frozen.is_alive, frozen.log.read_text()[-2000:]
    assert frozen.has(pid), frozen.log.read_text()[-2000:]


@each()
def test_a_task_that_kills_its_process_is_tried_three_times_and_no_more(site: Site) -> None:
    site.alive()
    with site.supervised():
        task_id = site.call("deadly")
        for number in (1, 2, 3):
            until(lambda number=number: site.events(task_id).count("claimed") == number)  # type: ignore[misc]
            site.make_due(task_id)  # its lease need not be waited for each time
        task = site.end_of(task_id, RECOVERY + SLACK)
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)
        healthy = site.call("slow_echo", text="still there", seconds=0.01)
        assert text_of(site.end_of(healthy)) == "still there"
    assert site.events(task_id).count("claimed") == 3
    assert (site.row(task_id)["attempts"], site.outcomes(task_id)) == (3, ["failed"])


@each()
def test_a_worker_that_is_told_to_stop_stops_whatever_its_handler_does(site: Site) -> None:
    site.stop_workers()
    worker = site.start(*(("--drain-seconds", str(DRAIN)) if site.kind == WORKER else ()))
    # Of ours the time is bounded; the others wait, so that its result counts.
    is_bounded = site.kind in (EMBEDDED, WORKER)
    deaf = site.at_work("stubborn", seconds=60 if is_bounded else 3, seconds_again=0.05)
    worker.tell(signal.SIGTERM)
    status = worker.ended(DRAIN + ENDING if is_bounded else 20)
    assert status == {WORKER: 3, EMBEDDED: -signal.SIGTERM}.get(site.kind, 0)
    site.alive()
    assert text_of(site.end_of(deaf)) == f"done on leg {2 if is_bounded else 1}"
    assert site.outcomes(deaf) == ["completed"]


@each(WORKER)
def test_a_worker_that_is_told_to_stop_does_not_wait_for_a_thread_that_was_given_up(site: Site) -> None:
    site.stop_workers()
    worker = site.start("--drain-seconds", str(DRAIN), slots=1)
    try:
        endless = site.at_work("threaded", seconds=600, step_seconds=600)
        site.client.cancel_task(endless)
        waiting = site.call("slow_echo", text="there is room", seconds=0.01)
        assert text_of(site.end_of(waiting, GRACE + 15)) == "there is room"  # so it was given up
        worker.tell(signal.SIGTERM)
        assert worker.ended(DRAIN + ENDING) in (0, 1)
    finally:
        site.stop_workers()


@each()
def test_what_stops_when_it_is_told_to_is_another_workers_at_once(site: Site) -> None:
    if site.kind == CELERY_REDIS:
        site.stop_workers()
        for _ in range(2):
            site.start("--pool", "threads")
    site.alive()
    task_id = site.running("patient", seconds=60)
    worker, _ = site.holder(task_id)
    if site.kind == CELERY_RABBITMQ:  # of the default pool it is its processes that run legs
        worker.signal_all(signal.SIGTERM)
    else:
        worker.tell(signal.SIGTERM)
    worker.ended(20)
    until(lambda: site.row(task_id)["leg"] == 2, 8)
    row = site.row(task_id)
    assert (row["phase"], row["attempts"]) == ("running", 1)
    assert "leg_lost" not in site.events(task_id)
    site.client.cancel_task(task_id)
    assert site.outcomes(task_id) == ["cancelled"]
    site.stop_workers()


@each(WORKER)
def test_a_second_signal_ends_a_worker_at_once(site: Site) -> None:
    site.stop_workers()
    worker = site.start("--drain-seconds", "60")
    task_id = site.at_work("stubborn", seconds=30)
    worker.tell(signal.SIGTERM)
    time.sleep(0.5)
    assert worker.is_alive
    worker.tell(signal.SIGTERM)
    assert worker.ended(5) == -signal.SIGTERM
    site.client.cancel_task(task_id)
