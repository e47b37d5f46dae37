"""Which task a page is about, what of its payloads may be shown there, and how they are taken away as files."""

import json
import unicodedata
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ..dbtime import DbNow
from ..lifecycle import OUTSTANDING
from ..models import Task, TaskInput
from ..operators import audit
from ..operators.acting import actor_of
from ..operators.display import NotJson
from ..operators.masking import Path
from ..operators.policy import may_see
from ..operators.secrecy import NOWHERE, Masking, answer_paths
from ..operators.states import EXPIRED_STATE, state_of
from ..store.locking import database
from .base import TaskPages

#: Columns that no page shows, and those that a permission opens.
NEVER = ("meta_json", "context_json")
PAYLOADS = ("asks_json", "arguments_json", "result_json", "error_json")
LARGE = (*NEVER, *PAYLOADS, "traceback")
#: What can be downloaded, beside the questions.
COLUMNS = {"arguments": "arguments_json", "result": "result_json", "error": "error_json"}
INPUTS = "inputs"
CHUNK = 64 * 1024
MOST_QUESTIONS = 50
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def found_task(admin: TaskPages, request: HttpRequest, ref: UUID, *columns: str) -> Any:
    """
    The task if it exists for this operator, else 404, with the database's time of the look as ``now``.

    The large columns stay in the database unless they are named.
    """
    if not admin.has_view_permission(request):
        raise PermissionDenied
    hidden = set(LARGE).difference(columns)
    task = admin.get_queryset(request).filter(pk=ref).defer(*hidden).annotate(now=DbNow()).first()
    if task is None:
        raise Http404(_("There is no such task, or no longer."))
    return task


def visible_text(text: str) -> str:
    """Text of others for a page: what cannot be seen, or turns text around, is written out."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in UNSEEN else f"\\u{ord(char):04x}" for char in text
    )


def questions_of(task: Task, shows: bool) -> list[TaskInput]:
    """The questions, open ones first; without their texts for who may not read payloads."""
    found = TaskInput.objects.using(database()).filter(task_id=task.pk).order_by("-id")
    hidden = () if shows else ("request_json", "answer_json")
    return sorted(found.defer(*hidden)[:MOST_QUESTIONS], key=lambda it: (it.state != OUTSTANDING, it.pk))


def payloads_of(request: HttpRequest, task: Any, questions: Sequence[TaskInput], shows: bool) -> dict[str, Any]:
    """The questions and the payloads as they may be shown. What is past its time counts as gone, swept or not."""
    if state_of(task, task.now) is EXPIRED_STATE:
        return {"questions": [], "payloads": []}
    masking = Masking(request, task)
    asked = [
        {
            "it": it,
            "question": masking.show(it.request_json) if shows else None,
            "answer": masking.show(it.answer_json, answer_paths(it)) if shows and it.answer_json is not None else None,
        }
        for it in questions
    ]
    titles = {"arguments": _("Arguments"), "result": _("Result"), "error": _("Error sent to the client")}
    payloads = [
        {"what": what, "title": titles[what], "shown": masking.show(getattr(task, column))}
        for what, column in COLUMNS.items()
        if shows and getattr(task, column) is not None
    ]
    return {"questions": asked, "payloads": payloads}


class DownloadPages(TaskPages):
    """Payloads as files: exact but for what is masked."""

    def download_urls(self) -> list[URLPattern]:
        """One address for all payloads of a task."""
        view = self.admin_site.admin_view(require_safe(self.download))
        return [path("<uuid:ref>/download/<str:what>/", view, name="mcp_tasks_task_download")]

    def download(self, request: HttpRequest, ref: UUID, what: str) -> HttpResponseBase:
        """``arguments``, ``result``, ``error`` or ``inputs``, masked; ``?unmasked=1`` needs its own permission."""
        if what not in COLUMNS and what != INPUTS:
            raise Http404
        is_unmasked = request.GET.get("unmasked") == "1"
        if not may_see(request.user, "payload") or (is_unmasked and not may_see(request.user, "secrets")):
            raise PermissionDenied
        task = found_task(self, request, ref, *([COLUMNS[what]] if what in COLUMNS else []))
        parts = None if state_of(task, task.now) is EXPIRED_STATE else _parts(request, task, what, is_unmasked)
        if parts is None:
            raise Http404(_("There is nothing to download."))
        user = request.user
        audit.note_download(task.pk, what=what, is_unmasked=is_unmasked, actor=actor_of(user), user=user)
        name = f"{task.tool}-{task.pk.hex[:8]}-{what}.json"
        return StreamingHttpResponse(
            _streamed(request, parts),
            content_type="application/json",
            headers={
                "Content-Disposition": content_disposition_header(True, name) or "attachment",
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store, private",
            },
        )


def _parts(request: HttpRequest, task: Task, what: str, is_unmasked: bool) -> Iterable[str] | None:
    """
    The text in pieces; None where there is none.

    Masked by now: an event loop may send them, where neither a policy's query nor long work has a place.
    """
    masking = None if is_unmasked else Masking(request, task)
    if what == INPUTS:
        found = list(TaskInput.objects.using(database()).filter(task_id=task.pk).order_by("id"))
        return list(_questions(found, masking)) if found else None
    text = getattr(task, COLUMNS[what])
    return None if text is None else _exact(text, masking)


def _exact(text: str, masking: Masking | None, paths: frozenset[Path] = NOWHERE) -> Iterator[str]:
    """The text in pieces. What is no JSON is never shown masked: nobody can say what of it is secret."""
    if masking is None:
        return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))
    try:
        return masking.chunks(text, paths)
    except NotJson:
        return iter(["null"])


def _questions(found: list[TaskInput], masking: Masking | None) -> Iterator[str]:
    for index, it in enumerate(found):
        yield "," if index else "{"
        yield f'{json.dumps(it.key)}:{{"state":{json.dumps(it.state)},"question":'
        yield from _exact(it.request_json, masking)
        if it.answer_json is not None:
            yield ',"answer":'
            yield from _exact(it.answer_json, masking, answer_paths(it))
        yield "}"
    yield "}"


def _streamed(request: HttpRequest, parts: Iterable[str]) -> Iterator[bytes] | AsyncIterator[bytes]:
    """Bytes for either kind of server: an asynchronous one would gather a plain iterator with a warning."""
    if not isinstance(request, ASGIRequest):
        return (part.encode("utf-8") for part in parts)

    async def stream() -> AsyncIterator[bytes]:
        for part in parts:
            yield part.encode("utf-8")

    return stream()
