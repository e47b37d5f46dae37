"""Who may do what to which task: Django's permissions, the state of the task, and the project's own policy."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from .. import conf
from ..lifecycle import DONE, LIVE, PARKED, QUEUED
from ..models import Task
from ..querysets import TaskQuerySet
from .states import EXPIRED_STATE, STALLED, state_of

#: A queued task may be failed by hand once it has waited so long.
LONG_QUEUED = timedelta(minutes=10)


class Policy:
    """
    What a project may narrow with ``MCP_TASKS["OPERATOR"]["POLICY"]``: a subclass, or anything with these methods.

    It can only take away: permissions are asked first. For the socket of open pages ``queryset`` gets a request that
    went through no middleware: it has the session and ``user``, and nothing else that a project sets. Where the method
    raises for want of that, the socket is closed and the page asks every few seconds instead.
    """

    def queryset(self, request: Any, queryset: TaskQuerySet) -> TaskQuerySet:
        """The tasks that exist for this operator; all others are 404 everywhere."""
        return queryset

    def may(self, request: Any, verb: str, task: Task) -> bool | str:
        """Whether a verb may be used on a task; a text is the reason why not, and is shown."""
        return True

    def mask(self, request: Any, task: Task, path: str, key: str) -> bool | None:
        """Whether the value of this key is masked; None leaves it to the built-in rules."""
        return None


def policy_problem() -> str | None:
    """What is wrong with the policy of the settings, as a sentence; None when it can be used (E006)."""
    path = conf.get_settings().OPERATOR.POLICY
    if path is None:
        return None
    try:
        found = conf.load(path)
        found = found() if isinstance(found, type) else found
    except ImproperlyConfigured as problem:
        return f"The operator policy {path} cannot be imported: {problem}"
    except Exception as problem:  # a class of the project may raise anything, and a check has to say so
        return f"The operator policy {path} cannot be made: {type(problem).__name__}: {problem}."
    lacking = [name for name in ("queryset", "may", "mask") if not callable(getattr(found, name, None))]
    return f"The operator policy {path} lacks {', '.join(lacking)}." if lacking else None


@lru_cache(maxsize=1)
def get_policy() -> Policy:
    """The policy of the settings; raises ImproperlyConfigured naming what is wrong with it."""
    problem = policy_problem()
    if problem is not None:
        raise ImproperlyConfigured(problem)
    path = conf.get_settings().OPERATOR.POLICY
    if path is None:
        return Policy()
    found = conf.load(path)
    policy: Policy = found() if isinstance(found, type) else found
    return policy


conf.on_reset(get_policy.cache_clear)


def may_view(user: Any) -> bool:
    """Lists, pages and counts without payloads."""
    return bool(user.is_active and user.is_staff and user.has_perm("mcp_tasks.view_task"))


def may_see(user: Any, what: str) -> bool:
    """``payload``, ``secrets`` or ``traceback`` of tasks that may be viewed."""
    return may_view(user) and bool(user.has_perm(f"mcp_tasks.view_task_{what}"))


def visible(request: Any, queryset: TaskQuerySet) -> TaskQuerySet:
    """The tasks that exist for this operator."""
    return get_policy().queryset(request, queryset)


@dataclass(frozen=True, slots=True)
class Verb:
    """Something that an operator does to one task: its permission, and the states in which it makes sense."""

    name: str
    label: str | Promise
    permission: str
    applies: Callable[[Task, datetime], bool]
    is_dangerous: bool = True


def _is_live(task: Task, now: datetime) -> bool:
    return task.phase in LIVE and state_of(task, now) is not EXPIRED_STATE


def _may_be_failed(task: Task, now: datetime) -> bool:
    is_long_queued = task.phase == QUEUED and task.phase_at <= now - LONG_QUEUED
    is_stuck = state_of(task, now) is STALLED or task.phase == PARKED or is_long_queued
    return _is_live(task, now) and is_stuck


def _is_parked(task: Task, now: datetime) -> bool:
    return _is_live(task, now) and task.phase == PARKED and conf.get_settings().OPERATOR.DISMISS_INPUT


def _is_finished(task: Task, now: datetime) -> bool:
    return task.phase == DONE and state_of(task, now) is not EXPIRED_STATE


VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("requeue", _("Queue again"), "requeue_task", lambda task, now: state_of(task, now) is STALLED),
        Verb("extend", _("Extend TTL"), "extend_task", _is_live, is_dangerous=False),
        Verb("dismiss", _("Dismiss questions"), "dismiss_task_input", _is_parked),
        Verb("fail", _("Mark failed"), "fail_task", _may_be_failed),
        Verb("cancel", _("Cancel"), "cancel_task", _is_live),
        Verb("delete", _("Delete"), "delete_task", _is_finished),
    )
}


def has_permission(user: Any, verb: Verb) -> bool:
    """Whether the operator holds the verb's permission, whatever the task."""
    return may_view(user) and bool(user.has_perm(f"mcp_tasks.{verb.permission}"))


def refusal(request: Any, verb: Verb, task: Task) -> str | None:
    """Why this operator may not use the verb on this task at all, as a sentence; None when he may."""
    if not has_permission(request.user, verb):
        return str(_("You do not have the permission for this."))
    if verb.name == "dismiss" and not conf.get_settings().OPERATOR.DISMISS_INPUT:
        return str(_("Dismissing questions is switched off on this server."))
    answer = get_policy().may(request, verb.name, task)
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else str(_("This task is not yours to act on."))


def offered(request: Any, task: Task, now: datetime) -> list[Verb]:
    """The verbs to show for a task: permitted, and sensible in its state."""
    return [verb for verb in VERBS.values() if verb.applies(task, now) and refusal(request, verb, task) is None]
