"""A server that is killed under load: what it acknowledged is kept."""

from pathlib import Path

import pytest

from tests.faults.databases import READ_COMMITTED, kinds, recommended
from tests.faults.kill_server import run

pytestmark = [
    pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite"),
    pytest.mark.xdist_group("processes"),
]


def test_nothing_that_was_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    kind = "postgresql" if recommended() == READ_COMMITTED else "sqlite"
    broken, report = run(3, kind, tmp_path)
    assert broken == [], report
    assert report[0] == "kills: 3"
    assert int(report[1].split(": ")[1]) > 5, "the load did nothing, so nothing was shown"
