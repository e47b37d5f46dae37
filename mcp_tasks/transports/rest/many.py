"""What is not about one known task: find one by its id, cancel many, count all."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from rest_framework.request import Request
from rest_framework.response import Response

from ...access.throttles import BULK_SCOPE, LOOKUP_SCOPE, READ_SCOPE
from ...dbtime import DbNow, current
from ...models import Process, Task
from ...operators import audit, numbers
from ...operators.acting import WrongRequest, actor_of, checked_reason
from ...operators.bulk import cancel_all, cancellable
from ...operators.policy import VERBS, may_see, refusal, visible
from ...protocol.tasks import is_task_id
from ...store.locking import database, rows
from ...store.types import ref_of
from . import paging, shapes
from .base import OPERATOR, Operation, Parameter
from .bodies import BulkOrder, LookUp
from .operator import REFUSALS, OperatorView, tasks_of
from .problems import invalid, no_task
from .serializers import BulkResult, Overview, ProcessList, RefShape, rendered

#: How many tasks one request looks at for some that may be cancelled, where a policy keeps others.
_MOST_LOOKED_AT = 5_000
MOST_HOURS, OWNERS, ROWS = 168, 10, 5
#: Also keeps SQLite from taking a whole second, which is written without its zeros, for less than itself.
_REST_OF_MS = timedelta(microseconds=999)


class LookUpView(OperatorView):
    """``operator/lookup/``: a POST, so that no log holds the id."""

    operations = {
        "POST": Operation(
            id="operator_lookup",
            tag=OPERATOR,
            scope=LOOKUP_SCOPE,
            summary="The reference of a task whose id a client has",
            answer=RefShape,
            body=LookUp,
            problems=(404, *REFUSALS),
        )
    }

    def post(self, request: Request) -> Response:
        read = LookUp(data=request.data)
        read.is_valid(raise_exception=True)
        task_id = read.validated_data["task_id"]
        ref = ref_of(task_id) if is_task_id(task_id) else None
        is_there = ref is not None and tasks_of(request).filter(pk=ref).exists()
        code, found = ("hit", ref) if is_there else ("miss", None)
        audit.note_lookup(actor=actor_of(request.user), code=code, ref=found)
        if not is_there:
            raise no_task()
        return Response(rendered(RefShape, {"ref": ref}))


class BulkCancelView(OperatorView):
    """``operator/bulk-cancel/``."""

    permission = VERBS["cancel"].permission
    operations = {
        "POST": Operation(
            id="operator_bulk_cancel",
            tag=OPERATOR,
            scope=BULK_SCOPE,
            summary="Cancel the tasks that match, the oldest first; dry_run only counts",
            answer=BulkResult,
            body=BulkOrder,
            problems=REFUSALS,
        )
    }

    def post(self, request: Request) -> Response:
        read = BulkOrder(data=request.data)
        read.is_valid(raise_exception=True)
        order = read.validated_data
        try:
            reason = checked_reason(order["reason"])
        except WrongRequest as wrong:
            raise invalid(wrong.field, str(wrong)) from None
        now = current(database())
        as_of = _whole_ms(min(order.get("as_of") or now, now))
        found, refused, more = _cancellable(request, order["filter"], as_of + _REST_OF_MS, order["limit"])
        result = {
            "cancelled": len(found),
            "finished_meanwhile": 0,
            "refused": refused,
            "more": more,
            "as_of": as_of,
            "dry_run": order["dry_run"],
        }
        if not order["dry_run"]:
            report = cancel_all(
                [task.pk for task in found],
                actor=actor_of(request.user),
                user=request.user,
                reason=reason,
                share_reason=order.get("share_reason") is not False,
            )
            done = set(report.cancelled)
            audit.enter(request.user, [task for task in found if task.pk in done], VERBS["cancel"], reason)
            result |= {"cancelled": len(done), "finished_meanwhile": report.finished_meanwhile}
            result |= {"refused": refused + report.refused, "more": more or report.more}
        return Response(rendered(BulkResult, result))


def _whole_ms(at: datetime) -> datetime:
    """As answers have it, so that the same ``as_of`` means the same tasks when it is sent back."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _cancellable(request: Request, condition: Q, as_of: datetime, limit: int) -> tuple[list[Task], int, bool]:
    """So many that may be cancelled, how many were kept by the policy on the way, and whether there are more."""
    allowed: list[Task] = []
    refused, last = 0, None
    matching = cancellable(tasks_of(request).filter(condition), as_of).only(*shapes.COLUMNS)
    while len(allowed) <= limit and len(allowed) + refused < _MOST_LOOKED_AT:
        step = limit + 1
        looked_at = list((matching if last is None else matching.filter(paging.later_than(last)))[:step])
        permitted = [task for task in looked_at if refusal(request._request, VERBS["cancel"], task) is None]
        refused += len(looked_at) - len(permitted)
        allowed += permitted
        if len(looked_at) < step:
            break
        last = looked_at[-1]
    else:
        return allowed[:limit], refused, True
    return allowed[:limit], refused, len(allowed) > limit


