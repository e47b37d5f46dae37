"""
Find a task by what somebody pasted: its id, its reference or the beginning of it, an owner, a tool.

An id is a credential. It arrives in the body of a POST, is hashed, and is gone: the answer is a redirect to what was
found, never to what was asked for, and no sentence and no log repeats it.
"""

import re
import time
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_POST

from ..operators import audit
from ..operators.acting import actor_of
from ..querysets import TaskQuerySet
from ..store.locking import database
from ..store.types import ref_of
from .base import TaskPages
from .filters import ANONYMOUS, tool_names

PER_MINUTE = 20
MOST_FOUND = 10
LONGEST_INPUT = 300

_TASK_ID = re.compile(r"[A-Za-z0-9_-]{43}")
_BEGINNING = re.compile(r"[0-9a-f]{8,32}")
_OWNER_KEY = re.compile(r"[0-9a-f]{64}")


class LookupPages(TaskPages):
    """The look-up of ``TaskAdmin``."""

    def lookup_urls(self) -> list[Any]:
        """Where the form of the list is sent to."""
        view = self.admin_site.admin_view(require_POST(self.lookup))
        return [path("lookup/", view, name="mcp_tasks_task_lookup")]

    @method_decorator(sensitive_post_parameters("q"))
    @sensitive_variables("text")
    def lookup(self, request: HttpRequest) -> HttpResponse:
        """Lead to the task or to the list of what was found, or back to the list with a sentence."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if not _may_ask(request.user):
            _note(request, "throttled")
            words = ngettext(
                "At most {number} look-up a minute. Wait a moment and try again.",
                "At most {number} look-ups a minute. Wait a moment and try again.",
                PER_MINUTE,
            )
            messages.error(request, words.format(number=PER_MINUTE))
            return self._to_list()
        text = request.POST.get("q", "").strip()
        refs = matching_refs(self.get_queryset(request), text) if len(text) <= LONGEST_INPUT else []
        if refs:
            _note(request, "hit", refs)
            return self._to_tasks(refs)
        filters = matching_filters(text)
        if filters:
            _note(request, "hit")
            return self._to_list(**filters)
        _note(request, "miss")
        words = _("No task has this id. It may have been purged, or the id was cut short when it was copied.")
        messages.warning(request, words)
        return self._to_list()

    def _to_tasks(self, refs: list[UUID]) -> HttpResponse:
        if len(refs) > 1:
            return self._to_list(ref=",".join(str(ref) for ref in refs))
        return HttpResponseRedirect(reverse(f"{self.admin_site.name}:mcp_tasks_task_change", args=refs))

    def _to_list(self, **filters: str) -> HttpResponse:
        address = reverse(f"{self.admin_site.name}:mcp_tasks_task_changelist")
        return HttpResponseRedirect(f"{address}?{urlencode(filters)}" if filters else address)


@sensitive_variables()
def matching_refs(queryset: TaskQuerySet, text: str) -> list[UUID]:
    """
    The tasks that a text names, by the primary key.

    Several only for the beginning of a reference, and then the first ten: eight digits and more, so that nobody
    leafs through all of them.
    """
    found = queryset.order_by("pk").values_list("pk", flat=True)
    if _TASK_ID.fullmatch(text):
        return list(found.filter(pk=ref_of(text))[:1])
    digits = text.replace("-", "").lower()
    if not _BEGINNING.fullmatch(digits):
        return []
    if len(digits) == 32:
        return list(found.filter(pk=UUID(digits))[:1])
    if connections[database()].vendor == "mysql":
        return []  # MariaDB sorts references by another order than that of their digits
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return list(found.filter(pk__gte=first, pk__lte=last)[:MOST_FOUND])


@sensitive_variables()
def matching_filters(text: str) -> dict[str, str]:
    """The filter that a text names: ``owner:`` with the whole key of an owner, or a tool; empty for anything else."""
    word, colon, key = text.partition(":")
    if colon and word.lower() == "owner":
        key = key.strip().lower()
        return {"owner": key} if key == ANONYMOUS or _OWNER_KEY.fullmatch(key) else {}
    # Compared here and not by the database, whose logs may show every value: it could be an id that was cut short.
    return {"tool": text} if text in tool_names() else {}


def _may_ask(user: Any) -> bool:
    """Counted in Django's cache: exact where all processes share it, and for each process where they do not."""
    key = f"mcp_tasks:lookups:{user.pk}:{int(time.time() // 60)}"
    cache.add(key, 0, 120)
    try:
        return bool(cache.incr(key) <= PER_MINUTE)
    except ValueError:  # a cache that keeps nothing
        return True


def _note(request: HttpRequest, code: str, refs: list[UUID] | None = None) -> None:
    found = refs[0] if refs is not None and len(refs) == 1 else None
    audit.note_lookup(actor=actor_of(request.user), code=code, ref=found)
