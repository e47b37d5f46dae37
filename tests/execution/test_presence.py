"""A process goes on to say that it is alive, and what it does, for as long as it lives."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from mcp_tasks.dbtime import current
from mcp_tasks.execution import presence as presence_module
from mcp_tasks.execution import running
from mcp_tasks.execution.presence import Presence
from mcp_tasks.execution.running import RunningLeg
from mcp_tasks.models import Process
from mcp_tasks.store import processes
from mcp_tasks.store.processes import ALIVE_SECONDS, WORKER, own_name
from mcp_tasks.tools.cancellation import CancellationToken
from tests.support.push import soon

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def presence(monkeypatch: pytest.MonkeyPatch) -> Iterator[Presence]:
    """The reports of this process, twenty a second."""
    monkeypatch.setattr(presence_module, "REPORT_SECONDS", 0.05)
    reports = Presence(WORKER, lambda: 3)
    reports.begin()
    yield reports
    reports.leave(5)


def alive() -> list[tuple[str, int]]:
    """Who was heard of lately, and how many of its slots are busy."""
    return [(process.name, process.busy) for process in processes.alive(ALIVE_SECONDS)]


def rewind_reports() -> None:
    """As if nobody had been heard of for an hour; what is seen afterwards was reported afterwards."""
    Process.objects.update(seen_at=current("default") - timedelta(hours=1))


def test_who_lives_is_heard_of_again_and_again_with_what_it_does_by_then(presence: Presence) -> None:
    leg = RunningLeg(uuid4(), 1, CancellationToken())
    assert soon(lambda: alive() == [(own_name(), 0)])
    running.add(leg)
    try:
        rewind_reports()
        assert soon(lambda: alive() == [(own_name(), 1)])
    finally:
        running.remove(leg)
    rewind_reports()
    assert soon(lambda: alive() == [(own_name(), 0)])


def test_a_report_that_fails_is_not_the_last(presence: Presence, caplog: pytest.LogCaptureFixture) -> None:
    slots = iter([ConnectionError("away")])

    def fail_once() -> int:
        for problem in slots:
            raise problem
        return 5

    assert soon(lambda: alive() == [(own_name(), 0)])
    presence._slots = fail_once
    assert soon(lambda: Process.objects.get().slots == 5)
    assert [record.event for record in caplog.records if hasattr(record, "event")] == ["report_failed"]


def test_who_ends_in_good_order_takes_its_row_along(presence: Presence) -> None:
    assert soon(lambda: alive() == [(own_name(), 0)])
    presence.leave(5)
    assert not Process.objects.exists()
