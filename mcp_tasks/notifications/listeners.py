"""Who listens, what they are handed, and what the hub keeps for them."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from ..protocol.subscriptions import Frame, ListKind
from ..store.base import TaskStore
from ..store.snapshots import to_wire
from ..store.types import TaskSnapshot

logger = logging.getLogger("mcp_tasks.notifications")

Loop = asyncio.AbstractEventLoop

#: A notification without what is of any length in it.
_FRAME_SIZE = 400


class State:
    """One state of a task, as it was read for all who listen."""

    __slots__ = ("_frame", "snapshot")

    def __init__(self, snapshot: TaskSnapshot) -> None:
        self.snapshot = snapshot
        self._frame: Frame | None = None

    @property
    def revision(self) -> int:
        return self.snapshot.task.revision

    @property
    def is_terminal(self) -> bool:
        return self.snapshot.task.is_terminal

    @property
    def size(self) -> int:
        """About how much memory it takes, without making a notification of it."""
        found = self.snapshot
        texts = (
            found.task.status_message,
            found.input_requests_json,
            found.result_json,
            found.error_json,
            found.meta_json,
        )
        return _FRAME_SIZE + sum(len(text) for text in texts if text is not None)

    def frame(self, task_id: str) -> Frame:
        """The notification of it. A ref stands for one id, so the first who asks makes it for all."""
        if self._frame is None:
            self._frame = to_wire(self.snapshot).notification(task_id)
        return self._frame


class Listener(Protocol):
    """
    Who wants to know of a task.

    ``changed`` is called on the listener's loop, or where it has none on the hub's thread, and must not block. The
    state is None once the task is gone. States may come twice; they never go back. Returns whether it has heard
    all that it wants to hear of this task.
    """

    def changed(self, ref: UUID, state: State | None) -> bool: ...


class ListListener(Protocol):
    """Who wants to know of changed lists; called like a Listener."""

    def list_changed(self, kind: ListKind) -> None: ...


@dataclass(slots=True, eq=False)
class Watched:
    """One watched task: who listens, by loop, and what was seen of it."""

    store: TaskStore
    listeners: dict[Loop | None, set[Listener]] = field(default_factory=dict)
    #: The revision of the row when it was last read and shown.
    revision: int = 0
    #: The newest revision that was read since, or that a message spoke of after that.
    heard: int = 0
    shown_status: str = ""
    shown_at: float = float("-inf")
    #: Who is shown the state also where it is not new.
    newcomers: set[Listener] = field(default_factory=set)


def tell(listener: Listener, ref: UUID, state: State | None) -> bool:
    """Hand a state to a listener; its fault is its own. True when it wants to hear no more of this task."""
    try:
        return listener.changed(ref, state)
    except Exception:
        logger.exception("a listener failed", extra={"event": "listener_failed"})
        return False
