"""System checks: each id fires for what it is about, and for nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.checks import CheckMessage
from django.db import connection

from mcp_tasks import checks
from mcp_tasks.models import TaskInput
from mcp_tasks.runners.base import Runner
from mcp_tasks.store import MemoryTaskStore, TaskStore
from mcp_tasks.tools.definition import build
from mcp_tasks.tools.registry import Registry

GOOD = {
    "RUNNER": {"BACKEND": "mcp_tasks.testing.IdleRunner"},
    "THROTTLE_CLASSES": ["mcp_tasks.access.throttles.ScopeThrottle"],
}


class NotAStore:
    """Has nothing of a store."""


class NeedsSlots(Runner):
    """A runner that is particular about its options."""

    def __init__(self, *, SLOTS: int) -> None:  # noqa: N803 - spelled as in the settings
        if SLOTS < 1:
            raise ValueError("SLOTS must be positive")

    def enqueue(self, ref: object) -> None: ...


class Broken(NeedsSlots):
    """A runner that fails for a reason of its own."""

    def __init__(self) -> None:
        raise RuntimeError("no broker")


NOT_CALLABLE = 5


def make_store() -> TaskStore:
    """A factory is as good as a class."""
    return MemoryTaskStore()


def make_nothing() -> None:
    """A factory that forgot its store."""


def an_owner(request: object) -> None:
    """A function of a project."""


class Elsewhere:
    """Routes one model away from the others."""

    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "other" if model is TaskInput else None


class AllElsewhere:
    """Routes the whole app to one other database."""

    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "mcp_tasks" else None


Ids = Callable[..., list[str]]


@pytest.fixture
def ids(settings: Any) -> Ids:
    """The ids that a check reports under these settings, without the prefix."""

    def run(check: Callable[..., Any], **values: Any) -> list[str]:
        settings.MCP_TASKS = {**GOOD, **values}
        found: list[CheckMessage] = list(check(None))
        assert all(message.id.startswith("mcp_tasks.") for message in found)
        assert all(message.msg for message in found)
        return [message.id.removeprefix("mcp_tasks.") for message in found]

    return run


def test_right_settings_are_fine(ids: Ids) -> None:
    for check in (
        checks.check_settings,
        checks.check_tools,
        checks.check_routing,
        checks.check_sqlite,
        checks.check_sweep,
        checks.check_deployment,
    ):
        assert ids(check) == []


def test_the_test_project_itself_is_fine() -> None:
    found = [message for message in django_checks.run_checks() if not message.is_silenced()]
    assert [message for message in found if message.id != "mcp_tasks.W008"] == []


def test_every_check_is_registered() -> None:
    ordinary = {check.__name__ for check in django_checks.registry.registry.registered_checks}
    deployment = {check.__name__ for check in django_checks.registry.registry.deployment_checks}
    assert {"check_settings", "check_tools", "check_routing", "check_sqlite", "check_sweep"} <= ordinary
    assert "check_deployment" in deployment
    assert "check_deployment" not in ordinary


# -- E001 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{"NO_SUCH": 1}, {"ENABLED": "yes"}, {"LIMITS": {"INPUT_KEYS": True}}, {"STORE": 5}])
def test_e001_a_wrong_setting(ids: Ids, values: dict[str, Any]) -> None:
    assert ids(checks.check_settings, **values) == ["E001"]


def test_e001_is_one_message_for_each_wrong_key(ids: Ids) -> None:
    assert ids(checks.check_settings, NO_SUCH=1, ENABLED=5, SWEEP_SECONDS=-1) == ["E001", "E001", "E001"]


@pytest.mark.parametrize(
    "path",
    [
        "no.such.Store",
        "mcp_tasks.store.NoSuchStore",
        "",
        ".store.MemoryTaskStore",
        f"{__name__}.NotAStore",
        f"{__name__}.NOT_CALLABLE",
        f"{__name__}.make_nothing",
        "mcp_tasks.store.TaskStore",
        "mcp_tasks.store.ForwardingTaskStore",
    ],
)
def test_e001_a_store_that_is_none(ids: Ids, path: str) -> None:
    assert ids(checks.check_settings, STORE=path) == ["E001"]


@pytest.mark.parametrize("path", ["mcp_tasks.store.MemoryTaskStore", f"{__name__}.make_store"])
def test_e001_a_store_is_a_class_or_makes_one(ids: Ids, path: str) -> None:
    assert ids(checks.check_settings, STORE=path) == []


# -- E002 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "runner",
    [
        {"BACKEND": "no.such.Runner"},
        {"BACKEND": ""},
        {"BACKEND": f"{__name__}.NotAStore"},
        {"BACKEND": f"{__name__}.make_store"},
        {"BACKEND": f"{__name__}.NeedsSlots"},
        {"BACKEND": f"{__name__}.NeedsSlots", "OPTIONS": {"SLOTS": 0}},
        {"BACKEND": f"{__name__}.NeedsSlots", "OPTIONS": {"SLOTS": "many"}},
        {"BACKEND": f"{__name__}.NeedsSlots", "OPTIONS": {"SLOTS": 1, "OTHER": 1}},
        {"BACKEND": f"{__name__}.Broken"},
        {"OPTIONS": {"SLOTS": 0}},
        {"OPTIONS": {"SLOTS": True}},
        {"OPTIONS": {"slots": 4}},
    ],
)
def test_e002_a_runner_that_cannot_be_made(ids: Ids, runner: dict[str, Any]) -> None:
    assert ids(checks.check_settings, RUNNER=runner) == ["E002"]


@pytest.mark.parametrize(
    "runner", [{}, {"OPTIONS": {"SLOTS": 1}}, {"BACKEND": f"{__name__}.NeedsSlots", "OPTIONS": {"SLOTS": 1}}]
)
def test_e002_a_runner_that_can_be_made(ids: Ids, runner: dict[str, Any]) -> None:
    assert ids(checks.check_settings, RUNNER=runner) == []


# -- E003 -----------------------------------------------------------------------------------------------------------


def test_e003_tables_in_two_databases(ids: Ids, settings: Any) -> None:
    settings.DATABASE_ROUTERS = [f"{__name__}.Elsewhere"]
    assert ids(checks.check_routing) == ["E003"]
    [message] = checks.check_routing(None)
    assert message.msg == "TaskInput is routed to other, Task to default."


def test_e003_tables_in_another_database_together(ids: Ids, settings: Any) -> None:
    settings.DATABASE_ROUTERS = [f"{__name__}.AllElsewhere"]
    assert ids(checks.check_routing) == []


# -- E004 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease", "heartbeat", "found"), [(60, 20, []), (60, 21, ["E004"]), (2, 1, ["E004"]), (3, 1, [])]
)
def test_e004_a_lease_that_a_busy_worker_would_lose(ids: Ids, lease: int, heartbeat: int, found: list[str]) -> None:
    assert ids(checks.check_settings, LEASE_SECONDS=lease, HEARTBEAT_SECONDS=heartbeat) == found


# -- E005, E009 -----------------------------------------------------------------------------------------------------


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of the test's own, which the check reads."""
    registry = Registry()
    monkeypatch.setattr(checks, "registry", registry)
    return registry


