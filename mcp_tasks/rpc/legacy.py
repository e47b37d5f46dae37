"""
The synchronous part of 2025-11-25, stateless: published clients start with it by default.

No session is made, so nothing is remembered of ``initialize``. Results have none of the newer members, and no
error uses 404, which would tell such a client that its session has ended.
"""

from collections.abc import Mapping

from .. import conf
from ..protocol.capabilities import HANDSHAKE_ERA, LEGACY
from ..protocol.codec import Json
from ..protocol.errors import INVALID_REQUEST, METHOD_NOT_FOUND, EnvelopeError, McpError, invalid_params
from ..protocol.jsonrpc import Message
from ..protocol.subscriptions import LISTEN
from .caller import Caller
from .further import run_method
from .methods import table
from .requests import Reply, Request, Response, complete, failure, server_info

#: Announced only where the Tasks extension exists; the older era has an incompatible kind of tasks.
_NEWER = ("extensions", "tasks")
_ONLY_NEWER = ("server/discover", LISTEN)


def serve(message: Message, caller: Caller, headers: Mapping[str, str] | None) -> Response:
    """Answer one message of that era; raises EnvelopeError for a version that we do not speak."""
    version = None if headers is None else headers.get("mcp-protocol-version", "").strip(" \t") or None
    if message.method != "initialize" and version in HANDSHAKE_ERA and version != LEGACY:
        raise EnvelopeError(400, INVALID_REQUEST, f"Unsupported protocol version; initialize with {LEGACY}")
    if message.is_notification:
        return Reply(202, None)
    assert message.id is not None
    request = Request(
        id=message.id,
        method=message.method,
        params=message.params,
        caller=caller,
        version=LEGACY,
        meta=message.params["_meta"] if isinstance(message.params.get("_meta"), dict) else {},
        headers=headers,
    )
    try:
        return _answer(request)
    except McpError as error:
        return failure(request.id, error, legacy=True)


def _answer(request: Request) -> Response:
    if request.method == "initialize":
        return _initialize(request)
    if request.method == "ping":
        return complete(request, {})
    method = table.get(request.method)
    if method is None or method.traits.needs_tasks or request.method in _ONLY_NEWER:
        raise McpError(METHOD_NOT_FOUND, f"Method not found: {request.method[:128]}")
    if method.handler is not None:
        return method.handler(request)
    return run_method(method, request)


def _initialize(request: Request) -> Reply:
    if not isinstance(request.params.get("protocolVersion"), str):
        raise invalid_params("protocolVersion must be a string")
    capabilities = {
        name: value for name, value in table.server_capabilities(pushes=False).items() if name not in _NEWER
    }
    members: dict[str, Json] = {
        "protocolVersion": LEGACY,
        "capabilities": capabilities,
        "serverInfo": server_info(),
    }
    instructions = conf.get_settings().SERVER.INSTRUCTIONS
    if instructions is not None:
        members["instructions"] = instructions
    return complete(request, members)
