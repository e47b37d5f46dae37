"""The page that cancels many tasks: what was ticked, or everything that matched the filters when it was asked for."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods

from ..connections import outside_transactions
from ..dbtime import current
from ..lifecycle import DONE, PARKED, QUEUED, RUNNING
from ..models import Task
from ..operators import audit
from ..operators.acting import actor_of
from ..operators.bulk import MOST_AT_ONCE, BulkReport, cancel_all, cancellable
from ..operators.instants import instant_of
from ..operators.policy import VERBS, has_permission, refusal
from ..querysets import in_phase
from ..store.locking import database
from .base import TaskPages
from .download import LARGE
from .filters import HARMLESS, UnknownFilter, narrowed, refs_of
from .verbs import ReasonField

#: So far is counted what has finished already: beyond it the number says no more.
MOST_FINISHED = 1000
#: Parameters of this page that are no filters.
OWN = {"refs", "everything", "as_of", "after"}
#: Where the reason waits while somebody goes on with the next ones.
SESSION_KEY = "mcp_tasks_bulk_reason"

CANCEL = VERBS["cancel"]


@dataclass(frozen=True, slots=True)
class Selection:
    """
    Which tasks are meant: ticked ones, or all that match the filters and were created by ``as_of``.

    ``after`` is the last one that was dealt with: who goes on does not begin with what was left alone before.
    """

    refs: tuple[UUID, ...]
    filters: dict[str, str]
    as_of: datetime
    after: tuple[datetime, UUID] | None

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> "Selection":
        """What an address or the form of the page says; BadRequest for anything that it could not have said."""
        as_of = _instant(parameters["as_of"]) if "as_of" in parameters else current(database())
        if "everything" not in parameters:
            refs = refs_of(parameters.get("refs", ""))
            if refs is None:
                raise BadRequest("refs")
            return cls(tuple(dict.fromkeys(refs)), {}, as_of, None)
        filters = {name: value for name, value in parameters.items() if name not in OWN | HARMLESS}
        after = None
        if parameters.get("after"):
            at, _comma, ref = parameters["after"].partition(",")
            found = refs_of(ref)
            if found is None:
                raise BadRequest("after")
            after = (_instant(at), found[0])
        return cls((), filters, as_of, after)

    @property
    def is_everything(self) -> bool:
        """Nothing narrows it down: whoever means that has to write so."""
        return not self.refs and not self.filters

    @property
    def query(self) -> str:
        """The same as part of an address."""
        if self.refs:
            return urlencode({"refs": ",".join(str(ref) for ref in self.refs)})
        after = {"after": f"{self.after[0].isoformat()},{self.after[1]}"} if self.after else {}
        return urlencode({"everything": "1", **self.filters, "as_of": self.as_of.isoformat(), **after})

    def rows(self, visible: Any) -> Any:
        """All rows that are meant, finished ones too."""
        if self.refs:
            return narrowed(visible, {"ref": ",".join(str(ref) for ref in self.refs)})
        found = narrowed(visible, self.filters).filter(created_at__lte=self.as_of)
        if self.after is not None:
            at, ref = self.after
            found = found.filter(Q(created_at__gt=at) | Q(pk__gt=ref), created_at__gte=at)
        return found


def _instant(text: str) -> datetime:
    at = instant_of(text)
    if at is None:
        raise BadRequest("not an instant")
    return at


class BulkForm(forms.Form):
    """Reason, who reads it, and a word for who means all tasks."""

    reason = ReasonField()
    share_reason = forms.BooleanField(
        required=False, initial=True, label=gettext_lazy("Send the reason to the clients as the status message")
    )
    word = forms.CharField(
        label=gettext_lazy("Nothing narrows this down: write CANCEL to go on"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "size": 12}),
    )

    def __init__(self, *arguments: Any, is_everything: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.label_suffix = ""
        if not is_everything:
            del self.fields["word"]

    def clean_word(self) -> str:
        word: str = self.cleaned_data["word"]
        if word != "CANCEL":
            raise forms.ValidationError(_("Write the word CANCEL, in capitals."))
        return word


@dataclass(slots=True)
class Step:
    """What one request deals with: at most so many tasks, oldest first. ``kept``: those the policy takes out."""

    tasks: list[Task]
    kept: set[UUID]
    more: bool

    @property
    def allowed(self) -> list[Task]:
        return [task for task in self.tasks if task.pk not in self.kept]


class BulkPages(TaskPages):
    """The page that cancels many tasks."""

    def bulk_urls(self) -> list[URLPattern]:
        """Its address."""
        view = self.admin_site.admin_view(require_http_methods(["GET", "HEAD", "POST"])(self.bulk_page))
        return [path("bulk-cancel/", outside_transactions(view), name="mcp_tasks_task_bulk_cancel")]

    def bulk_page(self, request: HttpRequest) -> HttpResponse:
        """GET counts what would be cancelled, POST with a reason cancels the oldest of them, one by one."""
        if not has_permission(request.user, CANCEL):
            raise PermissionDenied
        given = QueryDict(request.POST["query"]) if "query" in request.POST else request.GET
        if request.method != "POST" and not {"refs", "everything"} & given.keys():
            messages.info(request, _("No tasks were selected."))
            return self._to_list()
        selection = Selection.read(given.dict())
        try:
            found = selection.rows(self.get_queryset(request))
        except UnknownFilter:
            messages.warning(request, _("The address asks for a filter that does not exist. Nothing was done."))
            return self._to_list()
        tasks = list(cancellable(found, selection.as_of).defer(*LARGE)[: MOST_AT_ONCE + 1])
        more = len(tasks) > MOST_AT_ONCE
        tasks = tasks[:MOST_AT_ONCE]
        step = Step(tasks, {task.pk for task in tasks if refusal(request, CANCEL, task) is not None}, more)
        waiting = request.session.get(SESSION_KEY) if selection.after else None
        form = BulkForm(is_everything=selection.is_everything, initial=waiting)
        if "reason" in request.POST:
            form = BulkForm(request.POST, is_everything=selection.is_everything)
            if form.is_valid():
                return self._cancel(request, selection, found, step, form.cleaned_data)
        return TemplateResponse(
            request, "admin/mcp_tasks/bulk.html", self._context(request, selection, found, step, form)
        )

    def _context(
        self, request: HttpRequest, selection: Selection, found: Any, step: Step, form: BulkForm
    ) -> dict[str, Any]:
        counts = Counter(task.phase for task in step.allowed)
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Cancel tasks"),
            "form": form,
            "selection": selection,
            "number": len(step.allowed),
            "queued": counts[QUEUED],
            "running": counts[RUNNING],
            "waiting": counts[PARKED],
            "kept": len(step.kept),
            # By the filters' own index: SQLite would look for an owner's among all that are done.
            "finished": found.filter(in_phase(DONE)).order_by().values("pk")[:MOST_FINISHED].count(),
            "most_finished": MOST_FINISHED,
            "more": step.more,
            "most": MOST_AT_ONCE,
        }

    def _cancel(
        self, request: HttpRequest, selection: Selection, found: Any, step: Step, given: dict[str, Any]
    ) -> HttpResponse:
        known = set(found.values_list("pk", flat=True)) if selection.refs else set()
        allowed = step.allowed
        report = cancel_all(
            (task.pk for task in allowed),
            actor=actor_of(request.user),
            user=request.user,
            reason=given["reason"],
            share_reason=given["share_reason"],
        )
        reached = step.tasks
        if report.more:  # time was up: the page goes on behind the last one that was tried
            tried = len(report.cancelled) + report.finished_meanwhile + report.refused
            reached = step.tasks[: step.tasks.index(allowed[tried - 1]) + 1] if tried else []
        report.refused += sum(task.pk in step.kept for task in reached)
        report.more = report.more or step.more
        missing = 0
        if selection.refs:
            missing = len(set(selection.refs) - known)
            report.finished_meanwhile += len(known.difference(task.pk for task in step.tasks))
        cancelled = set(report.cancelled)
        audit.enter(request.user, [task for task in reached if task.pk in cancelled], CANCEL, given["reason"])
        level = messages.SUCCESS if cancelled else messages.WARNING
        messages.add_message(request, level, " ".join(_told(report, missing)))
        if not report.more:
            request.session.pop(SESSION_KEY, None)
            return self._to_list()
        request.session[SESSION_KEY] = given
        address = reverse(f"{self.admin_site.name}:mcp_tasks_task_bulk_cancel")
        rest = replace(selection, after=(reached[-1].created_at, reached[-1].pk) if reached else selection.after)
        return HttpResponseRedirect(f"{address}?{rest.query}")

    def _to_list(self) -> HttpResponse:
        return HttpResponseRedirect(reverse(f"{self.admin_site.name}:mcp_tasks_task_changelist"))


def _told(report: BulkReport, missing: int) -> list[str]:
    """The counts as sentences; they add up to what was dealt with."""
    number = len(report.cancelled)
    said = [ngettext("Cancelled {number} task.", "Cancelled {number} tasks.", number).format(number=number)]
    if number := report.finished_meanwhile:
        said.append(ngettext("{number} had finished.", "{number} had finished.", number).format(number=number))
    if number := report.refused:
        words = _("{number} could not be cancelled (not yours to act on).")
        said.append(words.format(number=number))
    if missing:
        words = ngettext("{number} is not there any more.", "{number} are not there any more.", missing)
        said.append(words.format(number=missing))
    return [*said, _("More are left.")] if report.more else said
