"""Host and Origin of a connection (streamable-http, "Security"): the same rules for HTTP and for WebSocket."""

from urllib.parse import urlsplit

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest

from .. import conf


def origin_problem(request: HttpRequest) -> str | None:
    """
    Host against ``ALLOWED_HOSTS``, then Origin against that host or the allowlist; None when both are right.

    Equal Host and Origin alone protect nothing: under DNS rebinding both are the attacker's. Without an Origin it is
    no browser. Cookies that came over TLS are not for a page that did not, and that anybody on the way may have
    written.
    """
    try:
        host = request.get_host()
    except DisallowedHost:
        return "This host is not served here; see ALLOWED_HOSTS"
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    if origin in conf.get_settings().ALLOWED_ORIGINS:
        return None
    if not _same_origin(origin, request.scheme or "http", host):
        return "This origin is not allowed"
    by_cookies = bool(request.COOKIES) and "Authorization" not in request.headers
    if request.is_secure() and by_cookies and not origin.lower().startswith("https:"):
        return "This origin is not allowed: cookies of an https site need an https page"
    return None


def _same_origin(origin: str, scheme: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    default = {"http": ":80", "https": ":443"}
    mine = host.lower().removesuffix(default.get(scheme, ""))
    return parts.scheme in default and parts.netloc.lower().removesuffix(default[parts.scheme]) == mine
