"""Who asks: made by ``access`` from a request, carried into the store and into the worker."""

from dataclasses import dataclass
from typing import Any

from ..protocol.codec import Json
from ..store.types import Owner
from ..tools.context import OwnerIdentity


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated principal, or nobody: ``owner`` and ``user`` are None for anonymous callers."""

    owner: Owner | None = None
    user: Any = None
    scopes: frozenset[str] = frozenset()

    @property
    def identity(self) -> OwnerIdentity | None:
        """The owner as handlers see it."""
        return None if self.owner is None else OwnerIdentity(self.owner.key, self.owner.label)

    @property
    def user_key(self) -> Json:
        """The user's primary key in a form that JSON holds."""
        key = getattr(self.user, "pk", None)
        return None if key is None else str(key)

    def may(self, permission: str | None) -> bool:
        """Whether the caller holds a Django permission; anonymous callers hold none."""
        if permission is None:
            return True
        return self.user is not None and bool(self.user.has_perm(permission))
