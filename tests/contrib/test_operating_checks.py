"""System checks of what runs, counts and waits: each id fires for what it is about, and for nothing else."""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core import checks as django_checks
from django.db import OperationalError, connection

from mcp_tasks import checks
from mcp_tasks.models import Process
from mcp_tasks.runners.base import Runner
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.processes import JANITOR, WORKER, janitor_name, report
from mcp_tasks.testing import rewind

store = DatabaseTaskStore()
Ids = Callable[..., list[str]]


class Bridge(Runner):
    """Stands for a runner over django-tasks."""

    def enqueue(self, ref: object) -> None: ...


django_tasks = Bridge  # so that its path names what it is a bridge to


def ids(check: Callable[..., Any], **options: Any) -> list[str]:
    found = list(check(None, **options))
    assert all(message.msg.endswith(".") and message.hint for message in found)
    return [message.id.removeprefix("mcp_tasks.") for message in found]


def test_every_check_is_registered() -> None:
    ordinary = {check.__name__ for check in django_checks.registry.registry.registered_checks}
    deployment = {check.__name__ for check in django_checks.registry.registry.deployment_checks}
    assert {"check_surroundings", "check_database"} <= ordinary
    assert "check_cookies" in deployment


def test_the_project_of_the_tests_is_fine() -> None:
    assert ids(checks.check_surroundings) == []


def test_wrong_settings_are_said_by_another_check(settings: Any) -> None:
    settings.MCP_TASKS = {"NO_SUCH": 1}
    settings.USE_TZ = False
    assert ids(checks.check_surroundings) == []
    assert ids(checks.check_database, databases=["default"]) == []


# -- W002 -----------------------------------------------------------------------------------------------------------

IN_MEMORY, OVER_REDIS = "channels.layers.InMemoryChannelLayer", "channels_redis.pubsub.RedisPubSubChannelLayer"
EXTERNAL = "mcp_tasks.runners.external.ExternalRunner"


@pytest.mark.parametrize(
    ("runner", "layer", "expected"),
    [
        (EXTERNAL, IN_MEMORY, ["W002"]),
        (EXTERNAL, OVER_REDIS, []),
        (EXTERNAL, None, []),
        ("mcp_tasks.runners.embedded.EmbeddedRunner", IN_MEMORY, []),
        ("nowhere.Runner", IN_MEMORY, []),
    ],
)
def test_w002_workers_that_a_layer_does_not_reach(
    configure: Any, settings: Any, runner: str, layer: str | None, expected: list[str]
) -> None:
    configure(RUNNER={"BACKEND": runner})
    settings.CHANNEL_LAYERS = {} if layer is None else {"default": {"BACKEND": layer}}
    assert ids(checks.check_surroundings) == expected


# -- W003, W004 -----------------------------------------------------------------------------------------------------

DUMMY = "django.tasks.backends.dummy.DummyBackend"
IMMEDIATE = "django_tasks.backends.immediate.ImmediateBackend"
RQ = "django_tasks_rq.backend.RQBackend"
DATABASE = "django_tasks_db.DatabaseBackend"


@pytest.fixture
def bridged(configure: Any) -> None:
    configure(RUNNER={"BACKEND": f"{__name__}.django_tasks"})


@pytest.mark.usefixtures("bridged")
@pytest.mark.parametrize(("backend", "expected"), [(DUMMY, ["W003"]), (IMMEDIATE, ["W003"]), (DATABASE, []), (RQ, [])])
def test_w003_an_engine_that_runs_nothing(settings: Any, backend: str, expected: list[str]) -> None:
    settings.TASKS = {"default": {"BACKEND": backend}}
    assert ids(checks.check_surroundings) == expected


@pytest.mark.usefixtures("bridged")
def test_w003_an_engine_that_nobody_chose(settings: Any) -> None:
    del settings.TASKS
    assert ids(checks.check_surroundings) == ["W003"]


