"""The page of one task: what it is, why it is where it is, what went in and came out, and what happened to it."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import django
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from .. import __version__
from ..lifecycle import DONE, LIVE, OUTSTANDING, PARKED, QUEUED, RUNNING
from ..models import Task, TaskEvent, TaskInput
from ..operators.policy import VERBS, has_permission, may_see, offered, refusal
from ..operators.states import EXPIRED_STATE, STALLED, is_handed_over, is_still_stopping, state_of
from ..operators.vitals import facts_about
from ..operators.why import span, why
from ..protocol.codec import Json, loads
from ..store.locking import database
from .base import TaskPages
from .cells import badge, cells, clock, precise, time_of
from .download import PAYLOADS, DownloadPages, found_task, payloads_of, questions_of, visible_text

MOST_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the time bar, in percent of its width."""

    name: str
    words: str
    start: float
    width: float


def spent(task: Task, now: datetime) -> list[Span]:
    """Where the time went: the sums of the row, and what the phase that lasts has taken so far."""
    sums = {QUEUED: task.queue_ms, RUNNING: task.run_ms, PARKED: task.wait_ms}
    if task.phase in sums:
        until = now if task.expires_at is None else min(now, task.expires_at)
        sums[task.phase] += max(0, int((until - task.phase_at).total_seconds() * 1000))
    words = {QUEUED: _("in the queue {time}"), RUNNING: _("running {time}"), PARKED: _("waiting {time}")}
    whole, start, parts = sum(sums.values()) or 1, 0.0, []
    for name, took_ms in sums.items():
        width = round(100 * took_ms / whole, 2)
        parts.append(Span(name, words[name].format(time=precise(took_ms)), round(start, 2), width))
        start += width
    return parts


#: Kinds of events that tell of something that went wrong; ``task_event.html`` has the words for all of them.
BAD = {"ask_timeout", "retried", "leg_lost", "failed", "late_result", "access_refused"}


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of the timeline. ``actor`` is an operator's name where one acted; ``since``: from the entry before."""

    at: datetime
    clock: str
    kind: str
    actor: str
    notes: list[str]
    is_bad: bool
    since: str


def timeline(events: Sequence[TaskEvent]) -> list[Moment]:
    """The entries, oldest first. Names of operators cost one statement where there are any."""
    names = _names({event.actor for event in events if event.actor.startswith("operator:")})
    moments: list[Moment] = []
    for event in events:
        passed_ms = (event.at - moments[-1].at) // timedelta(milliseconds=1) if moments else 0
        since = precise(passed_ms) if passed_ms >= 50 else ""
        actor = names.get(event.actor, event.actor)
        moments.append(Moment(event.at, clock(event.at), event.kind, actor, _notes(event), event.kind in BAD, since))
    return moments


def _names(actors: set[str]) -> dict[str, str]:
    if not actors:
        return {}
    users = get_user_model()
    keys = [key for actor in actors if (key := _user_key(users, actor.partition(":")[2])) is not None]
    return {f"operator:{user.pk}": user.get_username() for user in users._base_manager.filter(pk__in=keys)}


def _user_key(users: Any, text: str) -> Any:
    try:
        return users._meta.pk.to_python(text)
    except ValidationError:  # the project has another model of users by now
        return None


def _notes(event: TaskEvent) -> list[str]:
    """The small facts of an event, as words."""
    try:
        detail = loads(event.detail) if event.detail else {}
    except ValueError:
        detail = {}
    notes = [] if event.leg is None else [_("leg {number}").format(number=event.leg)]
    if isinstance(detail, dict):
        notes += [words for key, value in detail.items() if (words := _note(key, value))]
    return notes


def _note(key: str, value: Json) -> str:
    if key in ("asked", "keys") and isinstance(value, int):
        return ngettext("{number} question", "{number} questions", value).format(number=value)
    if key == "superseded" and isinstance(value, int) and value:
        return ngettext("{number} taken back", "{number} taken back", value).format(number=value)
    if key == "count" and isinstance(value, int):
        return _("{number} times").format(number=value) if value > 1 else ""
    if key == "ttl_ms":
        return _("without end") if not isinstance(value, int) else span(value / 1000)
    if key == "reason" and isinstance(value, str):
        return f"“{visible_text(value)}”"
    return str(value) if key in ("outcome", "worker") and isinstance(value, str) else ""


