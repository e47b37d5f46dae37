"""What operators do to one task each: the part of the interface that a store may leave out."""

from uuid import UUID

from .types import Outcome, Unsupported


class OperatorVerbs:
    """
    The verbs of operators, refused by a store that has none.

    ``actor`` is ``operator:<pk>``; ``reason`` is kept in the timeline. With ``revision`` a task that is at another one
    by now is left alone (``changed``). ``share_reason``: the client reads the reason too.
    """

    def cancel(
        self, ref: UUID, *, actor: str, reason: str, revision: int | None = None, share_reason: bool = True
    ) -> Outcome:
        """Settle ``cancelled`` and tell the worker to stop; a finished task is left alone."""
        raise Unsupported("this store has no verbs for operators")

    def fail(
        self, ref: UUID, *, actor: str, reason: str, revision: int | None = None, share_reason: bool = False
    ) -> Outcome:
        """Settle ``failed`` with -32603 and a neutral text, or the reason."""
        raise Unsupported("this store has no verbs for operators")

    def extend(self, ref: UUID, ttl_ms: int, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        """A longer time to live of a live task, in milliseconds from its creation, at most ``MAX_TTL_MS``."""
        raise Unsupported("this store has no verbs for operators")

    def requeue(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        """Queue a stalled task again for one more try, also where its tries are used up."""
        raise Unsupported("this store has no verbs for operators")

    def dismiss_inputs(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        """Answer "cancel" to the open questions for a human of a parked task."""
        raise Unsupported("this store has no verbs for operators")

    def delete_terminal(self, ref: UUID, *, actor: str, reason: str, revision: int | None = None) -> Outcome:
        """Remove a finished task before its time, with everything that hangs on it."""
        raise Unsupported("this store has no verbs for operators")

    def note_refusal(self, ref: UUID, count: int) -> None:
        """Note in the timeline that a caller asked for this task of another owner, so many times."""
