"""The list of tasks: constant cost however many there are, filters that an index answers, no payload in it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import EmptyPage, Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..dbtime import DbNow
from ..models import Task
from ..operators.numbers import live
from ..operators.policy import may_see
from ..transports.websocket.operators import address
from .base import TaskPages
from .cells import COLUMNS, Cells, badge, cells, grouped, time_of
from .filters import ANONYMOUS, HARMLESS, LIST_FILTERS, READERS, UnknownFilter, narrowed

#: So many rows can be paged through; nobody reads on to the 200th page, and counting them all costs a scan.
MOST_ROWS = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than it pages. ``is_capped``: there is more."""

    @cached_property
    def _found(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[: MOST_ROWS + 1].count())

    @cached_property
    def count(self) -> int:
        return min(self._found, MOST_ROWS)

    @property
    def is_capped(self) -> bool:
        return self._found > MOST_ROWS

    def validate_number(self, number: Any) -> int:
        """The last page for what lies beyond it: the list gets shorter while somebody turns its pages."""
        try:
            return super().validate_number(number)
        except EmptyPage:
            return self.num_pages


class TaskChangeList(ChangeList):
    """Reads the columns of the list and no other, and the database's time with them. Each row has its ``cells``."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Any:
        found = super().get_queryset(request, exclude_parameters)
        return found.only(*COLUMNS).annotate(read_at=DbNow())

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        shows_payload = may_see(request.user, "payload")
        for task in self.result_list:
            task.cells = cells(task, task.read_at, shows_payload=shows_payload)
        self.page_num = min(self.page_num, self.paginator.num_pages)

    @property
    def shown_count(self) -> str:
        """The count as it is written."""
        return grouped(self.result_count)

    @property
    def newest(self) -> str:
        """What is newer than this is not on the page: the first row of the first page, else the time of the look."""
        if not self.result_list:
            return timezone.now().isoformat()
        first: Any = self.result_list[0]
        at: datetime = first.created_at if self.page_num == 1 else first.read_at
        return at.isoformat()


class ListPages(TaskPages):
    """The list of ``TaskAdmin``."""

    list_display = ("state_cell", "task_cell", "owner_cell", "progress_cell", "age_cell", "left_cell")
    list_display_links = None
    list_filter = LIST_FILTERS
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    ordering = ("-created_at", "-ref")
    search_fields = ()
    paginator = CappedPaginator
    actions = ("cancel_selected",)
    change_list_template = "admin/mcp_tasks/list.html"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return TaskChangeList

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """The filters of the sidebar; none of Django's by column, which would search payloads, and every row."""
        return lookup in READERS

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """
        The one action of tasks; neither those of the site, such as deleting, nor any on a list of wrong filters.

        Newer versions of Django ask for actions of a place, older ones know no place but the list.
        """
        if getattr(request, "has_wrong_filters", False):
            return {}
        place = () if action_location is None else (action_location,)
        found = super().get_actions(request, *place)
        return {name: action for name, action in found.items() if name == "cancel_selected"}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, with what is unfinished in numbers above it."""
        if self.has_view_permission(request):
            self._drop_wrong_filters(request)
            extra_context = {
                "title": _("MCP tasks"),
                "chips": self._chips(request),
                "filter_query": _query(request.GET),
                "socket_address": address(),
                **(extra_context or {}),
            }
        return super().changelist_view(request, extra_context)

    def _drop_wrong_filters(self, request: HttpRequest) -> None:
        try:
            narrowed(Task.objects.none(), request.GET.dict())
        except UnknownFilter:
            request.GET = QueryDict()
            request.has_wrong_filters = True  # type: ignore[attr-defined]
            words = _("The address asks for a filter that does not exist, so this list shows all tasks.")
            messages.warning(request, words)

    def _chips(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Links to the filters that are asked for most, all their numbers from one look at the unfinished rows."""
        now = live(self.get_queryset(request))
        return [
            {"query": "state=queued", "number": grouped(now.queued), "words": _("queued")},
            {"query": "state=running", "number": grouped(now.running), "words": _("running")},
            {"query": "state=needs-input", "number": grouped(now.needs_input), "words": _("need input")},
            {"query": "state=stalled", "number": grouped(now.stalled), "words": _("stalled"), "is_bad": now.stalled},
            {"query": "expiry=10m", "number": grouped(now.expire_soon), "words": _("expire in 10 min")},
            {"query": "state=failed&created=1h", "number": "", "words": _("failed, created last hour")},
        ]

    # -- columns ----------------------------------------------------------------------------------------------------

    def action_checkbox(self, obj: Any) -> SafeString:
        """As Django's, whose template for it takes a fifth of the time of the whole page."""
        return format_html(
            '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="{}">',
            ACTION_CHECKBOX_NAME,
            obj.pk,
            _("Select this object for an action - {}").format(obj),
        )

    @admin.display(description=gettext_lazy("state"))
    def state_cell(self, task: Any) -> SafeString:
        shown: Cells = task.cells
        return format_html(
            '<div class="mcp-live" data-ref="{}" data-revision="{}">{}<div class="mcp-note">{}</div></div>',
            task.pk,
            task.revision,
            badge(shown.state),
            shown.note,
        )

    @admin.display(description=gettext_lazy("task"))
    def task_cell(self, task: Any) -> SafeString:
        # Relative to the list: to look the address up takes as long as all else in this cell.
        return format_html(
            '<a class="mcp-tool" href="{}/">{}</a><div class="mcp-note mcp-mono">{}</div>',
            task.pk,
            task.tool,
            task.pk.hex[:8],
        )

    @admin.display(description=gettext_lazy("owner"))
    def owner_cell(self, task: Any) -> SafeString:
        if task.owner_key is None:
            return format_html('<a class="mcp-owner" href="?owner={}">{}</a>', ANONYMOUS, _("anonymous"))
        label = task.owner_label or f"{task.owner_key[:8]}…"
        return format_html(
            '<a class="mcp-owner" href="?owner={}" title="{}"><bdi>{}</bdi></a>', task.owner_key, label, label
        )

    @admin.display(description=gettext_lazy("progress"))
    def progress_cell(self, task: Any) -> SafeString:
        shown: Cells = task.cells
        is_empty = not shown.amount and not shown.message
        return format_html(
            '<div class="mcp-progress"><progress max="100" value="{}" aria-label="{}"{}></progress> '
            '<span class="mcp-amount">{}</span></div><div class="mcp-message" title="{}">{}</div>',
            shown.percent or 0,
            _("Progress"),
            SafeString(" hidden" if shown.percent is None else ""),
            "—" if is_empty else shown.amount,
            shown.message,
            shown.message,
        )

    @admin.display(description=gettext_lazy("age"))
    def age_cell(self, task: Any) -> SafeString:
        return time_of(task.created_at, task.cells.age, "mcp-age")

    @admin.display(description=gettext_lazy("TTL left"))
    def left_cell(self, task: Any) -> SafeString:
        shown: Cells = task.cells
        classes = "mcp-left mcp-short" if shown.is_short else "mcp-left"
        if task.expires_at is None:
            return format_html('<span class="{}">{}</span>', classes, shown.left)
        return time_of(task.expires_at, shown.left, classes)

    # -- the action -------------------------------------------------------------------------------------------------

    @admin.action(description=gettext_lazy("Cancel selected tasks…"), permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        """Go on to the page that says what would be cancelled; nothing happens here."""
        parameters: Mapping[str, str]
        if request.POST.get("select_across") == "1":
            parameters = {"everything": "1", **_filters(request.GET)}
        else:
            parameters = {"refs": ",".join(request.POST.getlist(ACTION_CHECKBOX_NAME))}
        address = reverse(f"{self.admin_site.name}:mcp_tasks_task_bulk_cancel")
        return HttpResponseRedirect(f"{address}?{urlencode(parameters)}")

    def response_action(self, request: HttpRequest, queryset: Any, *more: Any, **options: Any) -> Any:
        """As Django does, once every ticked box is known to name a task."""
        try:
            [UUID(ref) for ref in request.POST.getlist(ACTION_CHECKBOX_NAME)]
        except ValueError:
            messages.warning(request, _("Something else than tasks was selected. Nothing was done."))
            return None
        return super().response_action(request, queryset, *more, **options)


def _filters(parameters: Any) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if name not in HARMLESS}


def _query(parameters: Any) -> str:
    return urlencode(_filters(parameters))
