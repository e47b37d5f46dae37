"""
Views for probes: is the process alive, can it serve, and how are the tasks. A project mounts those that it wants.

A backlog is never a reason to restart a process: it is told by ``detail`` and by alerts, not by ``ready``.
"""

import logging
import threading
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, InterfaceError, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_safe

from ..connections import outside_transactions
from ..operators.vitals import concerns, vitals
from ..store.locking import database

logger = logging.getLogger("mcp_tasks.rpc")

#: How long the database may take to answer.
READY_SECONDS = 1.0


class _Probe:
    """
    A look at the database on a thread of its own: one that hangs must not hold the request.

    All who ask while a look is under way wait for that one, so a database that hangs costs one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: _Look | None = None
        self._migrated: set[str] = set()

    def is_ready(self, seconds: float) -> bool:
        """Whether the database answered in time, with our migrations applied."""
        with self._lock:
            if self._running is None or self._running.ended.is_set():
                self._running = _Look()
                threading.Thread(target=self._look, args=(self._running,), name="mcp-tasks-ready", daemon=True).start()
            look = self._running
        return look.ended.wait(seconds) and look.is_ready

    def _look(self, look: "_Look") -> None:
        try:
            look.is_ready = self._answers(database())
        except (DatabaseError, InterfaceError) as problem:
            # Its text may name the server, so it is for the log alone.
            logger.warning("the database is not ready", extra={"event": "not_ready"}, exc_info=problem)
        finally:
            connections.close_all()
            look.ended.set()

    def _answers(self, using: str) -> bool:
        if using in self._migrated:
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT 1")
            return True
        executor = MigrationExecutor(connections[using])
        if executor.migration_plan(executor.loader.graph.leaf_nodes("mcp_tasks")):
            return False
        self._migrated.add(using)  # what was applied is not looked at again by this process
        return True


class _Look:
    def __init__(self) -> None:
        self.ended = threading.Event()
        self.is_ready = False


_probe = _Probe()


@require_safe
@login_not_required
@outside_transactions  # else the database would be asked for a transaction
def live(request: HttpRequest) -> JsonResponse:
    """200 while the process answers at all; asks nothing of the database."""
    return _answer({"status": "ok"})


@require_safe
@login_not_required
@outside_transactions
def ready(request: HttpRequest) -> JsonResponse:
    """200 where the database answers within a second and our migrations are applied, else 503."""
    if _probe.is_ready(READY_SECONDS):
        return _answer({"status": "ok"})
    return _answer({"status": "unavailable"}, 503)


@require_safe
@login_not_required  # it decides itself, with an answer that a program understands
@outside_transactions
def detail(request: HttpRequest) -> JsonResponse:
    """For staff and who may view tasks: the numbers of the queue and ``warnings``, always with 200."""
    user = getattr(request, "user", None)
    if user is None or not user.is_active or not (user.is_staff or user.has_perm("mcp_tasks.view_task")):
        return _answer({"status": "forbidden"}, 403)
    try:
        return _answer(_numbers())
    except (DatabaseError, InterfaceError):
        logger.warning("the state of the tasks cannot be read", exc_info=True, extra={"event": "not_ready"})
        return _answer({"status": "warning", "warnings": ["The database does not answer."]})


def _numbers() -> dict[str, Any]:
    found = vitals()
    warnings = concerns(found)
    return {
        "status": "warning" if warnings else "ok",
        "warnings": warnings,
        "queued": found.live.queued,
        "running": found.live.running,
        "needs_input": found.live.needs_input,
        "stalled": found.live.stalled,
        "overdue": found.overdue,
        "oldest_queued_seconds": found.oldest_queued_seconds,
        "janitor_seconds": found.janitor_seconds,
        "workers": found.workers,
        "slots": found.slots,
        "busy": found.busy,
    }


def _answer(body: dict[str, Any], status: int = 200) -> JsonResponse:
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})


app_name = "mcp_tasks_health"
urlpatterns = [
    path("live", live, name="live"),
    path("ready", ready, name="ready"),
    path("detail", detail, name="detail"),
]
