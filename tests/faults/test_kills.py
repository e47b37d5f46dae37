"""A server that is killed under load: what it acknowledged is kept."""

from pathlib import Path

import pytest

from tests.faults.databases import READ_COMMITTED, kinds, recommended
from tests.faults.kill_server import Timeline, run, why_broken
from tests.faults.load import Promise

#: What the server says of a task whose process was lost.
LOST = {"status": "failed", "error": {"code": -32603, "message": "Lost"}, "statusMessage": "Lost"}


@pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite")
@pytest.mark.xdist_group("kills")
def test_nothing_that_was_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    kind = "postgresql" if recommended() == READ_COMMITTED else "sqlite"
    broken, report = run(3, kind, tmp_path)
    assert broken == [], report
    assert report[0] == "kills: 3"
    assert int(report[1].split(": ")[1]) > 5, "the load did nothing, so nothing was shown"


@pytest.mark.parametrize(
    ("tried", "max_attempts", "is_right"),
    [
        ("created claimed leg_lost claimed leg_lost claimed failed", 3, True),
        ("created claimed leg_lost claimed failed", 3, False),
        ("created claimed asked answered claimed leg_lost claimed leg_lost claimed failed", 3, True),
        ("created claimed leg_lost claimed asked answered claimed leg_lost claimed failed", 3, False),
        ("created claimed leg_lost claimed leg_lost claimed leg_lost claimed failed", 3, False),
        ("created failed", 3, False),
        ("created claimed failed", 1, True),
        ("created failed", 1, False),
    ],
)
def test_a_lost_task_broke_a_promise_unless_it_was_tried_as_often_as_it_may_since_it_last_asked(
    tried: str, max_attempts: int, is_right: bool
) -> None:
    why = why_broken(
        Promise("id", "charge" if max_attempts == 1 else "survey"), LOST, Timeline(max_attempts, tried.split())
    )
    assert (why is None) is is_right
