"""``live.json``: what has changed in the rows that an open list shows, and how many newer ones it does not."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import IntegerField, Subquery
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from ..dbtime import DbNow
from ..operators.instants import instant_of
from ..operators.policy import may_see
from .base import TaskPages
from .cells import COLUMNS, as_json
from .filters import UnknownFilter, narrowed, refs_of

MOST_ROWS, MOST_NEWER = 100, 99


class _Number(Subquery):
    """How many rows a query has; it knows nothing of the rows around it, so it is answered once."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) found)"
    output_field = IntegerField()


class LivePages(TaskPages):
    """The live refresh of ``TaskAdmin``'s list."""

    def live_urls(self) -> list[Any]:
        """Where the script of the list asks."""
        view = self.admin_site.admin_view(require_safe(self.live))
        return [path("live.json", view, name="mcp_tasks_task_live")]

    def live(self, request: HttpRequest) -> HttpResponse:
        """
        The rows of ``refs`` that still exist for this operator, and the count of rows newer than ``since`` that match
        the filters which the address has beside them; 400 for what no list would have sent.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        filters = request.GET.dict()
        named = filters.pop("refs", "")
        refs = refs_of(named) if named else []
        since = instant_of(filters.pop("since", ""))
        if refs is None or len(refs) > MOST_ROWS or since is None:
            return JsonResponse({"error": "refs or since"}, status=400)
        found = self.get_queryset(request)
        try:
            matching = narrowed(found, filters).filter(created_at__gt=since)
        except UnknownFilter:
            return JsonResponse({"error": "filter"}, status=400)
        newer = matching.order_by().values("pk")[:MOST_NEWER]
        rows = found.filter(pk__in=refs).only(*COLUMNS).annotate(read_at=DbNow(), newer=_Number(newer)).order_by()
        tasks: list[Any] = list(rows) if refs else []
        shows_payload = may_see(request.user, "payload")
        answer = {
            "newer": tasks[0].newer if tasks else newer.count(),
            "checked": f"{timezone.localtime():%H:%M:%S}",
            "tasks": {str(task.pk): as_json(task, task.read_at, shows_payload=shows_payload) for task in tasks},
        }
        return JsonResponse(answer, headers={"Cache-Control": "no-store"})
