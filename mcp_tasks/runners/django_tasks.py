"""Tasks run as jobs of ``django.tasks`` (Django 6), or of its backport ``django-tasks``: any backend with workers."""

from typing import Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured

from .. import compat
from .elsewhere import EngineRunner


class DjangoTasksRunner(EngineRunner):
    """
    ``ALIAS`` names the backend in ``TASKS``, ``QUEUE_NAME`` the queue.

    Raises ValueError for an alias or a queue that is not there, and where no ``django.tasks`` is installed.
    """

    engine = "django.tasks"

    def __init__(self, *, ALIAS: str = "default", QUEUE_NAME: str = "default") -> None:  # noqa: N803 - as in the settings
        for name, value in (("ALIAS", ALIAS), ("QUEUE_NAME", QUEUE_NAME)):
            if not isinstance(value, str):
                raise ValueError(f"{name} must be a string")
        try:
            backends = compat.django_tasks().task_backends
        except ImportError:
            raise ValueError("django.tasks needs Django 6, or django-mcp-tasks[django-tasks]") from None
        if ALIAS not in backends.settings:
            raise ValueError(
                f"TASKS has no alias {ALIAS!r}; it has {', '.join(map(repr, backends.settings)) or 'none'}"
            )
        self._job = _job(ALIAS, QUEUE_NAME)
        super().__init__()

    def send(self, ref: UUID) -> None:
        self._job.enqueue(str(ref))


def _job(alias: str, queue: str) -> Any:
    try:
        from .django_tasks_job import run_leg

        return run_leg.using(backend=alias, queue_name=queue)
    except ImproperlyConfigured as problem:
        raise ValueError(str(problem)) from problem
    except Exception as problem:  # each version has exceptions of its own for a task that its backend refuses
        raise ValueError(f"TASKS[{alias!r}] refuses the job: {problem}") from problem
