"""
From the text of a message to its method: era, envelope, ``_meta``, headers, version, capability, in that order.

The order is a promise: which of two faults is reported decides whether a client repairs its request, falls back
to the older era, or gives up.
"""

import logging
from collections.abc import Callable, Mapping

from .. import conf
from ..protocol import headers as header_values
from ..protocol.capabilities import (
    CAPABILITIES_KEY,
    HANDSHAKE_ERA,
    LEGACY,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    MODERN,
    NEEDS_TASKS,
    VERSION_KEY,
    declares_tasks,
)
from ..protocol.codec import Json, JsonError, loads
from ..protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    EnvelopeError,
    McpError,
    internal_error,
    invalid_params,
)
from ..protocol.jsonrpc import InvalidEnvelope, Message, is_response, parse, readable_id
from . import call, legacy, subscriptions, tasks
from .caller import Caller
from .discovery import supported_versions
from .further import run_method
from .methods import table
from .requests import Reply, Request, Response, failure
from .watching import watched

logger = logging.getLogger("mcp_tasks.rpc")

#: Modules whose import fills the method table.
OUR_METHODS = (call, subscriptions, tasks)

#: Methods of the extension, on which published clients leave the header Mcp-Name out.
_NAME_MAY_LACK = ("tasks/get", "tasks/update", "tasks/cancel")

#: Looks at a message before anything is done about it; the error with which it is refused, if it is.
Admit = Callable[[Json], McpError | None]


def serve(
    text: bytes | str,
    caller: Caller,
    headers: Mapping[str, str] | None = None,
    *,
    pushes: bool = False,
    admit: Admit | None = None,
) -> Response:
    """
    Answer one message. ``headers``: lower-case names, or None on a transport that has none. ``pushes``: the transport
    can serve ``subscriptions/listen``. ``admit`` may refuse it.

    Never raises: every fault is a reply.
    """
    try:
        body = loads(text)
    except JsonError as problem:
        return failure(None, EnvelopeError(400, PARSE_ERROR, f"Parse error: {problem}"))
    return serve_message(body, caller, headers, pushes=pushes, admit=admit)


def serve_message(
    body: Json,
    caller: Caller,
    headers: Mapping[str, str] | None = None,
    *,
    pushes: bool = False,
    admit: Admit | None = None,
) -> Response:
    """The same for a message that was parsed already."""
    transport = "websocket" if headers is None else "http"
    return watched(body, caller, transport, lambda: _answer(body, caller, headers, pushes, admit))


def _answer(
    body: Json, caller: Caller, headers: Mapping[str, str] | None, pushes: bool, admit: Admit | None
) -> Response:
    try:
        refused = None if admit is None else admit(body)
        if refused is not None:
            return failure(readable_id(body), refused)
        return _serve(body, caller, headers, pushes)
    except InvalidEnvelope as error:
        return failure(error.id, error)
    except McpError as error:
        return failure(readable_id(body), error)
    except Exception:
        logger.exception("a request failed", extra={"event": "internal_error"})
        return failure(readable_id(body), internal_error())


def _serve(body: Json, caller: Caller, headers: Mapping[str, str] | None, pushes: bool) -> Response:
    if _is_legacy(body, headers):
        if is_response(body):
            return Reply(202, None)
        return legacy.serve(parse(body), caller, headers)
    message = parse(body)
    if message.is_notification:
        return _drop(headers)
    request = _checked(message, caller, headers, pushes)
    method = table.get(request.method)
    if method is None:
        raise EnvelopeError(404, METHOD_NOT_FOUND, f"Method not found: {request.method[:128]}")
    if method.traits.needs_tasks and not declares_tasks(request.capabilities):
        raise EnvelopeError(
            400,
            MISSING_CLIENT_CAPABILITY,
            "This method needs the tasks extension",
            {"requiredCapabilities": NEEDS_TASKS},
        )
    if request.meta.get(LOG_LEVEL_KEY, LOG_LEVELS[0]) not in LOG_LEVELS:
        raise invalid_params(f"{LOG_LEVEL_KEY} must be one of {', '.join(LOG_LEVELS)}")
    return method.handler(request) if method.handler is not None else run_method(method, request)


