"""What operators did, for a log of its own, which may be shipped elsewhere, and for who counts. Never a reason."""

import logging
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.apps import apps

from .. import observing
from ..models import Task
from ..signals import operator_acted
from ..store.effects import send
from .policy import Verb

logger = logging.getLogger("mcp_tasks.operator")

PERMISSION_DENIED, WRONG_REQUEST, FAILED = "permission_denied", "wrong_request", "failed"


def note(
    ref: UUID,
    *,
    action: str,
    actor: str,
    code: str,
    user: Any = None,
    reason: str | None = None,
    what: str | None = None,
) -> None:
    """
    An operator tried to do this to a task; ``code`` is what became of it, ``what`` the payload that was taken.

    The reason goes to receivers only.
    """
    observing.happened("operator", ref=ref, action=action, result=code)
    named = {} if what is None else {"what": what}
    logger.info("an operator acted", extra={"event": f"operator_{action}", **_fields(ref, actor, code), **named})
    send(operator_acted, ref, revision=None, action=action, user=user, reason=reason, outcome=code)


def note_download(ref: UUID, *, what: str, is_unmasked: bool, actor: str, user: Any) -> None:
    """An operator took a payload away, or all questions and answers."""
    action = "download_unmasked" if is_unmasked else "download"
    note(ref, action=action, actor=actor, code="ok", user=user, what=what)


def note_lookup(*, actor: str, code: str, ref: UUID | None = None) -> None:
    """An operator looked for a task: ``hit``, ``miss`` or ``throttled``; never what was looked for."""
    logger.info("an operator looked for a task", extra={"event": "lookup", **_fields(ref, actor, code)})


def _fields(ref: UUID | None, actor: str, code: str) -> dict[str, Any]:
    named = None if ref is None else str(ref)
    return {"ref": named, "actor": actor, "code": code, "trace_id": observing.trace_id()}


def enter(user: Any, tasks: Iterable[Task], verb: Verb, reason: str) -> None:
    """The entries of the admin's own log, where the admin is installed. The timeline of the task is the record."""
    if not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import CHANGE, DELETION, LogEntry  # a model of an app that may be missing

    flag = DELETION if verb.name == "delete" else CHANGE
    LogEntry.objects.log_actions(user.pk, list(tasks), flag, f"{verb.label}: {reason}")
