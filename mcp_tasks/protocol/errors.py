"""Error codes of MCP 2026-07-28 and the exceptions that carry them."""

from .codec import Json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022

#: Codes that travel with a status of their own, wherever they are found. Everything else that a
#: method finds out travels with 200: a client of two eras may take a 4xx for "legacy server".
HTTP_STATUS = {HEADER_MISMATCH: 400, MISSING_CLIENT_CAPABILITY: 400, UNSUPPORTED_PROTOCOL_VERSION: 400}


class McpError(Exception):
    """
    A JSON-RPC error, kept whole: ``code``, ``message`` and optional ``data``.

    Raised by a tool it makes the task ``failed``, or the synchronous call a JSON-RPC error.
    """

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        if isinstance(code, bool) or not isinstance(code, int):
            raise TypeError("code must be an integer")
        if not isinstance(message, str):
            raise TypeError("message must be a string")
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    def payload(self) -> dict[str, Json]:
        """The error object of JSON-RPC: no ``data`` member where there is none."""
        error: dict[str, Json] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


class EnvelopeError(McpError):
    """An error of the envelope or of its headers: it has an HTTP status of its own."""

    def __init__(self, http_status: int, code: int, message: str, data: Json = None) -> None:
        super().__init__(code, message, data)
        self.http_status = http_status


def invalid_params(message: str, data: Json = None) -> McpError:
    """-32602."""
    return McpError(INVALID_PARAMS, message, data)


def internal_error(message: str = "Internal error") -> McpError:
    """-32603, with a text that says nothing of the inside."""
    return McpError(INTERNAL_ERROR, message)


def missing_capability(required: dict[str, Json], message: str) -> McpError:
    """-32021 with ``data.requiredCapabilities``, an object in the shape of ClientCapabilities."""
    return McpError(MISSING_CLIENT_CAPABILITY, message, {"requiredCapabilities": required})


def http_status_of(error: McpError) -> int:
    """The HTTP status that an error travels with."""
    if isinstance(error, EnvelopeError):
        return error.http_status
    return HTTP_STATUS.get(error.code, 200)
