"""The job of ``DjangoTasksRunner``: workers of django-tasks find it by its path, and nobody else imports it."""

from typing import Any
from uuid import UUID

from .. import compat, conf
from .job import run_job


def _home() -> dict[str, Any]:
    """Where it is queued, said at once: one that names a backend which is not there cannot even be defined."""
    options = conf.get_settings().RUNNER.OPTIONS
    return {"backend": options.get("ALIAS", "default"), "queue_name": options.get("QUEUE_NAME", "default")}


@compat.django_tasks().task(**_home())  # type: ignore[untyped-decorator]
def run_leg(ref: str) -> None:
    """Run what is queued; ``ref`` is the task whose message this is."""
    run_job(UUID(ref))
