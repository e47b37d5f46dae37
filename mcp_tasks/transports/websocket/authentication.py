"""Who opens a socket: the upgrade as a request for DRF's classes, with a token from the header or a subprotocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from ..origin import origin_problem

#: Offered by every client; answered, so that a browser accepts the connection.
PROTOCOL = "mcp"
#: Beside it a browser, which cannot set headers, offers its token under this prefix. It is never answered.
TOKEN_PREFIX = "bearer."  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class Handshake:
    """The upgrade: a request to authenticate, the subprotocol to answer, and why the origin is refused, if it is."""

    request: ASGIRequest
    subprotocol: str | None
    problem: str | None


def read(scope: Mapping[str, Any]) -> Handshake:
    """
    Read an upgrade; raises UnicodeDecodeError for a path or query that is no text.

    A browser sends its cookies from everywhere, so a connection that has nothing else to show must come from an
    allowed origin, and say so. A program with a token needs none.
    """
    offered = scope.get("subprotocols") or []
    tokens = [name.removeprefix(TOKEN_PREFIX) for name in offered if name.startswith(TOKEN_PREFIX)]
    headers = list(scope["headers"])
    if tokens and not any(name.lower() == b"authorization" for name, _ in headers):
        headers.append((b"authorization", f"Bearer {tokens[0]}".encode()))
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    request = ASGIRequest({**scope, "type": "http", "method": "GET", "scheme": scheme, "headers": headers}, BytesIO())
    problem = origin_problem(request)
    if problem is None and request.COOKIES and not {"Origin", "Authorization"} & set(request.headers):
        problem = "A connection with cookies must name its origin"
    return Handshake(request, PROTOCOL if PROTOCOL in offered else None, problem)
