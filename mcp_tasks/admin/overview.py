"""The overview: how much waits, runs and is stuck; what has ended lately; who works. In nine statements at most."""

from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from ..dbtime import DbNow
from ..models import Process
from ..operators.numbers import Live, busiest_owners, live, longest_queued, longest_stalled
from ..operators.policy import get_policy
from ..operators.why import JANITOR_SILENT, PROCESS_SILENT, span
from ..protocol.codec import loads
from ..querysets import TaskQuerySet
from ..store.locking import database, rows
from ..store.processes import JANITOR, only_tools, tools_hash
from ..tools.registry import registry
from .base import TaskPages
from .cells import brief, grouped, time_of
from .filters import ANONYMOUS
from .finished import RANGES, Finished, finished

MOST_OWNERS, MOST_TASKS, MOST_PROCESSES = 5, 5, 50


class OverviewPages(TaskPages):
    """The overview of ``TaskAdmin``."""

    def overview_urls(self) -> list[Any]:
        """The page."""
        view = self.admin_site.admin_view(require_safe(self.overview))
        return [path("overview/", view, name="mcp_tasks_task_overview")]

    def overview(self, request: HttpRequest) -> HttpResponse:
        """
        What this operator may know of.

        The counts of finished tasks tell no owner from another: where the policy narrows, they are left out.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = self.get_queryset(request)
        processes = list(_processes())
        now = processes[0].read_at if processes else timezone.now()
        wanted = RANGES.get(request.GET.get("range", ""), RANGES["24h"])
        ended = finished(now, wanted) if _is_everything(request) else None
        counted = live(found)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Overview"),
            "cards": list(_cards(counted, ended, now)),
            "ended": ended,
            "ranges": RANGES.values(),
            "owners": _owners(found),
            "oldest": _waiting(found) if counted.queued else [],
            "stalled": _stalled(found) if counted.stalled else [],
            "processes": [_shown(process) for process in processes],
        }
        return TemplateResponse(request, "admin/mcp_tasks/overview.html", context)


def _is_everything(request: HttpRequest) -> bool:
    everything = rows(database())
    return get_policy().queryset(request, everything) is everything


def _cards(now: Live, ended: Finished | None, at: datetime) -> Any:
    oldest = ""
    if now.oldest_queued_at is not None:
        oldest = _("oldest {age}").format(age=span((at - now.oldest_queued_at).total_seconds()))
    yield {"words": _("Queued"), "number": grouped(now.queued), "note": oldest, "query": "state=queued"}
    yield {"words": _("Running"), "number": grouped(now.running), "query": "state=running"}
    yield {"words": _("Need input"), "number": grouped(now.needs_input), "query": "state=needs-input"}
    yield {
        "words": _("Stalled"),
        "number": grouped(now.stalled),
        "query": "state=stalled",
        "is_bad": now.stalled > 0,
    }
    yield {"words": _("Expire in 10 min"), "number": grouped(now.expire_soon), "query": "expiry=10m"}
    if ended is not None:
        total = ended.found.total
        share = total.failed_share
        note = "" if share is None else _("{share} % failed").format(share=f"{100 * share:.1f}")
        yield {"words": ended.range.card, "number": grouped(total.count), "note": note, "anchor": "finished"}


# -- what waits, and who works ----------------------------------------------------------------------------------------


def _owners(found: TaskQuerySet) -> list[dict[str, Any]]:
    owners = busiest_owners(found, MOST_OWNERS)
    most = owners[0]["live"] if owners else 1
    return [
        {
            "key": row["owner"] or ANONYMOUS,
            "label": row["label"] or (f"{row['owner'][:8]}…" if row["owner"] else _("anonymous")),
            "number": row["live"],
            "shown": grouped(row["live"]),
            "most": most,
        }
        for row in owners
    ]


def _waiting(found: TaskQuerySet) -> list[dict[str, Any]]:
    return [_line(task, task.phase_at) for task in _brief_rows(longest_queued(found))]


def _stalled(found: TaskQuerySet) -> list[dict[str, Any]]:
    return [_line(task, task.due_at) for task in _brief_rows(longest_stalled(found))]


def _brief_rows(found: TaskQuerySet) -> Any:
    columns = ("ref", "tool", "phase_at", "due_at", "lease_holder")
    return found.only(*columns).annotate(read_at=DbNow())[:MOST_TASKS]


def _line(task: Any, since: datetime) -> dict[str, Any]:
    waited = span((task.read_at - since).total_seconds())
    return {"ref": task.pk, "tool": task.tool, "worker": task.lease_holder, "since": time_of(since, waited)}


def _processes() -> Any:
    found = Process.objects.using(database()).annotate(read_at=DbNow())
    return found.order_by("-seen_at", "name")[:MOST_PROCESSES]


def _shown(process: Any) -> dict[str, Any]:
    silent: timedelta = JANITOR_SILENT if process.kind == JANITOR else PROCESS_SILENT
    ago = process.read_at - process.seen_at
    return {
        "name": process.name,
        "kind": process.kind,
        "seen": time_of(process.seen_at, _("{time} ago").format(time=brief(ago))),
        "is_silent": ago > silent,
        "says": ", ".join(_says(process)),
    }


def _says(process: Any) -> Any:
    if process.slots:
        words = ngettext("{busy} of {slots} slot busy", "{busy} of {slots} slots busy", process.slots)
        yield words.format(busy=process.busy, slots=process.slots)
    own = tools_hash([tool.name for tool in registry])
    if process.kind != JANITOR and process.tools_hash and process.tools_hash != own:
        yield _("knows other tools than this server")
    only = only_tools(process)
    if only is not None:
        yield _("takes tasks of {tools} only").format(tools=", ".join(only))
    try:
        info = loads(process.info)
    except ValueError:
        return
    if isinstance(info, dict):
        if isinstance(info.get("changed"), int):
            yield ngettext("last changed {number} row", "last changed {number} rows", info["changed"]).format(
                number=info["changed"]
            )
        if isinstance(info.get("version"), str):
            yield _("version {version}").format(version=info["version"])
