"""The sites of the fault tests of runners: one for each runner, started on first use, and used by all its tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.runner_sites import KINDS, Site
from tests.support.runner_sites import site as start_site


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Site]]:
    """``sites("worker")``: the site of that runner, made with these settings when it is asked for first."""
    made: dict[str, Site] = {}
    with ExitStack() as stack:

        def find(kind: str, *, name: str | None = None, **settings: Any) -> Site:
            name = name or kind
            if name not in made:
                made[name] = stack.enter_context(start_site(kind, tmp_path_factory.mktemp(name), **settings))
            return made[name]

        yield find


def each(*kinds: str) -> Any:
    """The test runs once for each of these runners; all tests of one runner run in one process, after another."""
    return pytest.mark.parametrize(
        "kind", [pytest.param(kind, marks=pytest.mark.xdist_group(f"runner {kind}")) for kind in kinds or KINDS]
    )


@pytest.fixture
def site(kind: str, sites: Callable[..., Site]) -> Site:
    """The site of the runner that this test is about."""
    return sites(kind)
