"""What is on its way to the event loops of who listens: of each task the newest state, and one wake-up for all."""

from collections.abc import Callable, Iterable
from uuid import UUID

from ..protocol.subscriptions import ListKind
from .listeners import Listener, Loop, State


class Outbox:
    """For one loop: states, and for whom they are (None: for all), and the lists that changed."""

    def __init__(self) -> None:
        self.states: dict[UUID, tuple[State | None, set[Listener] | None]] = {}
        self.lists: dict[ListKind, None] = {}
        self.is_called = False


class Post:
    """
    Used under the hub's lock only.

    ``deliver`` is called on the loop, which then takes what there is. ``ended``: a loop is over, and with it all who
    listened on it.
    """

    def __init__(self, *, deliver: Callable[[Loop], None], ended: Callable[[Loop], None]) -> None:
        self._deliver, self._ended = deliver, ended
        self._boxes: dict[Loop, Outbox] = {}

    def hand_in(self, loop: Loop, ref: UUID, state: State | None, only: set[Listener] | None) -> None:
        """A state of a task, in the place of an older one; ``only`` for these, or for all."""
        box = self._boxes.setdefault(loop, Outbox())
        _, waiting = box.states.pop(ref, (None, set()))  # popped, so that it goes to the end
        box.states[ref] = (state, None if only is None or waiting is None else waiting | only)
        self._call(loop, box)

    def announce(self, loop: Loop, kinds: Iterable[ListKind]) -> None:
        """These lists changed."""
        box = self._boxes.setdefault(loop, Outbox())
        box.lists.update(dict.fromkeys(kinds))
        self._call(loop, box)

    def take(self, loop: Loop) -> Outbox | None:
        """What there is for this loop; it is no longer here."""
        return self._boxes.pop(loop, None)

    def _call(self, loop: Loop, box: Outbox) -> None:
        if box.is_called and not loop.is_closed():
            return
        box.is_called = True
        try:
            loop.call_soon_threadsafe(self._deliver, loop)
        except RuntimeError:  # closed
            self._boxes.pop(loop, None)
            self._ended(loop)
