"""A process that runs legs says that it is alive, in a row of its own, for as long as it is."""

import logging
import threading
from collections.abc import Callable

from django.db import connections

from ..store import get_store
from ..store.processes import REPORT_SECONDS, own_name, tools_hash
from ..tools.registry import registry
from . import running
from .threads import process_is_ending

logger = logging.getLogger("mcp_tasks.runner")


class Presence:
    """
    The reports of one process. ``slots`` is asked each time; how many of them are busy is counted here.

    ``only``: the tools whose tasks it takes, where it does not take all.
    """

    def __init__(self, kind: str, slots: Callable[[], int], *, only: tuple[str, ...] | None = None) -> None:
        self._kind, self._slots, self._only = kind, slots, only
        self._name = own_name()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._report, name="mcp-tasks-report", daemon=True)

    def begin(self) -> None:
        """Report from now on, on a daemon thread."""
        self._thread.start()

    def leave(self, seconds: float) -> None:
        """End in good order: wait so long until the row is gone, since nobody is to miss this process."""
        self._left.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _report(self) -> None:
        tools = tools_hash([tool.name for tool in registry])
        while not self._left.is_set():
            self._tell(lambda: self._note(tools))
            self._left.wait(REPORT_SECONDS)
        self._tell(lambda: get_store().forget_process(self._name))

    def _note(self, tools: str) -> None:
        now = {"slots": self._slots(), "busy": len(running.all_legs())}
        get_store().note_process(self._name, self._kind, **now, tools=tools, only=self._only)

    def _tell(self, report: Callable[[], None]) -> None:
        try:
            report()
        except Exception:
            if not process_is_ending():
                logger.exception("the row of this process cannot be written", extra={"event": "report_failed"})
        connections.close_all()
