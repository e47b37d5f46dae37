"""Tasks run as jobs of Celery, in the workers that a project has already."""

from typing import Any
from uuid import UUID

from celery import Celery, current_app, shared_task
from celery.signals import worker_shutting_down

from .. import conf
from .elsewhere import EngineRunner
from .job import run_job, stop

#: The name of the job, for routes and rate limits of the project.
JOB = "mcp_tasks.run_leg"


# Acknowledged when it begins: a leg may run longer than brokers wait for an acknowledgement, and one that is lost is
# found by its lease. So a worker that dies costs no second message, and a long leg none either.
@shared_task(name=JOB, acks_late=False, ignore_result=True, max_retries=0)  # type: ignore[untyped-decorator]
def run_leg(ref: str) -> None:
    """Run what is queued; ``ref`` is the task whose message this is."""
    run_job(UUID(ref))


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop(**_: Any) -> None:
    """Reaches legs that run on threads of the worker; those of the default pool have processes that hear of nothing."""
    stop()


class CeleryRunner(EngineRunner):
    """
    ``APP`` is the dotted path of the Celery app, by default the one that the project has loaded; ``QUEUE`` the queue,
    by default the app's own.

    Raises ValueError where there is no app.
    """

    engine = "Celery"

    def __init__(self, *, APP: str | None = None, QUEUE: str | None = None) -> None:  # noqa: N803 - as in the settings
        for name, value in (("APP", APP), ("QUEUE", QUEUE)):
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name} must be a string")
        self._app = _app(APP)
        self._options = {} if QUEUE is None else {"queue": QUEUE}
        super().__init__()

    def send(self, ref: UUID) -> None:
        # One more try at once: the connection of a broker that was restarted is found to be dead only when it is used.
        policy = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
        self._app.tasks[JOB].apply_async((str(ref),), retry=True, retry_policy=policy, **self._options)


def _app(path: str | None) -> Any:
    if path is None:
        app = current_app._get_current_object()
        if app.main == "default":  # what Celery makes up where nobody has made one
            raise ValueError("no Celery app is loaded: name yours in APP, for instance 'mysite.celery.app'")
        return app
    app = conf.load(path)
    if not isinstance(app, Celery):
        raise ValueError(f"{path} is no Celery app")
    return app