def example() -> None:
    """A tool."""


def another() -> None:
    """Another tool."""


def test_e005_a_name_used_twice(ids: Ids, own: Registry) -> None:
    own.add(build(example, name="same"))
    assert ids(checks.check_tools) == []
    own.add(build(another, name="same"))
    assert ids(checks.check_tools) == ["E005"]


def test_e009_a_wrong_definition(ids: Ids, own: Registry) -> None:
    own.add(build(example, name="a b"))
    own.add(build(another, task="sometimes"))
    assert ids(checks.check_tools) == ["E009", "E009"]


def test_e009_a_ttl_beyond_the_limit(ids: Ids, own: Registry) -> None:
    own.add(build(example, ttl_ms=2000))
    assert ids(checks.check_tools, MAX_TTL_MS=1000) == ["E009"]
    assert ids(checks.check_tools, MAX_TTL_MS=2000) == []


def test_tools_are_checked_also_under_wrong_settings(ids: Ids, own: Registry) -> None:
    own.add(build(example, name="a b"))
    assert ids(checks.check_tools, NO_SUCH=1) == ["E009"]


# -- E007 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["no.such.owner", "mcp_tasks.access.owners.no_such", "", f"{__name__}.NOT_CALLABLE"])
def test_e007_an_owner_function_that_cannot_be_called(ids: Ids, path: str) -> None:
    assert ids(checks.check_settings, OWNER=path) == ["E007"]


def test_e007_an_owner_function_of_the_project(ids: Ids) -> None:
    assert ids(checks.check_settings, OWNER=f"{__name__}.an_owner") == []


# -- E010 -----------------------------------------------------------------------------------------------------------

BEARER = "mcp_tasks.access.authentication.BearerTokenAuthentication"
SESSION = "rest_framework.authentication.SessionAuthentication"


@pytest.mark.parametrize("path", ["no.such.Authentication", "", f"{__name__}.NotAStore", f"{__name__}.an_owner"])
def test_e010_what_is_no_authentication_class(ids: Ids, path: str) -> None:
    assert ids(checks.check_settings, AUTHENTICATION_CLASSES=[SESSION, path]) == ["E010"]


def test_e010_bearer_tokens_without_their_table(ids: Ids, settings: Any) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "rest_framework.authtoken"]
    assert ids(checks.check_settings, AUTHENTICATION_CLASSES=[BEARER]) == ["E010"]
    assert ids(checks.check_settings, AUTHENTICATION_CLASSES=[SESSION]) == []


def test_e010_bearer_tokens_with_their_table(ids: Ids) -> None:
    assert ids(checks.check_settings, AUTHENTICATION_CLASSES=[BEARER, SESSION]) == []


def test_everything_that_is_wrong_is_reported_at_once(ids: Ids) -> None:
    assert ids(
        checks.check_settings,
        STORE="no.such.Store",
        RUNNER={"BACKEND": "no.such.Runner"},
        LEASE_SECONDS=1,
        OWNER="no.such.owner",
        AUTHENTICATION_CLASSES=["no.such.A", "no.such.B"],
    ) == ["E001", "E002", "E004", "E007", "E010", "E010"]


