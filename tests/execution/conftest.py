"""Workers in the test's own process, and handlers that end when the test does."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcp_tasks.execution.worker import Worker


@pytest.fixture
def worker() -> Iterator[Callable[..., Worker]]:
    """Makes started workers, and drains them at the end so that no thread outlives the test."""
    made: list[Worker] = []

    def make(slots: int, **options: Any) -> Worker:
        worker = Worker(slots, **options)
        worker.start()
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.drain(5.0)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Ends the deaf handlers of a test."""
    event = threading.Event()
    yield event
    event.set()
    time.sleep(0.05)
