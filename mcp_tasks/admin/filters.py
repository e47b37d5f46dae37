"""
The filters of the list: what an address may say, and the rows that it means.

The one reading of these parameters serves the list, its live refresh and what acts on "everything that matches". An
unknown name or value is an error and never ignored: a typing mistake must not widen what somebody is about to cancel.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.cache import cache
from django.db.models import Q
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..dbtime import after
from ..models import TaskStat
from ..operators.states import FILTERS
from ..querysets import TaskQuerySet, fresh, unfinished
from ..store.locking import database, rows
from ..tools.registry import registry

#: The value of ``owner`` for tasks that nobody owns.
ANONYMOUS = "anonymous"
#: At most so many tasks are named one by one in an address.
MOST_REFS = 200
#: Parameters of Django's admin that filter nothing.
HARMLESS = {"p", "e", "_popup", "_to_field"}

_TOOLS_KEY, _TOOLS_SECONDS, _TOOLS_DAYS = "mcp_tasks:counted-tools", 300, 30

CREATED: dict[str, tuple[str | Promise, int]] = {
    "15m": (gettext_lazy("Last 15 minutes"), 900),
    "1h": (gettext_lazy("Last hour"), 3_600),
    "24h": (gettext_lazy("Last 24 hours"), 86_400),
    "7d": (gettext_lazy("Last 7 days"), 604_800),
}
#: Of unfinished tasks only: those are the rows that an index finds.
EXPIRY: dict[str, tuple[str | Promise, Callable[[], Q]]] = {
    "10m": (gettext_lazy("Within 10 minutes"), lambda: Q(expires_at__lte=after(600))),
    "1h": (gettext_lazy("Within an hour"), lambda: Q(expires_at__lte=after(3_600))),
    "never": (gettext_lazy("Never"), lambda: Q(expires_at=None)),
}


class UnknownFilter(ValueError):
    """The address asks for a filter, or a value of one, that does not exist."""


def narrowed(queryset: TaskQuerySet, parameters: Mapping[str, str]) -> TaskQuerySet:
    """The rows that match every parameter; raises UnknownFilter. ``p`` and the like say nothing about rows."""
    for name, value in parameters.items():
        if name in HARMLESS:
            continue
        if name not in READERS:
            raise UnknownFilter(name)
        condition = READERS[name](value)
        if condition is None:
            raise UnknownFilter(name)
        queryset = queryset.filter(condition)
    return queryset


def is_known_tool(name: str) -> bool:
    """Registered here, counted lately, or the tool of some task: those that are no longer registered included."""
    names = tool_names()
    if name in names:
        return True
    found = bool(rows(database()).filter(tool=name).exists())
    if found:
        cache.set(_TOOLS_KEY, [*names, name], _TOOLS_SECONDS)
    return found


def tool_names() -> list[str]:
    """The tools of this process, and those of the last days that are in the counts only; kept for some minutes."""
    counted = cache.get(_TOOLS_KEY)
    if counted is None:
        since = after(-_TOOLS_DAYS * 86_400)
        found = TaskStat.objects.using(database()).filter(hour__gte=since).exclude(tool="")
        counted = list(found.order_by("tool").values_list("tool", flat=True).distinct()[:500])
        cache.set(_TOOLS_KEY, counted, _TOOLS_SECONDS)
    return sorted({*counted, *(tool.name for tool in registry)})


def refs_of(text: str) -> list[UUID] | None:
    """References with commas between them; None when that is something else."""
    try:
        refs = [UUID(part) for part in text.split(",")]
    except ValueError:
        return None
    return refs if len(refs) <= MOST_REFS else None


def _state(value: str) -> Q | None:
    return FILTERS[value][1]() if value in FILTERS else None


def _tool(value: str) -> Q | None:
    return Q(tool=value) if "\0" not in value and is_known_tool(value) else None


def _created(value: str) -> Q | None:
    return Q(created_at__gte=after(-CREATED[value][1])) if value in CREATED else None


def _expiry(value: str) -> Q | None:
    return unfinished() & fresh() & EXPIRY[value][1]() if value in EXPIRY else None


def _owner(value: str) -> Q | None:
    if value == ANONYMOUS:
        return Q(owner_key__isnull=True)
    is_key = len(value) == 64 and all(character in "0123456789abcdef" for character in value)
    return Q(owner_key=value) if is_key else None


def _ref(value: str) -> Q | None:
    refs = refs_of(value)
    # One equality for each, not IN with converted values: that keeps the primary key in use everywhere.
    return reduce(or_, (Q(pk=ref) for ref in refs)) if refs else None


READERS: dict[str, Callable[[str], Q | None]] = {
    "state": _state,
    "tool": _tool,
    "created": _created,
    "expiry": _expiry,
    "owner": _owner,
    "ref": _ref,
}


class _Filter(admin.SimpleListFilter):
    """A filter of the sidebar; the parameters were found to be right before the list was made."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        value = self.value()
        return queryset if value is None else narrowed(queryset, {str(self.parameter_name): value})


class StateFilter(_Filter):
    title, parameter_name = gettext_lazy("state"), "state"

    def lookups(self, request: Any, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return [(name, word) for name, (word, _rows) in FILTERS.items()]


class ToolFilter(_Filter):
    title, parameter_name = gettext_lazy("tool"), "tool"

    def lookups(self, request: Any, model_admin: Any) -> Iterable[tuple[str, Any]]:
        value = self.value()
        return [(name, name) for name in sorted({*tool_names(), *([value] if value else [])})]


class CreatedFilter(_Filter):
    title, parameter_name = gettext_lazy("created"), "created"

    def lookups(self, request: Any, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return [(name, word) for name, (word, _seconds) in CREATED.items()]


class ExpiryFilter(_Filter):
    title, parameter_name = gettext_lazy("expiry, of unfinished tasks"), "expiry"

    def lookups(self, request: Any, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return [(name, word) for name, (word, _rows) in EXPIRY.items()]


class OwnerFilter(_Filter):
    """Shown only while it is in use: it is chosen by a link on an owner."""

    title, parameter_name = gettext_lazy("owner"), "owner"

    def lookups(self, request: Any, model_admin: Any) -> Iterable[tuple[str, Any]]:
        value = self.value()
        if value is None:
            return []
        return [(value, _("Nobody (anonymous)") if value == ANONYMOUS else f"{value[:8]}…")]


class RefFilter(_Filter):
    """Shown only while it is in use: it is what a look-up found that means several tasks."""

    title, parameter_name = gettext_lazy("reference"), "ref"

    def lookups(self, request: Any, model_admin: Any) -> Iterable[tuple[str, Any]]:
        value = self.value()
        if value is None:
            return []
        number = len(value.split(","))
        return [(value, ngettext("{number} task", "{number} tasks", number).format(number=number))]


LIST_FILTERS = (StateFilter, ToolFilter, CreatedFilter, ExpiryFilter, OwnerFilter, RefFilter)
