"""Tasks run in worker processes: ``manage.py run_task_worker``."""

from collections.abc import Callable
from uuid import UUID

from . import bell
from .elsewhere import ElsewhereRunner


class ExternalRunner(ElsewhereRunner):
    """What is queued rings the bell of the worker processes."""

    def enqueue(self, ref: UUID) -> None:
        bell.ring()

    def answer(self, rang: Callable[[], None]) -> None:
        bell.answer(rang)

    def flush(self) -> None:
        bell.flush()
