"""System checks: ids, messages and hints together."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from . import conf
from .access.authentication import class_problem
from .access.owners import function_problem
from .models import Task, TaskEvent, TaskInput, TaskStep
from .runners.base import get_runner
from .store import get_store
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
    for key, make, number in (("STORE", get_store, "E001"), ("RUNNER", get_runner, "E002")):
        try:
            make()
        except ImproperlyConfigured as problem:
            found.append(Error(str(problem), id=f"mcp_tasks.{number}"))
        except Exception as problem:  # a class of the project may raise anything, and a check has to say so
            message = f"MCP_TASKS[{key!r}] cannot be made: {type(problem).__name__}: {problem}."
            found.append(Error(message, id=f"mcp_tasks.{number}"))
    lease = conf.lease_problem()
    if lease is not None:
        found.append(Error(lease, id="mcp_tasks.E004"))
    owner = function_problem()
    if owner is not None:
        found.append(Error(owner, id="mcp_tasks.E007"))
    classes = [class_problem(path) for path in settings.AUTHENTICATION_CLASSES]
    found += [Error(problem, id="mcp_tasks.E010") for problem in classes if problem is not None]
    return found


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


@register(TAG, Tags.security, deploy=True)
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
