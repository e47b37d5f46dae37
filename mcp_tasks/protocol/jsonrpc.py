"""The JSON-RPC 2.0 envelope: what is a request, what is a notification, how replies are written."""

from dataclasses import dataclass

from .codec import Json, dumps
from .errors import INVALID_REQUEST, EnvelopeError, McpError

type_of_id = (str, int)
RequestId = str | int


@dataclass(frozen=True, slots=True)
class Message:
    """A valid request (``id`` is set) or notification (``id`` is None)."""

    method: str
    params: dict[str, Json]
    id: RequestId | None

    @property
    def is_notification(self) -> bool:
        return self.id is None


class InvalidEnvelope(EnvelopeError):
    """400 / -32600; ``id`` is the request's where it was readable, so that the client can match the error."""

    def __init__(self, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(400, INVALID_REQUEST, message)
        self.id = request_id


def readable_id(body: Json) -> RequestId | None:
    """The id of a message that may be invalid in every other respect."""
    value = body.get("id") if isinstance(body, dict) else None
    return value if isinstance(value, type_of_id) and not isinstance(value, bool) else None


def parse(body: Json) -> Message:
    """Read one message; raises InvalidEnvelope (basic/index, "Messages")."""
    if isinstance(body, list):
        raise InvalidEnvelope("Batches are not part of this protocol revision; send one message")
    if not isinstance(body, dict):
        raise InvalidEnvelope("A message is a JSON object")
    request_id = readable_id(body)
    if body.get("jsonrpc") != "2.0":
        raise InvalidEnvelope('jsonrpc must be "2.0"', request_id)
    method = body.get("method")
    if not isinstance(method, str):
        if "result" in body or "error" in body:
            raise InvalidEnvelope("A client sends no responses", request_id)
        raise InvalidEnvelope("method must be a string", request_id)
    if "id" in body and request_id is None:
        raise InvalidEnvelope("id must be a string or an integer")
    params = body.get("params", {})
    if not isinstance(params, dict):
        raise InvalidEnvelope("params must be an object", request_id)
    return Message(method, params, request_id)


def is_response(body: Json) -> bool:
    """A client's answer to a request of a server; only the era before 2026-07-28 has them."""
    return isinstance(body, dict) and "method" not in body and ("result" in body or "error" in body)


def result_text(request_id: RequestId, result: str) -> str:
    """A reply around the JSON text of a result."""
    return f'{{"jsonrpc":"2.0","id":{dumps(request_id)},"result":{result}}}'


def error_text(request_id: RequestId | None, error: McpError) -> str:
    """An error reply; without ``id`` where none could be read (null would not be valid in MCP)."""
    message: dict[str, Json] = {"jsonrpc": "2.0"}
    if request_id is not None:
        message["id"] = request_id
    message["error"] = error.payload()
    return dumps(message)


def notification_text(method: str, params: dict[str, Json]) -> str:
    """A message that wants no answer."""
    return dumps({"jsonrpc": "2.0", "method": method, "params": params})
