"""The admin of tasks: its pages, each in a module of its own, and their addresses."""

from typing import Any

from .bulk import BulkPages
from .detail import DetailPages
from .list import ListPages
from .live import LivePages
from .lookup import LookupPages
from .overview import OverviewPages
from .verbs import VerbPages


class TaskAdmin(ListPages, LookupPages, OverviewPages, LivePages, DetailPages, VerbPages, BulkPages):
    """
    Tasks for operators.

    Of Django's own pages only the list is served: its forms to add, change and delete do not exist.
    """

    def get_urls(self) -> list[Any]:
        lists = [pattern for pattern in super().get_urls() if pattern.name == "mcp_tasks_task_changelist"]
        own = self.lookup_urls() + self.overview_urls() + self.live_urls()
        return own + self.detail_urls() + self.verb_urls() + self.bulk_urls() + lists
