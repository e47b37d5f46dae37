"""What of a task's texts is hidden from an operator: built-in rules, the project's words, and its policy."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from .. import conf
from ..models import Task, TaskInput
from ..protocol.codec import loads
from ..protocol.tasks import FAILED
from .display import Shown, masked_chunks, show
from .masking import MASKED, Mask, Path, password_paths, rules_for
from .policy import Policy, get_policy
from .states import EXPIRED_STATE, state_of

NOWHERE: frozenset[Path] = frozenset()


class Masking:
    """The look of one operator at the payloads of one task. ``request`` is Django's, as the policy knows it."""

    def __init__(self, request: Any, task: Task) -> None:
        self._rules = rules_for(conf.get_settings().OPERATOR.SENSITIVE_KEYS)
        self._mask: Mask | None = None
        policy = get_policy()
        if getattr(type(policy), "mask", None) is not Policy.mask:
            self._mask = lambda path, key: policy.mask(request, task, json_path(path), key)

    def show(self, text: str, paths: frozenset[Path] = NOWHERE) -> Shown:
        """For a page: indented, within caps."""
        return show(text, rules=self._rules, mask=self._mask, paths=paths)

    def chunks(self, text: str, paths: frozenset[Path] = NOWHERE) -> Iterator[str]:
        """For a download: exact but for what is hidden. Raises NotJson before the first piece."""
        return masked_chunks(text, rules=self._rules, mask=self._mask, paths=paths)


def json_path(path: Path) -> str:
    """``$.card.number``, ``$.rows[0]``: a place in a payload as people write it."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def answer_paths(question: TaskInput) -> frozenset[Path]:
    """Where the answer to a question holds what its schema calls a password."""
    try:
        return password_paths(loads(question.request_json)["params"].get("requestedSchema"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return NOWHERE


def message_of(task: Task, now: datetime, *, shows_payload: bool) -> str | None:
    """
    The status message as an operator may see it; None where there is none, or no longer.

    Masked whole where it looks like a secret. A failed task's is the text of its error, so it is a payload.
    """
    if not task.status_message or state_of(task, now) is EXPIRED_STATE:
        return None
    if task.status == FAILED and not shows_payload:
        return _("You may not read the text of its error.")
    rules = rules_for(conf.get_settings().OPERATOR.SENSITIVE_KEYS)
    return MASKED if rules.looks_secret(task.status_message) else task.status_message