class ProcessesView(OperatorView):
    """``operator/processes/``."""

    operations = {
        "GET": Operation(
            id="operator_processes_list",
            tag=OPERATOR,
            scope=READ_SCOPE,
            summary="The processes that run and sweep tasks, and when each was heard of",
            answer=ProcessList,
            problems=REFUSALS,
        )
    }

    def get(self, request: Request) -> Response:
        processes, _ = _processes()
        return Response(rendered(ProcessList, {"results": processes}))


class OverviewView(OperatorView):
    """``operator/overview/``."""

    operations = {
        "GET": Operation(
            id="operator_overview",
            tag=OPERATOR,
            scope=READ_SCOPE,
            summary="How many tasks are where, what ended lately, and who is alive",
            answer=Overview,
            query=(Parameter("hours", f"How far back, up to {MOST_HOURS}; 24 unless said.", kind=int),),
            problems=REFUSALS,
        )
    }

    def get(self, request: Request) -> Response:
        hours = paging.limit_of(request, name="hours", default=24, most=MOST_HOURS)
        everything = rows(database())
        found = visible(request._request, everything)
        processes, now = _processes()
        oldest, stalled = numbers.longest_queued(found), numbers.longest_stalled(found)
        shows_payload = may_see(request.user, "payload")

        def shown(tasks: Any) -> list[dict[str, Any]]:
            return [
                shapes.task_row(task, now, shows_payload=shows_payload) for task in tasks.only(*shapes.COLUMNS)[:ROWS]
            ]

        return Response(
            rendered(
                Overview,
                {
                    "at": now,
                    "live": numbers.live(found),
                    **_ended(numbers.history(now, hours) if found is everything else None),
                    "owners": _owners(found),
                    "oldest_queued": shown(oldest),
                    "stalled": shown(stalled),
                    "processes": processes,
                },
            )
        )


def _ended(history: numbers.History | None) -> dict[str, Any]:
    """The counts of finished tasks tell no owner from another: where the policy narrows, there are none."""
    if history is None:
        return dict.fromkeys(("ended", "hours", "tools"))
    return {
        "ended": shapes.ended(history.total),
        "hours": [{"hour": hour, **shapes.ended(it)} for hour, it in sorted(history.hours.items())],
        "tools": [{"tool": tool, **shapes.ended(it)} for tool, it in sorted(history.tools.items())],
    }


def _owners(found: Any) -> list[dict[str, Any]]:
    most = numbers.busiest_owners(found, OWNERS)
    return [{"owner": shapes.owner(row["owner"], row["label"]), "live": row["live"]} for row in most]


def _processes() -> tuple[list[dict[str, Any]], datetime]:
    """All processes, and the database's time, which comes with them where there are any."""
    using = database()
    found: list[Any] = list(Process.objects.using(using).annotate(now=DbNow()).order_by("name"))
    now = found[0].now if found else current(using)
    return [shapes.process(row, now) for row in found], now
