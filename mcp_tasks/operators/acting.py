"""One verb on one task, as every surface does it: reason and revision checked, the store called, the outcome named."""

import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from .. import conf
from ..models import Task
from ..store import get_store
from ..store.types import Outcome
from . import audit
from .policy import VERBS, refusal

REASON_SHORTEST, REASON_LONGEST = 3, 500
#: Format characters that turn text around or hide in it.
_DISGUISES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

#: What surfaces call the reasons of an outcome.
CODES = {
    "ok": "ok",
    "terminal": "already_finished",
    "changed": "revision_conflict",
    "not_applicable": "not_applicable",
    "expired": "not_found",
    "gone": "not_found",
}


class WrongRequest(ValueError):
    """What the operator sent cannot be done; the message says what is wrong, ``field`` where."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an operator wants done to a task."""

    verb: str
    reason: str
    revision: int | None = None
    share_reason: bool | None = None
    expires_at: datetime | None = None


def checked_reason(text: Any) -> str:
    """The reason as it is stored; raises WrongRequest when it is too short, too long, or disguises itself."""
    reason = text.strip() if isinstance(text, str) else ""
    if not REASON_SHORTEST <= len(reason) <= REASON_LONGEST:
        message = _("Give a reason of {least} to {most} characters.")
        raise WrongRequest("reason", message.format(least=REASON_SHORTEST, most=REASON_LONGEST))
    if any(unicodedata.category(character) in _DISGUISES for character in reason):
        raise WrongRequest("reason", _("The reason has characters that cannot be seen; write it without them."))
    return reason


def actor_of(user: Any) -> str:
    """How the timeline names an operator."""
    return f"operator:{user.pk}"


def act(request: Any, task: Task, order: Order) -> Outcome:
    """
    Do it, for the operator of the request. Raises PermissionError with the sentence that says why he may not, and
    WrongRequest for a wrong reason or time; a lost race is in the outcome.
    """
    code = audit.FAILED
    try:
        outcome = _act(request, task, order)
        code = CODES.get(outcome.why, outcome.why)
        return outcome
    except PermissionError:
        code = audit.PERMISSION_DENIED
        raise
    except WrongRequest:
        code = audit.WRONG_REQUEST
        raise
    finally:
        user = request.user
        reason = order.reason if code != audit.WRONG_REQUEST else None
        audit.note(task.pk, action=order.verb, actor=actor_of(user), code=code, user=user, reason=reason)


def _act(request: Any, task: Task, order: Order) -> Outcome:
    problem = refusal(request, VERBS[order.verb], task)
    if problem is not None:
        raise PermissionError(problem)
    store = get_store()
    who: dict[str, Any] = {
        "actor": actor_of(request.user),
        "reason": checked_reason(order.reason),
        "revision": order.revision,
    }
    match order.verb:
        case "cancel":
            return store.cancel(task.pk, **who, share_reason=order.share_reason is not False)
        case "fail":
            return store.fail(task.pk, **who, share_reason=order.share_reason is True)
        case "extend":
            return store.extend(task.pk, _ttl_ms(task, order.expires_at), **who)
        case "requeue":
            return store.requeue(task.pk, **who)
        case "dismiss":
            return store.dismiss_inputs(task.pk, **who)
        case "delete":
            return store.delete_terminal(task.pk, **who)
    raise AssertionError(order.verb)


def _ttl_ms(task: Task, expires_at: datetime | None) -> int:
    if expires_at is None:
        raise WrongRequest("expires_at", _("Say until when it is to be kept."))
    ttl_ms = (expires_at - task.created_at) // timedelta(milliseconds=1)
    limit = conf.get_settings().MAX_TTL_MS
    if limit is not None and ttl_ms > limit:
        latest = task.created_at + timedelta(milliseconds=limit)
        raise WrongRequest("expires_at", _("At most until {latest}.").format(latest=latest.isoformat()))
    if task.expires_at is None or expires_at <= task.expires_at:
        raise WrongRequest("expires_at", _("It is kept that long already."))
    return ttl_ms
