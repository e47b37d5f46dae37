"""``subscriptions/listen``: who may hear of what, decided before a stream opens (basic/patterns/subscriptions; ext)."""

from .. import conf
from ..notifications.subscription import Subscription
from ..protocol.capabilities import NEEDS_TASKS, declares_tasks
from ..protocol.errors import METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, EnvelopeError
from ..protocol.subscriptions import LISTEN, filter_of, require_short, wants_tasks
from ..store import get_store
from .methods import ours, table
from .requests import Listen, Request


@ours(LISTEN)
def listen(request: Request) -> Listen:
    """
    Accept the part of the filter that can be honoured: own tasks that are present, and lists that this server has.

    Unknown, expired and foreign ids are left out alike. Raises -32601 where the server cannot push, -32600 for an id of
    the request that is too long to be kept, -32021 for tasks without the extension, -32602 for a malformed filter.
    """
    if not request.pushes:
        raise EnvelopeError(
            404, METHOD_NOT_FOUND, f"{LISTEN} needs an ASGI server, and this one is WSGI; poll with tasks/get"
        )
    require_short(request.id)
    has_tasks = conf.get_settings().ENABLED
    if has_tasks and wants_tasks(request.params) and not declares_tasks(request.capabilities):
        raise EnvelopeError(
            400,
            MISSING_CLIENT_CAPABILITY,
            "Task notifications need the tasks extension",
            {"requiredCapabilities": NEEDS_TASKS},
        )
    wanted = filter_of(request.params)
    owner, store = request.caller.owner, get_store()
    tasks = store.owned_refs(wanted.task_ids, owner) if has_tasks and wanted.task_ids else {}
    return Listen(
        Subscription(
            request.id,
            store=store,
            tasks={ref: task_id for task_id, ref in tasks.items()},
            lists=tuple(kind for kind in wanted.lists if kind in table.capabilities),
            transport="websocket" if request.headers is None else "sse",
        )
    )
