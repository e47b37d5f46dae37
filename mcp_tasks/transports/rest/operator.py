"""What the views of operators share: who may come in, and which tasks exist for them."""

from typing import Any, ClassVar
from uuid import UUID

from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ...access.throttles import ScopeThrottle
from ...dbtime import DbNow
from ...operators.policy import may_view, visible
from ...querysets import TaskQuerySet
from ...store.locking import database, rows
from .base import RestView
from .problems import no_task

#: Columns that nothing reads unless it is asked for them.
LARGE = ("asks_json", "result_json", "error_json", "meta_json", "arguments_json", "context_json", "traceback")
REFUSALS = (400, 401, 403, 429)


class OperatorView(RestView):
    """
    For staff with permissions, known by the project's own ``DEFAULT_AUTHENTICATION_CLASSES``.

    Permissions come first and say nothing of any task; then a task that the policy hides is one that is not there.
    """

    permission: ClassVar[str] = "view_task"

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Read when they are needed: DRF keeps what the settings were at its import."""
        classes: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES
        return [authentication() for authentication in classes]

    def get_throttles(self) -> list[BaseThrottle]:
        return [ScopeThrottle()]

    def perform_authentication(self, request: Request) -> None:
        if any("\x00" in request.headers.get(name, "") for name in ("Authorization", "Cookie")):
            # PostgreSQL would fail on it instead of finding nothing.
            raise exceptions.AuthenticationFailed
        super().perform_authentication(request)

    def check_permissions(self, request: Request) -> None:
        user = request.user
        if user is None or not user.is_authenticated:
            raise exceptions.NotAuthenticated
        if not (may_view(user) and user.has_perm(f"mcp_tasks.{self.permission}")):
            raise exceptions.PermissionDenied


def tasks_of(request: Request) -> TaskQuerySet:
    """The tasks that exist for this operator."""
    return visible(request._request, rows(database()))


def task_of(request: Request, ref: str, *columns: str) -> Any:
    """
    The task, with the database's time of the look as ``now``; raises the one 404.

    The large columns stay in the database unless they are named.
    """
    hidden = [name for name in LARGE if name not in columns]
    task = tasks_of(request).filter(pk=ref_in(ref)).defer(*hidden).annotate(now=DbNow()).first()
    if task is None:
        raise no_task()
    return task


def ref_in(text: str) -> UUID:
    """A reference in its one form; raises the one 404."""
    try:
        ref = UUID(text)
    except ValueError:
        raise no_task() from None
    if str(ref) != text:
        raise no_task()
    return ref