def _is_legacy(body: Json, headers: Mapping[str, str] | None) -> bool:
    """Which era a message belongs to (basic/versioning; streamable-http, "Backward Compatibility")."""
    meta = _meta_of(body)
    version = _header(headers, "mcp-protocol-version")
    if VERSION_KEY in meta:
        # A header that says something else is a mismatch, which only the newer era has a word for.
        return conf.get_settings().LEGACY_ERA and meta[VERSION_KEY] == LEGACY and version in (None, LEGACY)
    if isinstance(body, dict) and body.get("method") == "initialize":
        if conf.get_settings().LEGACY_ERA:
            return True
        params = body.get("params")
        raise _unsupported(params.get("protocolVersion") if isinstance(params, dict) else None)
    return conf.get_settings().LEGACY_ERA and (version is None or version in HANDSHAKE_ERA)


def _meta_of(body: Json) -> dict[str, Json]:
    params = body.get("params") if isinstance(body, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _drop(headers: Mapping[str, str] | None) -> Reply:
    """A posted notification is accepted and dropped: its ids are the client's own and name nothing here."""
    version = _header(headers, "mcp-protocol-version")
    if version is not None and version not in supported_versions():
        raise _unsupported(version)
    return Reply(202, None)


def _checked(message: Message, caller: Caller, headers: Mapping[str, str] | None, pushes: bool) -> Request:
    assert message.id is not None
    meta = message.params.get("_meta")
    if not isinstance(meta, dict):
        raise EnvelopeError(400, INVALID_PARAMS, "params._meta must be an object")
    version, capabilities = meta.get(VERSION_KEY), meta.get(CAPABILITIES_KEY)
    if not isinstance(version, str):
        raise EnvelopeError(400, INVALID_PARAMS, f"_meta needs {VERSION_KEY}, a string")
    if not isinstance(capabilities, dict):
        raise EnvelopeError(400, INVALID_PARAMS, f"_meta needs {CAPABILITIES_KEY}, an object")
    extensions = capabilities.get("extensions", {})
    if not isinstance(extensions, dict) or not all(isinstance(value, dict) for value in extensions.values()):
        raise EnvelopeError(400, INVALID_PARAMS, "extensions in the client capabilities must be an object of objects")
    if headers is not None:
        _check_headers(message, version, headers)
    if version != MODERN:
        raise _unsupported(version)
    return Request(
        id=message.id,
        method=message.method,
        params=message.params,
        caller=caller,
        meta=meta,
        capabilities=capabilities,
        headers=headers,
        pushes=pushes,
    )


def _check_headers(message: Message, version: str, headers: Mapping[str, str]) -> None:
    """The mirrored headers say what the body says (streamable-http, "Server Validation")."""
    for name, expected in (("MCP-Protocol-Version", version), ("Mcp-Method", message.method)):
        value = _header(headers, name.lower())
        if value is None:
            raise _mismatch(f"the header {name} is missing")
        if value != expected:
            raise _mismatch(f"{name} does not match the body")
    method = table.get(message.method)
    if method is None or method.traits.name_param is None:
        return
    named = message.params.get(method.traits.name_param)
    value = _header(headers, "mcp-name")
    if value is None:
        may_lack = message.method in _NAME_MAY_LACK and not conf.get_settings().STRICT_HEADERS
        if may_lack or not isinstance(named, str):
            return
        raise _mismatch("the header Mcp-Name is missing")
    try:
        value = header_values.decode(value)
    except header_values.InvalidHeader as problem:
        raise _mismatch(f"Mcp-Name is {problem}") from None
    if value != named:
        raise _mismatch("Mcp-Name does not match the body")


def _header(headers: Mapping[str, str] | None, name: str) -> str | None:
    value = None if headers is None else headers.get(name)
    return None if value is None else value.strip(" \t")


def _mismatch(what: str) -> EnvelopeError:
    return EnvelopeError(400, HEADER_MISMATCH, f"Header mismatch: {what}")


def _unsupported(version: Json) -> EnvelopeError:
    supported = supported_versions()
    return EnvelopeError(
        400,
        UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version; this server speaks {' and '.join(supported)}",
        {"supported": supported, "requested": version if isinstance(version, str) else ""},
    )
