"""
DRF authentication classes, called with or without Django's handler around them, and the challenges of a 401.

Every request is authenticated on its own: this protocol has no handshake to remember.
"""

import logging
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.auth import get_user
from django.core.exceptions import ImproperlyConfigured
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.http import HttpRequest, QueryDict
from django.utils.functional import SimpleLazyObject
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, TokenAuthentication
from rest_framework.request import Request

from .. import conf
from ..rpc.caller import Caller
from .owners import owner_of

logger = logging.getLogger("mcp_tasks.access")


class BearerTokenAuthentication(TokenAuthentication):
    """DRF's tokens under the keyword ``Bearer`` (RFC 6750), which DRF's own class does not take."""

    keyword = "Bearer"


class BodilessRequest(Request):
    """
    A DRF request whose body is none of an authentication class's business: JSON that the transport has read.

    The CSRF check and OAuth look for a form first and would fail on a body that is gone; here they find an empty one.
    """

    @property
    def POST(self) -> QueryDict:  # type: ignore[override]  # noqa: N802 - the name is Django's
        return QueryDict()


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    """401 with the first class's challenge, or 403. ``reason`` is for the client and says nothing of the credential."""

    status: int
    reason: str
    challenge: str | None = None


def authenticators() -> list[BaseAuthentication]:
    """The configured classes, made anew for each request as DRF does."""
    return [cast("BaseAuthentication", conf.load(path)()) for path in conf.get_settings().AUTHENTICATION_CLASSES]


def authenticate(http_request: HttpRequest) -> Caller:
    """
    Who calls. Raises Refusal.

    A credential that no class accepts is refused also where anonymous callers may come in: somebody who believes
    to be known must not silently become nobody.
    """
    provide_session(http_request)
    classes = authenticators()
    request = BodilessRequest(http_request, authenticators=classes)
    if any("\x00" in http_request.headers.get(name, "") for name in ("Authorization", "Cookie")):
        # PostgreSQL would fail on it instead of finding nothing.
        raise _unauthorized(request, classes, "The credential is not accepted here")
    try:
        user = request.user
        accepted = request.successful_authenticator is not None
    except (exceptions.AuthenticationFailed, exceptions.NotAuthenticated) as refused:
        raise _unauthorized(request, classes, str(refused.detail)) from None
    except (exceptions.PermissionDenied, DjangoPermissionDenied) as refused:
        raise Refusal(403, str(getattr(refused, "detail", "Forbidden"))) from None
    if not accepted:
        if "Authorization" in http_request.headers:
            raise _unauthorized(request, classes, "The credential is not accepted here")
        if not conf.get_settings().ALLOW_ANONYMOUS:
            raise _unauthorized(request, classes, "Authentication is needed")
        return Caller(owner_of(request))  # nobody, unless the project's own function tells them apart
    owner = owner_of(request)
    known = user if getattr(user, "is_authenticated", False) else None
    return Caller(owner, known, _scopes(request.auth))


def class_problem(path: str) -> str | None:
    """What is wrong with an entry of ``AUTHENTICATION_CLASSES``, as a sentence; None when it can be used."""
    try:
        loaded = conf.load(path)
    except ImproperlyConfigured as problem:
        return str(problem)
    if not (isinstance(loaded, type) and issubclass(loaded, BaseAuthentication)):
        return f"{path} is no DRF authentication class."
    if issubclass(loaded, BearerTokenAuthentication) and not apps.is_installed("rest_framework.authtoken"):
        return f"{path} needs rest_framework.authtoken in INSTALLED_APPS; migrate, or name other classes."
    return None


def _unauthorized(request: Request, classes: list[BaseAuthentication], reason: str) -> Refusal:
    challenge = next((header for header in (c.authenticate_header(request) for c in classes) if header), None)
    logger.warning("a credential was refused", extra={"event": "access_refused", "reason": "credential"})
    return Refusal(401, reason, challenge or 'Bearer realm="api"')


def _scopes(auth: Any) -> frozenset[str]:
    """Scopes of an OAuth token; other credentials have none."""
    scope = getattr(auth, "scope", None)
    return frozenset(scope.split()) if isinstance(scope, str) else frozenset()


def _keep_key() -> None:
    """For a session of which nobody sends the cookie: after SECRET_KEY was rotated, a new key would end it."""


def provide_session(request: HttpRequest) -> None:
    """What Django's middleware gives a request and DRF's session class silently needs; kept where it ran."""
    if not hasattr(request, "session") and "django.contrib.sessions" in django_settings.INSTALLED_APPS:
        engine = import_module(django_settings.SESSION_ENGINE)
        session = engine.SessionStore(request.COOKIES.get(django_settings.SESSION_COOKIE_NAME))
        session.cycle_key = _keep_key
        request.session = session
    if not hasattr(request, "user") and hasattr(request, "session"):
        request.user = SimpleLazyObject(lambda: get_user(request))  # type: ignore[assignment]
