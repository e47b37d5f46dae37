"""How many streams each owner has open in this process, and the places that come back however a stream ends."""

import threading
import weakref
from collections import Counter, deque

from .. import conf
from ..protocol.subscriptions import too_many


class Places:
    """The places of all owners. May be used on any thread."""

    def __init__(self) -> None:
        self._taken: Counter[str | None] = Counter()
        self._given_back: deque[str | None] = deque()
        self._lock = threading.Lock()

    def take(self, owner_key: str | None) -> "Place":
        """A place for one more stream; raises McpError when ``STREAMS_PER_OWNER`` are taken."""
        limit = conf.get_settings().LIMITS.STREAMS_PER_OWNER
        with self._lock:
            self._settle()
            if limit is not None and self._taken[owner_key] >= limit:
                raise too_many(limit)
            self._taken[owner_key] += 1
        return Place(self, owner_key)

    def give_back(self, owner_key: str | None) -> None:
        """
        The stream is over.

        The collector of garbage calls this too, on whichever thread it comes to run: also on one that is in ``take``
        at that moment. So it takes no lock, and is counted by the next who takes a place.
        """
        self._given_back.append(owner_key)

    def count(self) -> int:
        """How many are taken now."""
        with self._lock:
            self._settle()
            return self._taken.total()

    def _settle(self) -> None:
        while self._given_back:
            owner_key = self._given_back.popleft()
            self._taken[owner_key] -= 1
            if not self._taken[owner_key]:
                del self._taken[owner_key]


class Place:
    """Given back when it is released, or forgotten: a response that was made may never be sent."""

    __slots__ = ("__weakref__", "release")

    def __init__(self, places: Places, owner_key: str | None) -> None:
        self.release = weakref.finalize(self, places.give_back, owner_key)
        self.release.atexit = False


places = Places()
