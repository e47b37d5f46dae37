"""
A server that is told to stop: open streams are ended with their result, so that it need not wait for them, or cut them.

No server tells its application in time: uvicorn waits for open responses first, daphne cuts them. So the signals that
stop a process are heard here as well, before the server's own handler, which is called as if nothing had happened.
"""

import signal
import threading
from types import FrameType
from typing import Any

from ..notifications.subscription import end_all

SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: How long a connection that is cancelled meanwhile may go on to say so, and until the server has written it.
GOODBYE_SECONDS, FLUSH_SECONDS = 1.0, 0.1

_chained: dict[int, Any] = {}
_heard: set[int] = set()


def is_stopping() -> bool:
    """Whether this process was told to stop."""
    return bool(_heard)


def hear_signals() -> None:
    """
    Called where a server starts and where a stream opens: by then the server has its handlers, or most of them.

    Does nothing outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in SIGNALS:
        before = signal.getsignal(number)
        if before is not _on_signal and callable(before):
            _chained[number] = before
            signal.signal(number, _on_signal)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _heard.add(number)
    end_all()
    _chained[number](number, frame)
