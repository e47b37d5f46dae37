"""Groups of the channel layer and the messages in them: what changed, and never what it is."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ..protocol.subscriptions import LIST_KINDS, ListKind

#: Whoever sends lists' changes to clients hears of them here.
LISTS = "mcp_tasks.lists"
#: Whoever runs tasks hears here that one is queued.
QUEUE = "mcp_tasks.queue"

_TASK, _TYPE = "mcp_tasks.task.", "mcp_tasks.changed"


def group_of(ref: UUID) -> str:
    """The group of one task: named by its ref, which no client knows and no id can be made from."""
    return f"{_TASK}{ref.hex}"


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A task has this revision now, or a later one."""

    ref: UUID
    revision: int

    @property
    def group(self) -> str:
        return group_of(self.ref)

    def message(self) -> dict[str, Any]:
        """Its form in the layer."""
        return {"type": _TYPE, "ref": self.ref.hex, "revision": self.revision}


@dataclass(frozen=True, slots=True)
class ListChanged:
    """A list of this server is another one now. ``sender``: the hub that said so, to know its own message again."""

    kind: ListKind
    sender: str = ""

    @property
    def group(self) -> str:
        return LISTS

    def message(self) -> dict[str, Any]:
        """Its form in the layer."""
        return {"type": _TYPE, "list": self.kind, "sender": self.sender}


@dataclass(frozen=True, slots=True)
class QueueRang:
    """A task is queued: who has a free slot looks at the table."""

    @property
    def group(self) -> str:
        return QUEUE

    def message(self) -> dict[str, Any]:
        """Its form in the layer."""
        return {"type": _TYPE, "queue": True}


Change = TaskChanged | ListChanged | QueueRang


def read(message: Any) -> Change | None:
    """What a message of the layer says; None for one that is not ours, or of a version that we do not know."""
    if not isinstance(message, dict) or message.get("type") != _TYPE:
        return None
    if message.get("list") in LIST_KINDS:
        return ListChanged(message["list"], str(message.get("sender", "")))
    if message.get("queue"):
        return QueueRang()
    try:
        return TaskChanged(UUID(hex=message["ref"]), int(message["revision"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
