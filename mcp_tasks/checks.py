"""System checks: ids, messages and hints together."""

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from rest_framework.authentication import BaseAuthentication

from . import conf
from .access.authentication import BearerTokenAuthentication
from .models import Task, TaskEvent, TaskInput, TaskStep
from .runners.base import get_runner
from .store.base import TaskStore
from .tools.registry import registry

TAG = "mcp_tasks"


@register(TAG)
def check_settings(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """E001, E002, E004, E007, E010: everything that ``MCP_TASKS`` can say wrongly."""
    wrong = conf.problems()
    if wrong:
        hint = "The reference documentation lists every key."
        return [Error(problem, hint=hint, id="mcp_tasks.E001") for problem in wrong]
    settings = conf.get_settings()
    found: list[CheckMessage] = []
    found += _check_store(settings.STORE)
    try:
        get_runner()
    except ImproperlyConfigured as problem:
        found.append(Error(str(problem), id="mcp_tasks.E002"))
    if settings.HEARTBEAT_SECONDS * 3 > settings.LEASE_SECONDS:
        found.append(
            Error(
                "A busy worker would lose its lease.",
                hint="Make LEASE_SECONDS at least three times HEARTBEAT_SECONDS.",
                id="mcp_tasks.E004",
            )
        )
    try:
        usable = callable(conf.load(settings.OWNER))
    except ImproperlyConfigured:
        usable = False
    if not usable:
        message = f"The owner function {settings.OWNER} cannot be used; every task would be refused."
        found.append(Error(message, id="mcp_tasks.E007"))
    for path in settings.AUTHENTICATION_CLASSES:
        found += _check_authentication(path)
    return found


def _check_store(path: str) -> list[CheckMessage]:
    try:
        store = conf.load(path)
    except ImproperlyConfigured as problem:
        return [Error(str(problem), id="mcp_tasks.E001")]
    if isinstance(store, type) and not issubclass(store, TaskStore):
        return [Error(f"MCP_TASKS['STORE']: {path} is no TaskStore.", id="mcp_tasks.E001")]
    if not callable(store):
        return [Error(f"MCP_TASKS['STORE']: {path} cannot be called.", id="mcp_tasks.E001")]
    return []


def _check_authentication(path: str) -> list[CheckMessage]:
    try:
        loaded = conf.load(path)
    except ImproperlyConfigured as problem:
        return [Error(str(problem), id="mcp_tasks.E010")]
    if not (isinstance(loaded, type) and issubclass(loaded, BaseAuthentication)):
        return [Error(f"{path} is no DRF authentication class.", id="mcp_tasks.E010")]
    if issubclass(loaded, BearerTokenAuthentication) and not apps.is_installed("rest_framework.authtoken"):
        return [
            Error(
                f"{path} needs rest_framework.authtoken.",
                hint="Add it to INSTALLED_APPS and migrate, or name other AUTHENTICATION_CLASSES.",
                id="mcp_tasks.E010",
            )
        ]
    return []


@register(TAG)
def check_tools(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """E005, E009: every wrong definition by the tool's name."""
    return [Error(message, id=f"mcp_tasks.{number}") for number, message in registry.problems()]


@register(TAG)
def check_routing(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """E003: a task and what hangs on it live in one database, since they change in one transaction."""
    home = router.db_for_write(Task)
    return [
        Error(
            f"{model.__name__} is routed to {router.db_for_write(model)}, Task to {home}.",
            id="mcp_tasks.E003",
        )
        for model in (TaskInput, TaskEvent, TaskStep)
        if router.db_for_write(model) != home
    ]


@register(TAG)
def check_sqlite(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """W001: without IMMEDIATE a transaction that reads first cannot become a writer under load."""
    connection = connections[router.db_for_write(Task)]
    if connection.vendor != "sqlite":
        return []
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode")
    if isinstance(mode, str) and mode.upper() in ("IMMEDIATE", "EXCLUSIVE"):
        return []
    return [
        checks.Warning(
            "SQLite will report 'database is locked' under load.",
            hint='Set OPTIONS: {"transaction_mode": "IMMEDIATE", "timeout": 20, '
            '"init_command": "PRAGMA journal_mode=WAL;"}.',
            id="mcp_tasks.W001",
        )
    ]


@register(TAG)
def check_sweep(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """W008: somebody must recover and expire."""
    if conf.problems() or conf.get_settings().SWEEP_SECONDS:
        return []
    return [
        checks.Warning(
            "Nothing in this process recovers or expires tasks.",
            hint="Run `manage.py expire_tasks` each minute, then silence this.",
            id="mcp_tasks.W008",
        )
    ]


@register(Tags.security, deploy=True)
def check_deployment(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """W010, W014, W015, W016: fine while developing."""
    if conf.problems():
        return []
    settings, found = conf.get_settings(), []
    if not settings.AUTHENTICATION_CLASSES:
        found.append(checks.Warning("No authentication class: nobody can be told apart.", id="mcp_tasks.W010"))
    if settings.ALLOW_ANONYMOUS:
        found.append(
            checks.Warning(
                "Anonymous callers may run tools.",
                hint="Remove ALLOW_ANONYMOUS, or silence this where it is meant.",
                id="mcp_tasks.W014",
            )
        )
    if django_settings.DEBUG:
        message = "Error pages show request headers and bodies, which hold task ids."
        found.append(checks.Warning(message, hint="Set DEBUG = False.", id="mcp_tasks.W015"))
    if settings.MAX_TTL_MS is None:
        message = "A task without a ttl that never ends is kept for ever."
        found.append(checks.Warning(message, hint="Set MAX_TTL_MS.", id="mcp_tasks.W016"))
    return found
