"""What every page of the demo site says about itself to a browser."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

#: Scripts, styles and sockets of this host only, none of them inline. 'self' includes WebSockets to this origin.
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"


class ContentSecurityPolicy:
    """Nothing but this site's own files, and no inline script or style: the admin of mcp_tasks needs neither."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response
