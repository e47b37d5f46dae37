"""
Races between real processes: whatever meets on one row, one history comes out that the state machine knows.

HAMMER_STRENGTH multiplies the repetitions; 1 stands for those of the table of races.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .databases import database, kinds
from .hammer import Hammer
from .histories import Race
from .janitor_races import JANITOR_RACES, NAIVE
from .races import RACES, SETTINGS

STRENGTH = float(os.environ.get("HAMMER_STRENGTH", "0.1"))
#: Each kind of database stays with one process of the suite, so that its hammer is started once.
KINDS = [pytest.param(kind, id=kind, marks=pytest.mark.xdist_group(f"hammer {kind}")) for kind in kinds()]

Hammers = Callable[[str], Hammer]


@pytest.fixture(scope="session")
def hammers(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Hammers]:
    """The hammer for a kind of database, started at its first use."""
    import json

    started: dict[str, Hammer] = {}
    with ExitStack() as stack:

        def hammer(kind: str) -> Hammer:
            if kind not in started:
                name = f"hammer_{len(started)}_{worker_id}"
                made = stack.enter_context(database(kind, name, tmp_path_factory.mktemp("hammer")))
                environment = {**made.environment, "FAULTS_MCP_TASKS": json.dumps(SETTINGS)}
                started[kind] = stack.enter_context(Hammer(environment))
            return started[kind]

        yield hammer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("race", [*RACES.values(), *JANITOR_RACES.values()], ids=lambda race: race.name)
def test_every_race_has_one_of_its_known_histories(race: Race, kind: str, hammers: Hammers) -> None:
    report = hammers(kind).run(race, math.ceil(race.times * STRENGTH))
    assert report.violations == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_without_guard_is_caught_by_the_hammer(kind: str, hammers: Hammers) -> None:
    # That two meet is chance, so there are several tries.
    for _ in range(NAIVE.times // NAIVE.batch):
        report = hammers(kind).run(NAIVE, NAIVE.batch)
        if any("'cancelled', 'ok'" in violation for violation in report.violations):
            return  # both were told that theirs was the outcome
    pytest.fail(f"the hammer saw nothing, or not this: {report.violations}")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_change_is_right_where_nobody_meets_anybody(kind: str, hammers: Hammers) -> None:
    report = hammers(kind).run(NAIVE, 10, together=False)
    assert report.violations == []