class DetailPages(DownloadPages):
    """The task page of ``TaskAdmin``, and what can be taken from it."""

    def detail_urls(self) -> list[URLPattern]:
        """The page of a task, its summary for a ticket, its payloads as files."""
        wrap = self.admin_site.admin_view
        return [
            path("<uuid:ref>/", wrap(require_safe(self.task_page)), name="mcp_tasks_task_change"),
            path("<uuid:ref>/support/", wrap(require_safe(self.support_page)), name="mcp_tasks_task_support"),
            *self.download_urls(),
        ]

    def task_page(self, request: HttpRequest, ref: UUID) -> HttpResponse:
        """
        Facts, time, questions, payloads and timeline; buttons for what this operator may do to it now.

        Session, user, task, events and questions are five statements. An unfinished task costs those of
        ``facts_about`` besides, and a timeline in which operators act, one for their names.
        """
        shows_payload, shows_traceback = may_see(request.user, "payload"), may_see(request.user, "traceback")
        columns = (*(PAYLOADS if shows_payload else ()), *(("traceback",) if shows_traceback else ()))
        task = found_task(self, request, ref, *columns)
        state = state_of(task, task.now)
        events, older = _events(task, request.GET.get("before", ""))
        questions = questions_of(task, shows_payload)
        facts = facts_about(task, task.now, _open_keys(questions))
        context = {
            **task_context(self, request, task),
            "sentence": why(task, facts),
            "is_urgent": state is STALLED or (task.phase == QUEUED and not facts.live_workers),
            "spans": spent(task, task.now),
            "moments": timeline(events),
            "older": older,
            "verbs": offered(request, task, task.now),
            "kept": _kept(request, task, task.now),
            "shows_payload": shows_payload,
            "shows_secrets": shows_payload and may_see(request.user, "secrets"),
            **payloads_of(request, task, questions, shows_payload),
            "traceback": visible_text(task.traceback or "") if shows_traceback and state is not EXPIRED_STATE else "",
        }
        return TemplateResponse(request, "admin/mcp_tasks/task.html", context)

    def support_page(self, request: HttpRequest, ref: UUID) -> HttpResponse:
        """A summary to paste into a ticket: no payload, no owner, no words of anybody."""
        task = found_task(self, request, ref)
        events, _older = _events(task, "")
        facts = facts_about(task, task.now, _open_keys(questions_of(task, False)))
        context = task_context(self, request, task)
        context |= {
            "title": _("Support summary"),
            "task_title": context["title"],
            "text": "\n".join(_summary(task, why(task, facts), events)),
        }
        return TemplateResponse(request, "admin/mcp_tasks/support.html", context)


def task_context(admin: TaskPages, request: HttpRequest, task: Any, **more: Any) -> dict[str, Any]:
    """What every page about one task shows."""
    now, state = task.now, state_of(task, task.now)
    shown = cells(task, now, shows_payload=may_see(request.user, "payload"))
    is_live = task.phase in LIVE and state is not EXPIRED_STATE
    instants = ("created_at", "started_at", "finished_at", "updated_at")
    return {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": f"{visible_text(task.tool)} · {task.pk.hex[:8]}",
        "tool": visible_text(task.tool),
        "task": task,
        "state": state,
        "badge": badge(state),
        "cells": shown,
        "owner": visible_text(task.owner_label or "") or (f"{task.owner_key[:8]}…" if task.owner_key else ""),
        "trace": visible_text(task.trace_context or ""),
        "message": visible_text(shown.message),
        "is_live": is_live,
        "is_finished": task.phase == DONE and state is not EXPIRED_STATE,
        "is_stalled": state is STALLED,
        "is_handed_over": is_handed_over(task),
        "is_still_stopping": is_still_stopping(task, now),
        "ends": _away(task.expires_at, now),
        "lease": _away(task.due_at, now) if task.phase == RUNNING else None,
        **{name: _away(getattr(task, name), now) for name in instants},
        **more,
    }


def _away(at: datetime | None, now: datetime) -> SafeString | None:
    """How far an instant is away, with the instant itself for who points at it."""
    return None if at is None else time_of(at, span(abs((at - now).total_seconds())))


def _events(task: Task, before: str) -> tuple[list[TaskEvent], int | None]:
    """The newest events, or those before one of them, oldest first; and from where older ones go on."""
    found = TaskEvent.objects.using(database()).filter(task_id=task.pk).order_by("-id")
    if before.isascii() and before.isdecimal() and len(before) < 19:
        found = found.filter(pk__lt=int(before))
    events = list(found[: MOST_EVENTS + 1])
    older = events[MOST_EVENTS - 1].pk if len(events) > MOST_EVENTS else None
    return events[:MOST_EVENTS][::-1], older


def _open_keys(questions: Sequence[TaskInput]) -> list[str]:
    return [it.key for it in questions if it.state == OUTSTANDING]


def _summary(task: Any, sentence: str | None, events: Sequence[TaskEvent]) -> Iterator[str]:
    """A task in lines of text. Instants in UTC, and kinds of events by their names: a ticket travels."""
    spent_ms = _("queue {queued} ms, running {ran} ms, waiting {waited} ms")
    facts = (
        (_("task"), str(task.pk)),
        (_("tool"), visible_text(task.tool)),
        (_("state"), f"{state_of(task, task.now).word} ({task.phase}, {task.status})"),
        (_("revision"), str(task.revision)),
        (_("leg"), f"{task.leg}, " + _("try {tried} of {tries}").format(tried=task.attempts, tries=task.max_attempts)),
        (_("read"), task.now),
        (_("created"), task.created_at),
        (_("started"), task.started_at),
        (_("finished"), task.finished_at),
        (_("expires"), task.expires_at),
        (_("due"), task.due_at),
        (_("worker"), task.lease_holder and visible_text(task.lease_holder)),
        (_("time"), spent_ms.format(queued=task.queue_ms, ran=task.run_ms, waited=task.wait_ms)),
        (_("why"), sentence),
    )
    width = max(len(name) for name, _value in facts)
    for name, value in facts:
        if value is not None:
            text = value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
            yield f"{name.ljust(width)}  {text}"
    yield ""
    for event in events:
        leg = "" if event.leg is None else f" {event.leg}"
        yield f"{event.at.isoformat(timespec='milliseconds')}  {event.kind}{leg}"
    yield ""
    python, vendor = platform.python_version(), connections[database()].vendor
    yield f"mcp_tasks {__version__}, Django {django.__version__}, Python {python}, {vendor}"


def _kept(request: HttpRequest, task: Task, now: datetime) -> list[tuple[str, str]]:
    """The verbs that the project's policy keeps from this operator though the state allows them, and why."""
    kept = []
    for verb in VERBS.values():
        if verb.applies(task, now) and has_permission(request.user, verb):
            reason = refusal(request, verb, task)
            if reason is not None:
                kept.append((str(verb.label), reason))
    return kept