def test_w003_only_the_backend_that_is_used_counts(configure: Any, settings: Any) -> None:
    configure(RUNNER={"BACKEND": f"{__name__}.django_tasks", "OPTIONS": {"ALIAS": "jobs"}})
    settings.TASKS = {"default": {"BACKEND": DUMMY}, "jobs": {"BACKEND": DATABASE}}
    assert ids(checks.check_surroundings) == []


def test_w003_an_engine_that_is_not_ours(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": DUMMY}}
    assert ids(checks.check_surroundings) == []


@pytest.mark.usefixtures("bridged")
@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ({}, ["W004"]),
        ({"DEFAULT_TIMEOUT": 360}, ["W004"]),
        ({"DEFAULT_TIMEOUT": -1}, []),
        ({"DEFAULT_TIMEOUT": 604_800}, []),
    ],
)
def test_w004_jobs_that_end_before_their_tasks(settings: Any, queue: dict[str, int], expected: list[str]) -> None:
    settings.TASKS = {"default": {"BACKEND": RQ}}
    settings.RQ_QUEUES = {"default": queue}
    assert ids(checks.check_surroundings) == expected


# -- W005, W009 -----------------------------------------------------------------------------------------------------


def test_w005_times_without_an_offset(settings: Any) -> None:
    settings.USE_TZ = False
    assert ids(checks.check_surroundings) == ["W005"]


@pytest.fixture
def counting(settings: Any) -> Iterator[None]:
    from mcp_tasks import observing

    before = observing._observers
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "mcp_tasks.contrib.prometheus"]
    yield
    observing._observers = before


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, []),
        ({"WEB_CONCURRENCY": "1"}, []),
        ({"WEB_CONCURRENCY": "many"}, []),
        ({"WEB_CONCURRENCY": "4"}, ["W009"]),
        ({"GUNICORN_CMD_ARGS": "--workers=3"}, ["W009"]),
        ({"GUNICORN_CMD_ARGS": "-b :80 -w 2"}, ["W009"]),
        ({"GUNICORN_CMD_ARGS": "-w 1"}, []),
        ({"WEB_CONCURRENCY": "4", "PROMETHEUS_MULTIPROC_DIR": "/run/metrics"}, []),
    ],
)
def test_w009_several_processes_that_share_no_counters(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: list[str]
) -> None:
    for name in ("WEB_CONCURRENCY", "GUNICORN_CMD_ARGS", "PROMETHEUS_MULTIPROC_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ids(checks.check_surroundings) == expected


def test_w009_nobody_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    assert ids(checks.check_surroundings) == []


# -- I001, I002 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "handler", "propagate", "expected"),
    [
        (logging.DEBUG, logging.DEBUG, False, ["I001"]),
        (logging.DEBUG, logging.NOTSET, False, ["I001"]),
        (logging.DEBUG, logging.INFO, False, []),
        (logging.INFO, logging.DEBUG, False, []),
        (logging.DEBUG, None, False, []),
    ],
)
def test_i001_every_call_is_logged(level: int, handler: int | None, propagate: bool, expected: list[str]) -> None:
    logger = logging.getLogger("mcp_tasks.rpc")
    before = (logger.level, logger.propagate, list(logger.handlers))
    try:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers = [logging.NullHandler()]
        if handler is not None:
            logger.handlers.append(logging.StreamHandler())
            logger.handlers[-1].setLevel(handler)
        assert ids(checks.check_surroundings) == expected
    finally:
        logger.level, logger.propagate, logger.handlers = before
        logging.getLogger().manager._clear_cache()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("counting")
def test_i002_an_app_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    assert ids(checks.check_surroundings) == ["I002"]


# -- what only a database can say -----------------------------------------------------------------------------------


def asked() -> list[str]:
    return ids(checks.check_database, databases=["default"])


def age(kind: str, seconds: float) -> None:
    seen_at = Process.objects.get(kind=kind).seen_at
    Process.objects.filter(kind=kind).update(seen_at=seen_at - timedelta(seconds=seconds))


