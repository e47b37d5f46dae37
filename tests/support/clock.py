"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta


class ManualClock:
    """Call it for the time; ``advance`` makes time pass."""

    def __init__(self) -> None:
        self.now = datetime(2026, 7, 28, 12, 0, 0, 123456, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
