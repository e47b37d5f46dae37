"""``notifications/progress`` on the response stream of a synchronous call (basic/patterns/progress)."""

import math
from collections.abc import Callable

from ..protocol.codec import Json
from ..protocol.jsonrpc import notification_text
from .requests import Emit, Request


def progress_reporter(request: Request, emit: Emit) -> Callable[[str | None, float | None, float | None], None]:
    """What ``ctx.progress`` does in an inline call: a notification each time, if the caller sent a token."""
    token = request.meta.get("progressToken")
    if isinstance(token, bool) or not isinstance(token, (str, int)):
        return lambda message, done, total: None
    last: list[float] = []

    def report(message: str | None, done: float | None, total: float | None) -> None:
        value = len(last) if done is None else done
        if last and value <= last[-1]:
            value = math.nextafter(last[-1], math.inf)  # the protocol wants it to rise with every message
        last.append(value)
        params: dict[str, Json] = {"progressToken": token, "progress": value}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        emit(notification_text("notifications/progress", params))

    return report
