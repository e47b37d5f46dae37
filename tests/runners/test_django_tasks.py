"""``DjangoTasksRunner`` in the test's own process: what it refuses, and what it hands over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured

from mcp_tasks import compat
from mcp_tasks.models import Task
from mcp_tasks.runners import job
from mcp_tasks.runners.base import get_runner
from mcp_tasks.store import get_store

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "mcp_tasks.runners.django_tasks.DjangoTasksRunner"
IMMEDIATE = f"{compat.django_tasks().__name__}.backends.immediate.ImmediateBackend"
DUMMY = f"{compat.django_tasks().__name__}.backends.dummy.DummyBackend"


@pytest.fixture
def use(settings: Any, configure: Callable[..., None]) -> Iterator[Callable[..., None]]:
    """``use({"jobs": DUMMY}, ALIAS="jobs")``: these backends, and these options of the runner."""

    def change(backends: dict[str, Any], **options: Any) -> None:
        settings.TASKS = {
            alias: backend if isinstance(backend, dict) else {"BACKEND": backend} for alias, backend in backends.items()
        }
        _forget(settings)
        configure(RUNNER={"BACKEND": PATH, "OPTIONS": options})

    yield change
    job._process.end()
    job._process.start_afresh()
    job._pool.end(wait_seconds=5)
    settings.TASKS = {"default": {"BACKEND": IMMEDIATE}}
    _forget(settings)


def _forget(settings: Any) -> None:
    """The backport does not hear of changed settings."""
    backends = compat.django_tasks().task_backends
    backends.__dict__.pop("settings", None)
    backends._settings = backends.settings = backends.configure_settings(settings.TASKS)
    for alias in list(settings.TASKS):
        if hasattr(backends._connections, alias):
            delattr(backends._connections, alias)


def test_what_is_queued_is_run_by_the_backend(use: Callable[..., None], mcp_tools: Any) -> None:
    use({"default": IMMEDIATE})
    mcp_tools(name="quick")(lambda: "ok")
    get_store().create_task("quick", {})
    get_runner().flush()
    assert Task.objects.get().status == "completed"


def test_a_message_is_the_ref_as_text_and_nothing_else(use: Callable[..., None]) -> None:
    use({"default": DUMMY, "jobs": {"BACKEND": DUMMY, "QUEUES": ["slow"]}}, ALIAS="jobs", QUEUE_NAME="slow")
    ref = get_store().create_task("secret", {"text": "secret"}).ref
    runner: Any = get_runner()
    runner.send(ref)  # on this thread, since each has a backend of its own, which remembers
    [result] = compat.django_tasks().task_backends["jobs"].results
    assert (list(result.args), result.kwargs) == ([str(ref)], {})
    assert (result.task.queue_name, result.task.module_path) == ("slow", "mcp_tasks.runners.django_tasks_job.run_leg")


@pytest.mark.parametrize(
    ("backends", "options", "says"),
    [
        ({"default": IMMEDIATE}, {"ALIAS": "jobs"}, "no alias 'jobs'; it has 'default'"),
        ({"default": {"BACKEND": IMMEDIATE, "QUEUES": ["a"]}}, {"QUEUE_NAME": "b"}, "b"),
        ({"default": "nowhere.Backend"}, {}, "nowhere"),
        ({"default": IMMEDIATE}, {"ALIAS": 3}, "ALIAS must be a string"),
        ({"default": IMMEDIATE}, {"QUEUE": "slow"}, "QUEUE"),
    ],
)
def test_a_wrong_setting_is_said_by_its_name(
    use: Callable[..., None], backends: dict[str, Any], options: dict[str, Any], says: str
) -> None:
    use(backends, **options)
    with pytest.raises(ImproperlyConfigured, match=says):
        get_runner()
    assert "mcp_tasks.E002" in [found.id for found in run_checks(tags=["mcp_tasks"])]


def test_without_django_tasks_it_says_what_to_install(
    use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise ImportError

    use({"default": IMMEDIATE})
    with monkeypatch.context() as patch, pytest.raises(ImproperlyConfigured, match=r"mcp-tasks\[django-tasks\]"):
        patch.setattr(compat, "django_tasks", missing)
        get_runner()
