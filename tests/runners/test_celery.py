"""``CeleryRunner`` in the test's own process: what it refuses, and what it hands over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, current_app
from celery._state import set_default_app
from django.core.exceptions import ImproperlyConfigured

from mcp_tasks.models import Task
from mcp_tasks.runners import job
from mcp_tasks.runners.base import get_runner
from mcp_tasks.runners.celery import JOB
from mcp_tasks.store import get_store

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "mcp_tasks.runners.celery.CeleryRunner"
APP = f"{__name__}.app"

app = Celery("tests", broker="memory://", set_as_current=False)
no_app = object()


@pytest.fixture
def use(configure: Callable[..., None]) -> Iterator[Callable[..., None]]:
    """``use(APP=…, QUEUE=…)``."""
    yield lambda **options: configure(RUNNER={"BACKEND": PATH, "OPTIONS": options})
    app.conf.task_always_eager = False
    job._process.end()
    job._process.start_afresh()
    job._pool.end(wait_seconds=5)


def test_what_is_queued_is_run_by_the_app(use: Callable[..., None], mcp_tools: Any) -> None:
    app.conf.task_always_eager = True
    use(APP=APP)
    mcp_tools(name="quick")(lambda: "ok")
    get_store().create_task("quick", {})
    get_runner().flush()
    assert Task.objects.get().status == "completed"


def test_a_message_is_the_ref_as_text_and_nothing_else(use: Callable[..., None]) -> None:
    use(APP=APP, QUEUE="slow")
    ref = get_store().create_task("secret", {"text": "secret"}).ref
    get_runner().flush()
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("slow").get(timeout=5)
    message.ack()
    assert message.payload[:2] == [[str(ref)], {}]
    assert message.headers["task"] == JOB
    assert "secret" not in repr((message.payload, message.headers))


@pytest.fixture
def default_app() -> Iterator[Callable[[Any], None]]:
    """Sets the app that a project has loaded."""
    before = current_app._get_current_object()
    yield set_default_app
    set_default_app(before)


def test_the_app_that_the_project_has_loaded_is_the_default(
    use: Callable[..., None], default_app: Callable[[Any], None]
) -> None:
    default_app(app)
    use()
    runner: Any = get_runner()
    assert runner._app is app


def test_a_project_that_has_loaded_no_app_is_told_to_name_it(
    use: Callable[..., None], default_app: Callable[[Any], None]
) -> None:
    default_app(None)
    use()
    with pytest.raises(ImproperlyConfigured, match="name yours in APP"):
        get_runner()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"APP": f"{__name__}.no_app"}, "no Celery app"),
        ({"APP": "nowhere.app"}, "nowhere"),
        ({"APP": 3}, "APP must be a string"),
        ({"QUEUE": 3}, "QUEUE must be a string"),
        ({"BROKER": "redis://"}, "BROKER"),
    ],
)
def test_a_wrong_setting_is_said_by_its_name(use: Callable[..., None], options: dict[str, Any], says: str) -> None:
    use(**options)
    with pytest.raises(ImproperlyConfigured, match=says):
        get_runner()


def test_a_long_leg_is_not_taken_for_a_lost_one_by_the_broker() -> None:
    """Acknowledged when it begins, whatever the project's default is."""
    assert (app.tasks[JOB].acks_late, app.tasks[JOB].ignore_result) == (False, True)
