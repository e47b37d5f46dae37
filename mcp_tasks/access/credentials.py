"""The credential of a connection that stays open: kept as its headers, and asked for again while it is used."""

import hashlib
from io import BytesIO
from typing import Any

from django.contrib.auth import get_user_model
from django.core.handlers.asgi import ASGIRequest
from django.db import Error as DatabaseError
from django.http import HttpRequest

from ..rpc.caller import Caller
from ..store.types import owner_key
from .authentication import Refusal, authenticate

#: Headers that differ from request to request of one caller, and say nothing of who it is.
_PASSING = (b"content-length", b"mcp-", b"accept", b"traceparent", b"tracestate", b"sec-websocket-key", b"last-event")


class Credential:
    """
    What a caller showed when its stream was opened, to be looked at again.

    ``key`` is equal for streams of one caller with equal headers and query: one look serves them all.
    """

    __slots__ = ("__weakref__", "_owner_key", "_scope", "_user_only", "_user_pk", "key")

    def __init__(self, request: ASGIRequest, caller: Caller) -> None:
        scope = request.scope
        kept = sorted((name, value) for name, value in scope["headers"] if not name.lower().startswith(_PASSING))
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": request.method,
            "path": scope["path"],
            "scheme": request.scheme,
            "query_string": scope.get("query_string", b""),
            "headers": kept,
            "client": scope.get("client"),
            "server": scope.get("server"),
        }
        self._owner_key = owner_key(caller.owner)
        self._user_pk = getattr(caller.user, "pk", None)
        self._user_only = False
        shown = kept, self._scope["query_string"]  # an authentication class may read a token from either
        told = repr((shown, self._owner_key, self._user_pk, (scope.get("client") or ("",))[0]))
        self.key = hashlib.sha256(told.encode()).hexdigest()

    def require_repeatable(self, request: HttpRequest) -> None:
        """
        For a request that came through middleware: where that alone knew who calls, only its user is looked at later.

        Raises Refusal where the request itself is not accepted any more, and what the database raises.
        """
        try:
            self._user_only = not self.is_accepted()
        except DatabaseError:
            raise  # says nothing of the credential
        except Exception:  # a class or the owner's function misses what a middleware sets
            self._user_only = True
        if self._user_only:
            if owner_key(authenticate(request).owner) != self._owner_key:
                raise Refusal(403, "The credential changed meanwhile")
            self.key = f"user {self.key}"  # such a look says nothing for a stream whose whole credential counts

    def is_accepted(self) -> bool:
        """Whether it would be accepted now, as the same owner. Queries; raises what the database raises."""
        if self._user_only:
            if self._user_pk is None:
                return True
            user = get_user_model()._default_manager.filter(pk=self._user_pk).first()
            return user is not None and user.is_active  # not in SQL: it need not be a column
        return self.caller() is not None

    def caller(self) -> Caller | None:
        """The caller as it is now, with the rights that it has now; None where the credential is not accepted."""
        try:
            caller = authenticate(ASGIRequest(dict(self._scope), BytesIO()))
        except Refusal:
            return None
        same_user = getattr(caller.user, "pk", None) == self._user_pk
        return caller if same_user and owner_key(caller.owner) == self._owner_key else None
