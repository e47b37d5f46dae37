"""The runner of sites with worker processes: what serves runs nothing, and sweeps."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks.models import Process, Task
from mcp_tasks.runners.base import get_runner
from mcp_tasks.store import get_store
from mcp_tasks.testing import run_until_idle

pytestmark = pytest.mark.django_db(transaction=True)

EXTERNAL = {"BACKEND": "mcp_tasks.runners.external.ExternalRunner"}


def test_a_process_that_serves_runs_nothing_and_sweeps(mcp_tools: Any, configure: Callable[..., None]) -> None:
    configure(RUNNER=EXTERNAL, SWEEP_SECONDS=1)
    mcp_tools(name="quick")(lambda: "ok")
    runner = get_runner()
    runner.ensure_started()
    runner.ensure_started()
    try:
        assert [thread.name for thread in threading.enumerate()].count("mcp-tasks-sweep") == 1
        created = get_store().create_task("quick", {})
        deadline = time.monotonic() + 10
        while not Process.objects.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [process.kind for process in Process.objects.all()] == ["janitor"]
        assert Task.objects.get(pk=created.ref).phase == "queued"
    finally:
        runner.drain(1)
    assert run_until_idle() == 1


def test_it_has_no_options(configure: Callable[..., None]) -> None:
    from django.core.exceptions import ImproperlyConfigured

    configure(RUNNER={**EXTERNAL, "OPTIONS": {"SLOTS": 4}})
    with pytest.raises(ImproperlyConfigured, match="SLOTS"):
        get_runner()
