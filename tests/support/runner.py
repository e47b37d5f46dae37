"""A runner that starts nothing: tests run legs themselves, when they want to."""

from uuid import UUID

from mcp_tasks.runners.base import Runner


class IdleRunner(Runner):
    """Remembers the doorbell."""

    def __init__(self) -> None:
        self.rung: list[UUID] = []

    def enqueue(self, ref: UUID) -> None:
        self.rung.append(ref)
