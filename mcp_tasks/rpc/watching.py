"""Each request as observers and the log see it: which method, how long, how it ended. Nothing where nobody looks."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import observing
from ..observing import Activity
from ..protocol.capabilities import LEGACY, VERSION_KEY
from ..protocol.codec import Json
from ..protocol.jsonrpc import readable_id
from ..protocol.tasks import is_task_id
from ..store.types import ref_of
from ..tools.registry import registry
from .caller import Caller
from .methods import table
from .requests import Emit, Reply, Response, Work

logger = logging.getLogger("mcp_tasks.rpc")

#: What stands for names that a client made up.
OTHER = "other"
_TOO_MANY = 429
#: W3C Trace Context, as MCP carries it.
_CARRIED = ("traceparent", "tracestate")


def watched(body: Json, caller: Caller, transport: str, answer: Callable[[], Response]) -> Response:
    """The answer, told of from here to its end: of work that runs later, on another thread, to the end of that."""
    request_id = readable_id(body)
    if request_id is None or not (observing.is_observed() or logger.isEnabledFor(logging.DEBUG)):
        return answer()
    activity = observing.begin("rpc", transport=transport, id=request_id, **_facts(body))
    with activity.on_thread():
        response = answer()
        if not isinstance(response, Work):
            _end(activity, caller, response)
            return response

    def run(emit: Emit) -> Reply:
        with activity.on_thread():
            reply = response.run(emit)
            _end(activity, caller, reply)
        return reply

    return replace(response, run=run)


def _facts(body: dict[str, Json]) -> dict[str, Any]:
    """What is told of a request. Names count only where they are known: anything else is a text of a stranger."""
    params = body["params"] if isinstance(body.get("params"), dict) else {}
    meta = params["_meta"] if isinstance(params.get("_meta"), dict) else {}
    name, method = params.get("name"), body.get("method")
    is_known = isinstance(method, str) and (method in table.methods or method in ("initialize", "ping"))
    tool = registry.get(name) if isinstance(name, str) and method == "tools/call" else None
    task_id = params.get("taskId")
    return {
        "method": method if is_known else OTHER,
        "tool": None if tool is None else tool.name,
        "ref": ref_of(task_id) if isinstance(task_id, str) and is_task_id(task_id) else None,
        "version": meta.get(VERSION_KEY, LEGACY),
        "carrier": {key: meta[key] for key in _CARRIED if isinstance(meta.get(key), str)},
    }


def _end(activity: Activity, caller: Caller, response: Response) -> None:
    """On the thread that has the answer, while the activity is current there."""
    reply = response if isinstance(response, Reply) else Reply(200, None)  # a stream that was accepted
    facts = activity.facts
    activity.note(code=reply.code, ref=facts["ref"] or reply.created)
    if facts["method"] == "tasks/get" and reply.status == _TOO_MANY:
        observing.happened("poll", is_throttled=True)
    activity.end()
    if logger.isEnabledFor(logging.DEBUG):
        ref = facts["ref"]
        fields = {
            "event": "answered",
            "method": facts["method"],
            "tool": facts["tool"],
            "ref": None if ref is None else str(ref),
            "owner_hash": observing.owner_hash(None if caller.owner is None else caller.owner.key),
            "code": facts["code"],
            "duration_ms": round(facts["seconds"] * 1000),
            "trace_id": observing.trace_id(),
        }
        logger.debug("a request was answered", extra=fields)