@pytest.mark.parametrize("databases", [None, [], ["other"]])
def test_no_database_is_asked_that_was_not_named(databases: list[str] | None) -> None:
    # Without the mark django_db any query fails this test.
    assert ids(checks.check_database, databases=databases) == []


@pytest.mark.django_db(transaction=True)
def test_a_new_site_is_fine() -> None:
    assert asked() == []


@pytest.mark.django_db(transaction=True)
def test_w013_a_janitor_that_does_not_run() -> None:
    store.create_task("echo", {})
    assert asked() == ["W013"]
    report(janitor_name(), JANITOR)
    assert asked() == []
    age(JANITOR, 3500)
    assert asked() == []
    age(JANITOR, 200)
    assert asked() == ["W013"]
    [message] = checks.check_database(None, databases=["default"])
    assert message.msg == "The janitor has not run for 1 h 1 min; expired tasks keep their payloads."


@pytest.mark.django_db(transaction=True)
def test_w018_nobody_runs_what_waits() -> None:
    report(janitor_name(), JANITOR)
    ref = store.create_task("echo", {}, ttl_ms=86_400_000).ref
    rewind(ref, 3500)
    assert asked() == []
    rewind(ref, 200)
    assert asked() == ["W018"]
    report("web:1", WORKER, slots=4)
    assert asked() == []
    age(WORKER, 3700)
    assert asked() == ["W018"]


@pytest.mark.django_db(transaction=True)
def test_before_the_first_migration_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.introspection, "table_names", lambda: ["django_migrations"])
    store.create_task("echo", {})
    assert asked() == []


def test_a_database_that_is_away_is_no_business_of_these_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OperationalError("away")

    monkeypatch.setattr(connection.introspection, "table_names", fail)
    assert asked() == []


class Old:
    """A server, as Django tells of it."""

    vendor = "mysql"

    def __init__(self, version: tuple[int, ...], *, is_mariadb: bool) -> None:
        self.mysql_version, self.mysql_is_mariadb = version, is_mariadb


@pytest.mark.parametrize(
    ("version", "is_mariadb", "expected"),
    [
        ((10, 5, 21), True, "MariaDB 10.5.21 cannot hand out tasks to several workers without waiting."),
        ((10, 6, 0), True, None),
        ((11, 4, 2), True, None),
        ((8, 0, 15), False, "MySQL 8.0.15 cannot hand out tasks to several workers without waiting."),
        ((8, 0, 16), False, None),
        ((8, 4, 0), False, None),
    ],
)
def test_w006_a_server_that_is_too_old(version: tuple[int, ...], is_mariadb: bool, expected: str | None) -> None:
    found = checks._vendor(Old(version, is_mariadb=is_mariadb))
    assert [message.msg for message in found] == ([] if expected is None else [expected])
    assert all(message.id == "mcp_tasks.W006" for message in found)


# -- W017 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ["W017"]),
        ({"SESSION_COOKIE_SECURE": True}, ["W017"]),
        ({"SESSION_COOKIE_SECURE": True, "CSRF_COOKIE_SECURE": True}, []),
        ({"SESSION_COOKIE_SECURE": True, "CSRF_USE_SESSIONS": True}, []),
        ({"CSRF_COOKIE_SECURE": True}, ["W017"]),
    ],
)
def test_w017_sessions_over_plain_http(
    settings: Any, monkeypatch: pytest.MonkeyPatch, values: dict[str, bool], expected: list[str]
) -> None:
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = settings.CSRF_USE_SESSIONS = False
    for name, value in values.items():
        setattr(settings, name, value)
    monkeypatch.setattr(checks.apps, "is_installed", lambda name: name == "django.contrib.admin")
    assert ids(checks.check_cookies) == expected


def test_w017_without_the_admin_there_are_no_such_sessions(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.apps, "is_installed", lambda name: False)
    assert ids(checks.check_cookies) == []
