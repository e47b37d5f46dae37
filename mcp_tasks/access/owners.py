"""The owner of a task: a replaceable function from an authenticated DRF request to an Owner."""

from django.core.exceptions import ImproperlyConfigured
from rest_framework.request import Request

from .. import conf
from ..store.types import Owner

__all__ = ["Owner", "default_owner", "function_problem", "owner_of"]


def default_owner(request: Request) -> Owner | None:
    """
    Issuer, subject, client; None for an anonymous caller.

    The subject of a Django user is its primary key and the day it joined, so that a key used again after a
    deletion is another owner. A client is told apart where the credential names one (an OAuth application); a
    new token of the same client keeps the tasks.
    """
    user = request.user
    if user is None or not user.is_authenticated:
        return None
    joined = getattr(user, "date_joined", None)
    application = getattr(request.auth, "application", None)
    client = getattr(application, "client_id", None)
    parts = ("django", str(user.pk), None if joined is None else joined.isoformat(), client)
    return Owner(parts, str(user.get_username()))


def function_problem() -> str | None:
    """What is wrong with ``MCP_TASKS["OWNER"]``, as a sentence; None when it can be used."""
    path = conf.get_settings().OWNER
    try:
        usable = callable(conf.load(path))
    except ImproperlyConfigured:
        usable = False
    return None if usable else f"The owner function {path} cannot be used; every task would be refused."


def owner_of(request: Request) -> Owner | None:
    """What ``MCP_TASKS["OWNER"]`` says; raises TypeError when it says something else than an Owner or None."""
    owner = conf.load(conf.get_settings().OWNER)(request)
    if owner is not None and not isinstance(owner, Owner):
        raise TypeError(f"{conf.get_settings().OWNER} returned {type(owner).__name__}, not an Owner or None")
    return owner
