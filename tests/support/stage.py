"""A handler that waits until a test lets it go on, or its token is raised."""

import threading
import time
from uuid import UUID

from mcp_tasks import TaskContext


class Stage:
    """What a handler calls, and where a test sees how it stands."""

    def __init__(self) -> None:
        self.begun, self.release, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.reason: str | None = None
        self.ref: UUID | None = None

    def play(self, ctx: TaskContext) -> None:
        """Wait; ten seconds at most."""
        self.ref = ctx.ref
        self.begun.set()
        deadline = time.monotonic() + 10
        while not self.release.is_set() and not ctx.token.wait(0.02) and time.monotonic() < deadline:
            pass
        self.reason = ctx.token.reason
        self.ended.set()
