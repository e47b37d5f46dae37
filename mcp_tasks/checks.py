"""System checks: ids, messages and hints together."""

import logging
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from channels.layers import channel_layers
from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router

from . import conf
from .access.authentication import class_problem
from .access.owners import function_problem
from .access.throttles import class_problem as throttle_problem
from .models import Task, TaskEvent, TaskInput, TaskStep
from .notifications.layers import crossing_layer, layer_problem
from .notifications.publisher import notifier_problem
from .operators.masking import word_problem
from .operators.policy import policy_problem
from .operators.vitals import Vitals, vitals
from .operators.why import span
from .runners.base import get_runner
from .runners.elsewhere import ElsewhereRunner
from .runners.embedded import EmbeddedRunner
from .store import get_store
from .store.locking import on_database
from .tools.registry import registry
from .transports.rest.mounted import authentication_problem

TAG = "mcp_tasks"

#: Nobody was heard of for so long: W013, W018.
SILENT = timedelta(hours=1)
#: The oldest releases whose claiming works: MariaDB, MySQL.
OLDEST_MARIADB, OLDEST_MYSQL = (10, 6), (8, 0, 16)
#: What runs a job of django-tasks nowhere, or inside of the request.
_NO_BACKENDS = ("DummyBackend", "ImmediateBackend")
_NO_TASKS = {"default": {"BACKEND": "django_tasks.backends.immediate.ImmediateBackend"}}  # where TASKS is not set
_RQ_SECONDS = 180  # of django-rq, where a queue says nothing


