"""What operators read of tasks: the list, one task, its timeline."""

import heapq
from itertools import islice
from typing import Any

from django.db import connections
from rest_framework.request import Request
from rest_framework.response import Response

from ...access.throttles import READ_SCOPE
from ...dbtime import DbNow
from ...models import Task, TaskEvent
from ...operators.policy import may_see, offered
from ...operators.vitals import facts_about
from ...operators.why import why
from ...store.locking import database
from . import filters, paging
from .base import OPERATOR, Operation
from .operator import REFUSALS, OperatorView, task_of, tasks_of
from .serializers import EventPage, TaskDetail, TaskPage, rendered
from .shapes import COLUMNS, event, task_detail, task_row


class TaskListView(OperatorView):
    """``operator/tasks/``."""

    operations = {
        "GET": Operation(
            id="operator_tasks_list",
            tag=OPERATOR,
            scope=READ_SCOPE,
            summary="Tasks, the newest first",
            answer=TaskPage,
            query=(*filters.PARAMETERS, *paging.PARAMETERS),
            problems=REFUSALS,
        )
    }

    def get(self, request: Request) -> Response:
        limit = paging.limit_of(request)
        given = {name: values for name, values in request.query_params.lists() if name not in ("cursor", "limit")}
        page = _newest(request, given, limit + 1)
        more = len(page) > limit
        page = page[:limit]
        shows_payload = may_see(request.user, "payload")
        shown = [task_row(task, task.now, shows_payload=shows_payload) for task in page]
        return Response(
            rendered(TaskPage, {"results": shown, "next_cursor": paging.task_cursor(page[-1]) if more else None})
        )


def _newest(request: Request, given: dict[str, list[str]], number: int) -> list[Any]:
    """So many tasks that match, with the database's time; a statement for each tool that is named."""
    found = tasks_of(request).filter(paging.after_task(request))
    found = found.only(*COLUMNS).annotate(now=DbNow()).order_by("-created_at", "-ref")
    # MariaDB sorts references by another order than that of their digits, so it has to sort them all.
    parts = [filters.condition(given)] if connections[database()].vendor == "mysql" else filters.parts(given)
    pages: list[list[Any]] = [list(found.filter(part)[:number]) for part in parts]
    newest_first = heapq.merge(*pages, key=lambda task: (task.created_at, task.pk), reverse=True)
    return list(islice(newest_first, number))


class TaskDetailView(OperatorView):
    """``operator/tasks/{ref}/``; deletion is added where the verbs are."""

    operations = {
        "GET": Operation(
            id="operator_tasks_retrieve",
            tag=OPERATOR,
            scope=READ_SCOPE,
            summary="One task: facts, why it is where it is, and what may be done to it",
            answer=TaskDetail,
            problems=(404, *REFUSALS),
        )
    }

    def get(self, request: Request, ref: str) -> Response:
        return Response(detail_of(request, task_of(request, ref)))


def detail_of(request: Request, task: Any) -> Any:
    """What is shown of one task."""
    verbs = [verb.name for verb in offered(request._request, task, task.now)]
    shows_payload = may_see(request.user, "payload")
    return rendered(TaskDetail, task_detail(task, task.now, shows_payload=shows_payload, why=_why(task), verbs=verbs))


def _why(task: Any) -> str | None:
    return why(task, facts_about(task, task.now))


class EventsView(OperatorView):
    """``operator/tasks/{ref}/events/``."""

    operations = {
        "GET": Operation(
            id="operator_tasks_events_list",
            tag=OPERATOR,
            scope=READ_SCOPE,
            summary="The timeline of a task, the oldest entry first",
            answer=EventPage,
            query=paging.PARAMETERS,
            problems=(404, *REFUSALS),
        )
    }

    def get(self, request: Request, ref: str) -> Response:
        limit, after = paging.limit_of(request), paging.after_event(request)
        task: Task = task_of(request, ref)
        events = TaskEvent.objects.using(database()).filter(after, task_id=task.pk).order_by("id")
        page = list(events[: limit + 1])
        more = len(page) > limit
        page = page[:limit]
        cursor = paging.event_cursor(page[-1]) if more else None
        return Response(rendered(EventPage, {"results": [event(row) for row in page], "next_cursor": cursor}))
