"""What all pages of tasks stand on: which tasks exist for an operator, and what Django's admin may not do to them."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from ..models import Task
from ..operators.policy import VERBS, has_permission, may_view, visible
from ..querysets import TaskQuerySet
from ..store.locking import database, rows

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Task]
else:
    ModelAdmin = admin.ModelAdmin


class TaskPages(ModelAdmin):
    """
    Read-only, whatever permissions Django has for the model: a task changes by transitions of the store.

    A task that the policy hides does not exist here, on any page.
    """

    def get_queryset(self, request: HttpRequest) -> TaskQuerySet:
        """The tasks that this operator may know of, from the database that they are written to."""
        return visible(request, rows(database()))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may_view(request.user)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_view(request.user)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """For the list's action."""
        return has_permission(request.user, VERBS["cancel"])