@register(TAG)
def check_settings(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """E001, E002, E004, E006, E007, E008, E010: everything that ``MCP_TASKS`` can say wrongly."""
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
    policy = policy_problem()
    if policy is not None:
        found.append(Error(policy, id="mcp_tasks.E006"))
    for place, entry in enumerate(settings.OPERATOR.SENSITIVE_KEYS):
        unfit = word_problem(entry)
        if unfit is not None:
            message = f"MCP_TASKS['OPERATOR']['SENSITIVE_KEYS'][{place}] hides nothing: {unfit}."
            found.append(Error(message, id="mcp_tasks.E008"))
    telling = [
        layer_problem(),
        *map(notifier_problem, settings.NOTIFIERS),
        *map(throttle_problem, settings.THROTTLE_CLASSES),
    ]
    found += [Error(sentence, id="mcp_tasks.E001") for sentence in telling if sentence is not None]
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


@register(TAG, Tags.urls)
def check_operator_addresses(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """W007: REST for operators that nobody can log in to."""
    problem = authentication_problem()
    if problem is None:
        return []
    hint = "Set DEFAULT_AUTHENTICATION_CLASSES in REST_FRAMEWORK."
    return [checks.Warning(problem, hint=hint, id="mcp_tasks.W007")]


@register(TAG, Tags.security, deploy=True)
def check_deployment(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """W010, W011, W012, W014, W015, W016: fine while developing."""
    if conf.problems():
        return []
    settings, found = conf.get_settings(), []
    if not settings.AUTHENTICATION_CLASSES:
        found.append(checks.Warning("No authentication class: nobody can be told apart.", id="mcp_tasks.W010"))
    if _runs_in_web_processes():
        message = "Tasks run in the web processes, and share their processor and their end."
        hint = "Run `manage.py run_task_worker` with mcp_tasks.runners.external.ExternalRunner, or silence this."
        found.append(checks.Warning(message, hint=hint, id="mcp_tasks.W011"))
    if not settings.THROTTLE_CLASSES:
        message = "Nothing bounds how often a caller may call."
        hint = (
            "Name mcp_tasks.access.throttles.ScopeThrottle in THROTTLE_CLASSES, or silence this where a proxy does it."
        )
        found.append(checks.Warning(message, hint=hint, id="mcp_tasks.W012"))
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


def _runs_in_web_processes() -> bool:
    try:
        return isinstance(get_runner(), EmbeddedRunner)
    except Exception:  # one that cannot be made is E002
        return False


@register(TAG)
def check_surroundings(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """W002, W003, W004, W005, W009, I001, I002: what the project's other settings mean for tasks."""
    if conf.problems():
        return []
    found: list[CheckMessage] = []
    if _tells_only_itself():
        found.append(
            checks.Warning(
                "Tasks run in other processes, which a channel layer in memory does not reach.",
                hint="Use one over Redis, or none: workers look every few seconds, and hear of a cancellation with "
                "their next heartbeat.",
                id="mcp_tasks.W002",
            )
        )
    if "django_tasks" in conf.get_settings().RUNNER.BACKEND:
        found += _tasks_backends()
    if not django_settings.USE_TZ:
        message = "USE_TZ is off: times of tasks are stored without an offset and will be wrong elsewhere."
        found.append(checks.Warning(message, hint="Set USE_TZ = True.", id="mcp_tasks.W005"))
    if apps.is_installed("mcp_tasks.contrib.prometheus") and _several_processes():
        found.append(
            checks.Warning(
                "Counters will jump between processes.",
                hint="Set PROMETHEUS_MULTIPROC_DIR to an empty folder that all processes of the server share.",
                id="mcp_tasks.W009",
            )
        )
    if _logs_every_call():
        found.append(
            checks.Info(
                "Method names and refs of every call are logged.",
                hint="Raise the level of the logger mcp_tasks.rpc, or silence this where it is meant.",
                id="mcp_tasks.I001",
            )
        )
    for app, package in (("prometheus", "prometheus_client"), ("opentelemetry", "opentelemetry")):
        if apps.is_installed(f"mcp_tasks.contrib.{app}") and find_spec(package) is None:
            message = f"mcp_tasks.contrib.{app} does nothing: {package} is not installed."
            found.append(checks.Info(message, hint=f"Install the extra {app}.", id="mcp_tasks.I002"))
    return found


def _tasks_backends() -> list[CheckMessage]:
    """The engines of django-tasks, where they run our legs."""
    longest, found = conf.get_settings().MAX_TTL_MS, []
    queues = getattr(django_settings, "RQ_QUEUES", {})
    used = conf.get_settings().RUNNER.OPTIONS.get("ALIAS", "default")
    for alias, options in getattr(django_settings, "TASKS", _NO_TASKS).items():
        if alias != used:
            continue
        backend = str(options.get("BACKEND", ""))
        if backend.endswith(_NO_BACKENDS):
            found.append(
                checks.Warning(
                    f"TASKS[{alias!r}] uses {backend.rpartition('.')[2]}: tasks run inside of requests, or never.",
                    hint="Name a backend with workers.",
                    id="mcp_tasks.W003",
                )
            )
        if "rq" not in backend.lower():
            continue
        for name, queue in queues.items():
            seconds = queue.get("DEFAULT_TIMEOUT", _RQ_SECONDS)
            if seconds > 0 and (longest is None or seconds * 1000 < longest):
                found.append(
                    checks.Warning(
                        f"RQ ends jobs of the queue {name} after {seconds} s, which tasks may outlive.",
                        hint="Set its DEFAULT_TIMEOUT to -1, or to the longest time that a tool runs.",
                        id="mcp_tasks.W004",
                    )
                )
    return list(found)


def _tells_only_itself() -> bool:
    """Whether there is a channel layer, in memory, and a runner whose tasks run elsewhere."""
    alias = conf.get_settings().CHANNEL_LAYER
    if alias is None or alias not in channel_layers:
        return False
    try:
        runs_elsewhere = issubclass(conf.load(conf.get_settings().RUNNER.BACKEND), ElsewhereRunner)
    except (ImproperlyConfigured, TypeError):
        return False  # which is an error already
    return runs_elsewhere and layer_problem() is None and crossing_layer() is None


def _several_processes() -> bool:
    """Whether the environment tells the server to start more than one process, which share no counters."""
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return False
    number = os.environ.get("WEB_CONCURRENCY", "")
    told = re.search(r"(?:-w|--workers)[ =]*(\d+)", os.environ.get("GUNICORN_CMD_ARGS", ""))
    return any(text.isdecimal() and int(text) > 1 for text in (number, told[1] if told else ""))


def _logs_every_call() -> bool:
    logger: logging.Logger | None = logging.getLogger("mcp_tasks.rpc")
    if not logging.getLogger("mcp_tasks.rpc").isEnabledFor(logging.DEBUG):
        return False
    while logger is not None:
        heard = (one for one in logger.handlers if not isinstance(one, logging.NullHandler))
        if any(handler.level <= logging.DEBUG for handler in heard):
            return True
        logger = logger.parent if logger.propagate else None
    return False


@register(TAG, Tags.database)
def check_database(app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """W006, W013, W018: only where databases may be asked (``check --database``, ``migrate``)."""
    home = router.db_for_write(Task)
    if conf.problems() or home not in (databases or ()):
        return []
    try:
        connection = connections[home]
        found = _vendor(connection)
        if Task._meta.db_table not in connection.introspection.table_names():
            return found  # before the first migration
        with on_database(home):
            return [*found, *_silence(vitals())]
    except DatabaseError:
        return []  # it cannot be asked, which Django's own checks and commands say themselves


def _vendor(connection: Any) -> list[CheckMessage]:
    if connection.vendor != "mysql":
        return []
    name, oldest = ("MariaDB", OLDEST_MARIADB) if connection.mysql_is_mariadb else ("MySQL", OLDEST_MYSQL)
    if connection.mysql_version >= oldest:
        return []
    needed, version = (".".join(map(str, numbers)) for numbers in (oldest, connection.mysql_version))
    message = f"{name} {version} cannot hand out tasks to several workers without waiting."
    return [checks.Warning(message, hint=f"Use {name} {needed} or newer.", id="mcp_tasks.W006")]


def _silence(now: Vitals) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    live, janitor, waited = now.live, now.janitor_seconds, now.oldest_queued_seconds
    has_work = now.overdue or live.queued or live.running or live.needs_input or live.stalled
    if has_work and (janitor is None or janitor > SILENT.total_seconds()):
        since = "has never run" if janitor is None else f"has not run for {span(janitor)}"
        found.append(
            checks.Warning(
                f"The janitor {since}; expired tasks keep their payloads.",
                hint="Run `manage.py expire_tasks` each minute, or set SWEEP_SECONDS.",
                id="mcp_tasks.W013",
            )
        )
    seen_at = max((process.seen_at for process in now.facts.workers), default=None)
    if waited is not None and waited > SILENT.total_seconds() and (seen_at is None or seen_at < now.now - SILENT):
        found.append(
            checks.Warning(
                "Tasks are waiting and no worker has been seen.",
                hint="Start the site, or a worker process.",
                id="mcp_tasks.W018",
            )
        )
    return found


@register(TAG, Tags.security, deploy=True)
def check_cookies(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """W017: who takes an operator's session can read and cancel everything that he can."""
    needed = ["SESSION_COOKIE_SECURE", *([] if django_settings.CSRF_USE_SESSIONS else ["CSRF_COOKIE_SECURE"])]
    missing = [name for name in needed if not getattr(django_settings, name)]
    if not missing or not apps.is_installed("django.contrib.admin"):
        return []
    hint = f"Set {' and '.join(missing)} to True."
    return [checks.Warning("Operator sessions can leak over plain HTTP.", hint=hint, id="mcp_tasks.W017")]