@pytest.mark.parametrize("word", ["", "--", "^card.*$", "card|pan", "*"])
def test_e008_what_is_no_word_of_a_key(ids: Ids, word: str) -> None:
    assert ids(checks.check_settings, OPERATOR={"SENSITIVE_KEYS": ["diagnosis", word]}) == ["E008"]


@pytest.mark.parametrize("word", ["diagnosis", "card_number", "card number", "kundennummer", "номер", "x-card.2"])
def test_e008_what_is_one(ids: Ids, word: str) -> None:
    assert ids(checks.check_settings, OPERATOR={"SENSITIVE_KEYS": [word]}) == []


# -- W001 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["IMMEDIATE", "immediate", "EXCLUSIVE"])
def test_w001_sqlite_that_locks_at_once(ids: Ids, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(connection, "vendor", "sqlite", raising=False)
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"transaction_mode": mode})
    assert ids(checks.check_sqlite) == []


@pytest.mark.parametrize("options", [{}, {"transaction_mode": None}, {"transaction_mode": "DEFERRED"}])
def test_w001_sqlite_that_locks_late(ids: Ids, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    monkeypatch.setattr(connection, "vendor", "sqlite", raising=False)
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    assert ids(checks.check_sqlite) == ["W001"]


def test_w001_another_database(ids: Ids, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "vendor", "postgresql", raising=False)
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})
    assert ids(checks.check_sqlite) == []


# -- W008 -----------------------------------------------------------------------------------------------------------


def test_w008_nobody_recovers_or_expires(ids: Ids) -> None:
    assert ids(checks.check_sweep, SWEEP_SECONDS=0) == ["W008"]
    assert ids(checks.check_sweep, SWEEP_SECONDS=1) == []


# -- deployment -----------------------------------------------------------------------------------------------------


def test_w010_nobody_can_be_told_apart(ids: Ids) -> None:
    assert ids(checks.check_deployment, AUTHENTICATION_CLASSES=[]) == ["W010"]


def test_w011_tasks_in_the_web_processes(ids: Ids) -> None:
    assert ids(checks.check_deployment, RUNNER={}) == ["W011"]
    assert ids(checks.check_deployment, RUNNER={"BACKEND": "mcp_tasks.runners.external.ExternalRunner"}) == []
    assert ids(checks.check_deployment, RUNNER={"BACKEND": "no.such.Runner"}) == []


def test_w014_anonymous_callers(ids: Ids) -> None:
    assert ids(checks.check_deployment, ALLOW_ANONYMOUS=True) == ["W014"]


def test_w012_nothing_bounds_how_often_a_caller_calls(ids: Ids) -> None:
    assert ids(checks.check_deployment, THROTTLE_CLASSES=[]) == ["W012"]


def test_w007_addresses_of_operators_that_nobody_can_use(ids: Ids, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(checks.check_operator_addresses) == []
    monkeypatch.setattr(checks, "authentication_problem", lambda: "Nobody can.")
    assert ids(checks.check_operator_addresses) == ["W007"]


@pytest.mark.parametrize("path", ["nowhere.Throttle", "mcp_tasks.store.DatabaseTaskStore"])
def test_e001_a_throttle_that_cannot_be_used(ids: Ids, path: str) -> None:
    assert ids(checks.check_settings, THROTTLE_CLASSES=[path]) == ["E001"]


def test_w015_error_pages_that_show_too_much(ids: Ids, settings: Any) -> None:
    settings.DEBUG = True
    assert ids(checks.check_deployment) == ["W015"]


def test_w016_tasks_that_are_kept_for_ever(ids: Ids) -> None:
    assert ids(checks.check_deployment, MAX_TTL_MS=None) == ["W016"]


def test_warnings_come_together(ids: Ids, settings: Any) -> None:
    settings.DEBUG = True
    found = ids(checks.check_deployment, AUTHENTICATION_CLASSES=[], ALLOW_ANONYMOUS=True, MAX_TTL_MS=None)
    assert found == ["W010", "W014", "W015", "W016"]


@pytest.mark.parametrize("check", [checks.check_sweep, checks.check_deployment])
def test_warnings_wait_until_the_settings_are_right(ids: Ids, settings: Any, check: Callable[..., Any]) -> None:
    settings.DEBUG = True
    assert ids(check, NO_SUCH=1, SWEEP_SECONDS=0) == []


def test_what_serves_is_an_error_and_what_may_be_meant_is_a_warning(ids: Ids, settings: Any) -> None:
    settings.MCP_TASKS = {"NO_SUCH": 1}
    assert all(message.is_serious(django_checks.ERROR) for message in checks.check_settings(None))
    settings.MCP_TASKS = {**GOOD, "SWEEP_SECONDS": 0, "ALLOW_ANONYMOUS": True}
    for message in (*checks.check_sweep(None), *checks.check_deployment(None)):
        assert not message.is_serious(django_checks.ERROR)
        assert message.hint
