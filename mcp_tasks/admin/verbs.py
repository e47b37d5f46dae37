"""What an operator does to one task: a page that says what it means, asks for a reason, and then does it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods

from .. import conf
from ..connections import outside_transactions
from ..lifecycle import DONE, QUEUED, RUNNING
from ..models import Task
from ..operators import audit
from ..operators.acting import REASON_LONGEST, Order, WrongRequest, act, actor_of, checked_reason
from ..operators.policy import VERBS, Verb, has_permission, refusal
from ..operators.states import state_of
from ..protocol.codec import loads
from ..protocol.tasks import CANCELLED, FAILED, WORKING
from ..store import rules
from ..store.types import Outcome
from .base import TaskPages
from .detail import task_context
from .download import found_task

COLUMNS = {"dismiss": ("asks_json",)}
#: A tool that tells of its progress may change the task between two looks, but not this often in a row.
TRIES = 5


def run_of(task: Task) -> str:
    """
    The run that an operator looks at; empty while nothing runs.

    What a tool says of its progress is a new revision, several times a second. It is no news to who wants to stop it.
    """
    is_working = task.phase == RUNNING and task.status == WORKING
    return f"leg {task.leg} until {task.expires_at}" if is_working else ""


def _next_try(task: Task) -> int:
    return min(task.attempts, task.max_attempts - 1) + 1


def _open_forms(task: Task) -> int:
    try:
        return sum(rules.is_form(question) for question in loads(task.asks_json or "{}").values())
    except (ValueError, AttributeError):  # nobody wrote that by the rules; the store will say so
        return 0


def moment(at: datetime | None) -> str:
    """An instant in the zone of the site."""
    return "" if at is None else f"{localtime(at):%Y-%m-%d %H:%M}"


def _requeued(task: Task, order: Order) -> str:
    return _("Queued again as try {tried} of {tries}.").format(tried=_next_try(task), tries=task.max_attempts)


def _cancelled(task: Task, order: Order) -> str:
    return _("Cancelled. The worker has been told to stop.") if task.lease_holder else _("Cancelled.")


def _dismissed(task: Task, order: Order) -> str:
    number = _open_forms(task)
    return ngettext("Dismissed {number} question.", "Dismissed {number} questions.", number).format(number=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """
    The words of a verb, said when it was done.

    ``shares``: whether the reason goes to the client unless somebody says otherwise; None where it never does.
    ``is_done``: whether a task is already what was wished for, so that nothing is left to do.
    """

    button: str | Promise
    said: Callable[[Task, Order], str]
    shares: bool | None = None
    is_done: Callable[[Task], bool] = lambda task: False


PAGES: dict[str, Page] = {
    "requeue": Page(button=gettext_lazy("Queue it again"), said=_requeued, is_done=lambda task: task.phase == QUEUED),
    "extend": Page(
        button=gettext_lazy("Extend its time"),
        said=lambda task, order: _("Expires {time}.").format(time=moment(order.expires_at)),
    ),
    "dismiss": Page(button=gettext_lazy("Dismiss the questions"), said=_dismissed),
    "fail": Page(
        button=gettext_lazy("Mark it failed"),
        said=lambda task, order: _("Marked failed."),
        shares=False,
        is_done=lambda task: task.phase == DONE and task.status == FAILED,
    ),
    "cancel": Page(
        button=gettext_lazy("Cancel the task"),
        said=_cancelled,
        shares=True,
        is_done=lambda task: task.phase == DONE and task.status == CANCELLED,
    ),
    "delete": Page(button=gettext_lazy("Delete it for good"), said=lambda task, order: _("Deleted.")),
}


def choices(task: Task, now: datetime) -> dict[str, tuple[str, datetime]]:
    """Until when a task may be kept: only what is longer than now, and no longer than the settings allow."""
    limit = conf.get_settings().MAX_TTL_MS
    latest = None if limit is None else task.created_at + timedelta(milliseconds=limit)
    found: dict[str, tuple[str, datetime]] = {
        "1h": (_("1 hour from now"), now + timedelta(hours=1)),
        "6h": (_("6 hours from now"), now + timedelta(hours=6)),
        "1d": (_("1 day from now"), now + timedelta(days=1)),
        "7d": (_("7 days from now"), now + timedelta(days=7)),
    }
    if latest is not None:
        found = {name: it for name, it in found.items() if it[1] < latest}
        found["most"] = (_("As long as this server allows"), latest)
    if task.expires_at is None:
        return {}
    return {name: it for name, it in found.items() if it[1] > task.expires_at + timedelta(seconds=1)}


class ReasonField(forms.CharField):
    """Why an operator does something, on one line; the same rules as everywhere."""

    def __init__(self) -> None:
        hints = {"rows": 2, "cols": 60, "maxlength": REASON_LONGEST, "autocomplete": "off"}
        words = gettext_lazy("3 to 500 characters. Kept in the timeline of the task.")
        super().__init__(label=gettext_lazy("Reason"), help_text=words, widget=forms.Textarea(attrs=hints))

    def clean(self, value: Any) -> str:
        text = super().clean(value)
        try:
            return checked_reason(re.sub(r"\r\n?|\n", " ", text))
        except WrongRequest as problem:
            raise forms.ValidationError(str(problem)) from None


class ConfirmForm(forms.Form):
    """What a confirmation page asks: reason, who reads it, for how long, and what was looked at."""

    revision = forms.IntegerField(widget=forms.HiddenInput)
    run = forms.CharField(widget=forms.HiddenInput, required=False)
    reason = ReasonField()
    share_reason = forms.BooleanField(
        required=False, label=gettext_lazy("Send the reason to the client as the status message")
    )
    until = forms.ChoiceField(label=gettext_lazy("Keep it until"), widget=forms.RadioSelect)

    def __init__(self, *arguments: Any, verb: Verb, task: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.label_suffix = ""
        self.times = choices(task, task.now) if verb.name == "extend" else {}
        until: Any = self.fields["until"]
        until.choices = [(name, f"{words} ({moment(at)})") for name, (words, at) in self.times.items()]
        if verb.name != "extend":
            del self.fields["until"]
        if PAGES[verb.name].shares is None:
            del self.fields["share_reason"]

    def was_made_for(self, task: Any) -> bool:
        """Whether the task is what the operator looked at, but for the progress of its run."""
        seen = self.cleaned_data
        return seen.get("revision") == task.revision or (
            seen.get("revision") is not None and seen.get("run", "") != "" and seen["run"] == run_of(task)
        )

    def order(self, verb: Verb, task: Any) -> Order:
        """What was ordered, once the form is valid."""
        given = self.cleaned_data
        until = self.times.get(given.get("until", ""))
        return Order(
            verb=verb.name,
            reason=given["reason"],
            revision=task.revision,
            share_reason=given.get("share_reason"),
            expires_at=until and until[1],
        )


class VerbPages(TaskPages):
    """The confirmation pages of ``TaskAdmin``."""

    def verb_urls(self) -> list[URLPattern]:
        """One address for all verbs of a task."""
        view = self.admin_site.admin_view(require_http_methods(["GET", "HEAD", "POST"])(self.verb_page))
        return [path("<uuid:ref>/<str:verb>/", outside_transactions(view), name="mcp_tasks_task_verb")]

    def verb_page(self, request: HttpRequest, ref: UUID, verb: str) -> HttpResponse:
        """GET shows what would happen, POST does it; each looks at permission, policy, state and revision anew."""
        if verb not in VERBS:
            raise Http404
        wanted = VERBS[verb]
        if not has_permission(request.user, wanted):
            raise PermissionDenied
        task = found_task(self, request, ref, *COLUMNS.get(verb, ()))
        kept = refusal(request, wanted, task)
        if kept is not None:
            if request.method == "POST":
                user, code = request.user, audit.PERMISSION_DENIED
                audit.note(task.pk, action=verb, actor=actor_of(user), code=code, user=user)
            return self._page(request, task, wanted, problem=kept, status=403)
        if request.method == "POST":
            return self._ordered(request, task, wanted)
        if not wanted.applies(task, task.now):
            return self._not_now(request, task, wanted)
        shown = {"revision": task.revision, "run": run_of(task), "share_reason": PAGES[verb].shares}
        return self._page(request, task, wanted, ConfirmForm(initial=shown, verb=wanted, task=task))

    def _ordered(self, request: HttpRequest, task: Any, verb: Verb, *, tries: int = TRIES) -> HttpResponse:
        if PAGES[verb.name].is_done(task):
            return self._not_now(request, task, verb)
        form = ConfirmForm(request.POST, verb=verb, task=task)
        is_valid = form.is_valid()
        if not form.was_made_for(task) or not verb.applies(task, task.now):
            return self._changed(request, task, verb)
        if not is_valid:
            return self._page(request, task, verb, form)
        order = form.order(verb, task)
        try:
            outcome = act(request, task, order)
        except PermissionError as problem:
            return self._page(request, task, verb, problem=str(problem), status=403)
        except WrongRequest as problem:
            form.add_error("until" if problem.field == "expires_at" else problem.field, str(problem))
            return self._page(request, task, verb, form)
        if not outcome:
            return self._lost(request, task, verb, outcome, tries=tries)
        audit.enter(request.user, [task], verb, order.reason)
        messages.success(request, PAGES[verb.name].said(task, order))
        return self._to_list() if verb.name == "delete" else self._to(task)

    def _lost(self, request: HttpRequest, task: Any, verb: Verb, outcome: Outcome, *, tries: int) -> HttpResponse:
        """Somebody was faster: say what the task is now, or look again where it may have been progress alone."""
        try:
            current = found_task(self, request, task.pk, *COLUMNS.get(verb.name, ()))
        except Http404:
            messages.warning(request, _("The task was removed meanwhile. Nothing was done."))
            return self._to_list()
        if outcome.why == "changed" and run_of(task) and run_of(current) == run_of(task) and tries > 1:
            return self._ordered(request, current, verb, tries=tries - 1)
        tell = self._not_now if outcome.why in ("terminal", "expired") else self._changed
        return tell(request, current, verb)

    def _changed(self, request: HttpRequest, task: Any, verb: Verb) -> HttpResponse:
        """The task is not what the operator looked at: the page again, with what it is now."""
        words = _("The task changed while you were reading: it is now “{state}”. Nothing was done.")
        problem, form = words.format(state=state_of(task, task.now).word), None
        if verb.applies(task, task.now):
            told = {"reason": request.POST.get("reason", ""), "share_reason": "share_reason" in request.POST}
            told |= {"revision": task.revision, "run": run_of(task)}
            form = ConfirmForm(initial=told, verb=verb, task=task)
        return self._page(request, task, verb, form, problem=problem, status=409)

    def _not_now(self, request: HttpRequest, task: Any, verb: Verb) -> HttpResponse:
        """Nothing to do: it is what was wished for, or it is finished; the task page explains the rest."""
        word = state_of(task, task.now).word
        if PAGES[verb.name].is_done(task):
            messages.info(request, _("It is “{state}” already. Nothing was done.").format(state=word))
        else:
            words = _("{verb}: not possible while the task is “{state}”. Nothing was done.")
            messages.warning(request, words.format(verb=verb.label, state=word))
        return self._to(task)

    def _page(
        self,
        request: HttpRequest,
        task: Any,
        verb: Verb,
        form: ConfirmForm | None = None,
        *,
        problem: str = "",
        status: int = 200,
    ) -> HttpResponse:
        context = task_context(self, request, task, verb=verb, page=PAGES[verb.name], form=form, problem=problem)
        context |= {
            "title": f"{verb.label}: {context['title']}",
            "task_title": context["title"],
            "open_forms": _open_forms(task) if verb.name == "dismiss" else 0,
            "says": f"admin/mcp_tasks/confirm_{verb.name}.html",
            "next_try": _next_try(task),
            "generic_text": rules.FAILED_BY_OPERATOR,
        }
        return TemplateResponse(request, "admin/mcp_tasks/confirm.html", context, status=status)

    def _to(self, task: Task) -> HttpResponse:
        """To the task page; the mark puts the focus on its heading, with no script."""
        address = reverse(f"{self.admin_site.name}:mcp_tasks_task_change", args=[task.pk])
        return HttpResponseRedirect(f"{address}#title")

    def _to_list(self) -> HttpResponse:
        return HttpResponseRedirect(reverse(f"{self.admin_site.name}:mcp_tasks_task_changelist"))
