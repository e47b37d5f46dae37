"""``subscriptions/listen``: its filter, and the texts of what is sent for it (basic/patterns/subscriptions)."""

from dataclasses import dataclass
from typing import Literal, get_args

from .capabilities import SERVER_INFO_KEY, SUBSCRIPTION_ID_KEY
from .codec import Json, dumps
from .errors import INVALID_REQUEST, EnvelopeError, McpError, invalid_params
from .jsonrpc import RequestId, result_text

LISTEN = "subscriptions/listen"
MAX_TASK_IDS = 1000
#: Characters of an id that is kept, and repeated in every message, for as long as its subscription is open.
MAX_ID_LENGTH = 1024

#: The lists whose changes a client can ask to hear of.
ListKind = Literal["tools", "prompts", "resources"]
LIST_KINDS: tuple[ListKind, ...] = get_args(ListKind)


@dataclass(frozen=True, slots=True)
class Filter:
    """What a client asked to hear of; ``task_ids`` without duplicates, in its order."""

    lists: tuple[ListKind, ...]
    task_ids: tuple[str, ...]


def wants_tasks(params: dict[str, Json]) -> bool:
    """Whether task notifications are asked for at all, well or badly: an empty list asks for nothing."""
    notifications = params.get("notifications")
    return isinstance(notifications, dict) and bool(notifications.get("taskIds"))


def filter_of(params: dict[str, Json]) -> Filter:
    """``params.notifications``; raises -32602 naming what is wrong. Fields that we do not know ask for nothing."""
    notifications = params.get("notifications")
    if not isinstance(notifications, dict):
        raise invalid_params("notifications must be an object")
    lists = []
    for kind in LIST_KINDS:
        wanted = notifications.get(_field(kind), False)
        if not isinstance(wanted, bool):
            raise invalid_params(f"{_field(kind)} must be a boolean")
        if wanted:
            lists.append(kind)
    uris = notifications.get("resourceSubscriptions", [])
    if not _are_strings(uris):
        raise invalid_params("resourceSubscriptions must be an array of strings")
    task_ids = notifications.get("taskIds", [])
    if not _are_strings(task_ids):
        raise invalid_params("taskIds must be an array of strings")
    if len(task_ids) > MAX_TASK_IDS:
        raise invalid_params(f"taskIds names more than {MAX_TASK_IDS} tasks; open further subscriptions")
    return Filter(tuple(lists), tuple(dict.fromkeys(task_ids)))


def _field(kind: ListKind) -> str:
    return f"{kind}ListChanged"


def _are_strings(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def require_short(request_id: RequestId) -> None:
    """Raise -32600 for an id that is too long to be kept."""
    if len(str(request_id)) > MAX_ID_LENGTH:
        raise EnvelopeError(
            400, INVALID_REQUEST, f"The id of a subscription has at most {MAX_ID_LENGTH} characters: it stays in use"
        )


class Frame:
    """
    A notification as text around the place of the subscription's id, which comes first in ``_meta``.

    Made once for all who listen. ``encoded`` belongs to whoever sends it: the two halves in its own framing.
    """

    __slots__ = ("after", "before", "encoded")

    def __init__(self, before: str, after: str) -> None:
        self.before = before
        self.after = after
        self.encoded: tuple[bytes, bytes] | None = None

    def text(self, subscription_id: str) -> str:
        """The message for one subscription, whose id is given as JSON text."""
        return f"{self.before}{subscription_id}{self.after}"

    @property
    def size(self) -> int:
        """About how much memory it takes."""
        return len(self.before) + len(self.after)


def frame(method: str, members: str = "", meta: str = "{}") -> Frame:
    """A notification with these members of ``params``, JSON text without braces, and this further ``_meta``."""
    before = f'{{"jsonrpc":"2.0","method":"{method}","params":{{{members}{"," if members else ""}"_meta":{{'
    return Frame(before + f'"{SUBSCRIPTION_ID_KEY}":', ("}" if meta == "{}" else f",{meta[1:]}") + "}}")


def acknowledged(lists: tuple[ListKind, ...], task_ids: tuple[str, ...]) -> Frame:
    """The first message: what of the filter is honoured. What is not is left out, not denied."""
    honoured: dict[str, Json] = {_field(kind): True for kind in lists}
    if task_ids:
        honoured["taskIds"] = list(task_ids)
    return frame("notifications/subscriptions/acknowledged", f'"notifications":{dumps(honoured)}')


def list_changed(kind: ListKind) -> Frame:
    """``notifications/tools/list_changed`` and its like."""
    return frame(f"notifications/{kind}/list_changed")


def ended(request_id: RequestId, server_info: dict[str, Json]) -> str:
    """The response to the listen request, when the server ends it (SubscriptionsListenResult)."""
    meta = {SUBSCRIPTION_ID_KEY: request_id, SERVER_INFO_KEY: server_info}
    return result_text(request_id, dumps({"resultType": "complete", "_meta": meta}))


def too_many(limit: int) -> McpError:
    """-32603: before the acknowledgement, where an owner listens on too many streams already."""
    return McpError(-32603, f"Too many streams are open ({limit}); close one, or name more tasks in one subscription")
