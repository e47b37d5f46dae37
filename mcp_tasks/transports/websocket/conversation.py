"""
What is said on one open socket: requests and their answers in any order, subscriptions, and nothing after the end.

Nothing is remembered from one request to the next but the credential, and that is looked at again for each.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Protocol

from django.http import HttpRequest

from ...access.credentials import Credential
from ...access.throttles import gate
from ...execution.threads import Busy
from ...notifications.subscription import Subscription
from ...protocol.codec import Json
from ...protocol.errors import INTERNAL_ERROR, INVALID_REQUEST, McpError, internal_error
from ...protocol.jsonrpc import RequestId, error_text, notification_text, readable_id
from ...rpc.dispatch import serve_message
from ...rpc.requests import Listen, Reply, Response, Work
from ..http.streams import Feed, abandon
from ..lanes import lanes, on_thread
from ..listening import KEEP_ALIVE_SECONDS, Guard, Revoked, guard_of, last_message, listen

logger = logging.getLogger("mcp_tasks.rpc")

#: Close codes, after the HTTP statuses. Private ones: those of RFC 6455 cannot be sent from every server.
UNAUTHORIZED, UNAVAILABLE = 4401, 4503
#: Of one socket at once: messages that are looked at or worked on; subscriptions, and the tasks in all of them.
IN_FLIGHT, LISTENS, HEARD_OF = 64, 1000, 10_000

CANCELLED = "notifications/cancelled"

TOO_BUSY = "Too many calls are running; try again in a moment"


class Exchange:
    """One request of this socket, from its frame to its answer."""

    def __init__(self, request_id: RequestId | None) -> None:
        self.id = request_id
        self.cancelled = False
        self._stop: Callable[[], object] | None = None

    def cancel(self) -> None:
        """The client does not want the answer any more."""
        self.cancelled = True
        if self._stop is not None:
            self._stop()

    def when_cancelled(self, stop: Callable[[], object]) -> None:
        """Call this then; at once if it was cancelled already."""
        self._stop = stop
        if self.cancelled:
            stop()


class Wire(Protocol):
    """The socket, as its conversation uses it."""

    async def send(self, text_data: str) -> None: ...

    async def close(self, code: int) -> None: ...


class Conversation:
    """Made, and used, on the loop of the socket. ``request`` makes its upgrade anew, for throttles."""

    def __init__(self, wire: Wire, credential: Credential, request: Callable[[], HttpRequest]) -> None:
        self.is_open = True
        self._wire, self._credential, self._request = wire, credential, request
        self._guard: Guard = guard_of(credential)
        self._loop = asyncio.get_running_loop()
        self._exchanges: dict[RequestId, Exchange] = {}
        self._running: set[Exchange] = set()
        self._answers: set[asyncio.Task[None]] = set()
        self._listens = self._heard_of = self._busy = 0
        self._sending = asyncio.Lock()
        self._watching = self._loop.create_task(self._watch_credential())

    # -- its end --------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Nothing is said any more, and what runs for it stops. May be called twice."""
        self.is_open = False
        for exchange in list(self._running):
            exchange.cancel()
        if self._watching is not asyncio.current_task():  # which may be about to say why
            self._watching.cancel()

    async def say_goodbye(self, seconds: float) -> None:
        """Wait so long until what is under way was said."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=seconds)

    async def _watch_credential(self) -> None:
        while True:
            await asyncio.sleep(self._guard.fresh_seconds)
            if self._guard.is_old and not await self._guard.ask():
                await self._revoke()
                return

    async def _revoke(self) -> None:
        if self.is_open:
            self.leave()
            await self._wire.close(code=UNAUTHORIZED)

    # -- what comes -----------------------------------------------------------------------------------------------

    async def begin(self, body: Json) -> None:
        """A message. Returns once it is under way, so that a cancellation finds what it is about."""
        if not self.is_open:
            return
        if _is_notification(body) and body["method"] == CANCELLED:
            self._cancel(body.get("params"))
            return
        request_id = readable_id(body)
        if request_id is not None and request_id in self._exchanges:
            await self.refuse(request_id, INVALID_REQUEST, "This id is in flight on this socket already")
            return
        if self._busy >= IN_FLIGHT:
            # Not kept waiting: what waits here would hold up the cancellation that makes room.
            message = f"{IN_FLIGHT} requests are in flight on this socket; wait for one of them"
            if not _is_notification(body):  # which nobody answers
                await self.refuse(request_id, INTERNAL_ERROR, message)
            return
        exchange = Exchange(request_id)
        self._running.add(exchange)
        if request_id is not None:
            self._exchanges[request_id] = exchange
        self._busy += 1
        answer = self._loop.create_task(self._answer(body, exchange))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    def _cancel(self, params: Json) -> None:
        """``notifications/cancelled``: only for what is in flight on this very socket; never a task."""
        request_id = params.get("requestId") if isinstance(params, dict) else None
        is_id = isinstance(request_id, (str, int)) and not isinstance(request_id, bool)
        exchange = self._exchanges.get(request_id) if is_id else None  # type: ignore[arg-type]
        if exchange is not None:
            exchange.cancel()

    async def _answer(self, body: Json, exchange: Exchange) -> None:
        is_busy = True
        try:
            response = await on_thread(lanes, lambda: self._serve(body, exchange))
            if isinstance(response, Listen):
                is_busy = False  # it may stay for hours
                self._busy -= 1
                await self._listen(response.subscription, exchange)
            elif isinstance(response, Work):
                await self._work(response, exchange)
            elif response is not None:
                await self._reply(response, exchange)
        except Busy:
            await self.refuse(exchange.id, INTERNAL_ERROR, TOO_BUSY)
        except Exception:
            logger.exception("a message of a socket failed", extra={"event": "internal_error"})
            await self._tell(error_text(exchange.id, internal_error()))
        finally:
            self._busy -= is_busy
            self._running.discard(exchange)
            if exchange.id is not None:
                del self._exchanges[exchange.id]

    def _serve(self, body: Json, exchange: Exchange) -> Response | None:
        """On a lane's thread: look at the credential, dispatch. None when nobody wants the answer any more."""
        if exchange.cancelled:
            return None
        caller = self._credential.caller()  # anew: rights change while a socket is open
        if caller is None:
            return Reply(401, None)
        return serve_message(body, caller, pushes=True, admit=gate(self._request, caller))

    # -- what goes ------------------------------------------------------------------------------------------------

    async def refuse(self, request_id: RequestId | None, code: int, message: str) -> None:
        """An error in the place of an answer."""
        await self._tell(error_text(request_id, McpError(code, message)))

    async def _reply(self, reply: Reply, exchange: Exchange) -> None:
        if reply.status == 401:
            await self._revoke()
        elif exchange.cancelled or not self.is_open or (reply.body is not None and not await self._tell(reply.body)):
            abandon(reply)

    async def _work(self, work: Work, exchange: Exchange) -> None:
        if exchange.cancelled:
            return
        feed = Feed(work)
        feed.start()
        item: str | Reply | None = None
        stopped = self._loop.create_future()
        exchange.when_cancelled(lambda: None if stopped.done() else stopped.set_result(None))
        try:
            while not isinstance(item, Reply) and not stopped.done():
                item = await feed.get_unless(stopped, KEEP_ALIVE_SECONDS)
                if isinstance(item, str) and not stopped.done():
                    await self._report([item, *feed.emitted()], stopped)
        finally:
            if not isinstance(item, Reply):
                feed.leave()
        if isinstance(item, Reply):
            if not await self._guard.ask():  # it may have taken long
                await self._revoke()
            await self._reply(item, exchange)

    async def _report(self, texts: list[str], stopped: "asyncio.Future[None]") -> None:
        """Progress, to who is still accepted: one look for all. Nobody waits for that longer than for the answer."""
        asked = self._guard.ask()
        either: set[asyncio.Future[Any]] = {asked, stopped}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            return
        if not asked.result():
            await self._revoke()
            return
        for text in texts:
            await self._tell(text)

    async def _listen(self, subscription: Subscription, exchange: Exchange) -> None:
        if self._listens >= LISTENS or self._heard_of + subscription.task_count > HEARD_OF:
            message = f"Too many subscriptions on this socket ({LISTENS}, with {HEARD_OF} tasks in all); close some"
            await self._tell(error_text(exchange.id, internal_error(message)))
            return
        self._listens += 1
        self._heard_of += subscription.task_count
        exchange.when_cancelled(subscription.end)
        try:
            is_over = await self._send_all(subscription, exchange)
        except Revoked:
            await self._revoke()
            return
        finally:
            self._listens -= 1
            self._heard_of -= subscription.task_count
        if is_over and self.is_open and not self._listens:
            # Only a server that stops ends subscriptions; told so, a client comes back to another one.
            self.is_open = False
            await self._wire.close(code=UNAVAILABLE)

    async def _send_all(self, subscription: Subscription, exchange: Exchange) -> bool:
        """Everything that a subscription has to say; True when the server ended it, and the client was told."""
        async with aclosing(listen(subscription, self._credential)) as messages:
            async for frames in messages:
                for frame in frames:
                    if exchange.cancelled or not await self._tell(frame.text(subscription.id_text)):
                        return False
                if exchange.cancelled:
                    return False
        if exchange.cancelled:
            return False
        await self._tell(last_message(subscription))
        return await self._tell(notification_text(CANCELLED, {"requestId": subscription.id}))

    async def _tell(self, text: str) -> bool:
        """Send a message; False when nobody is there any more."""
        if not self.is_open:
            return False
        try:
            async with self._sending:
                await self._wire.send(text_data=text)
        except Exception:  # every server has its own error for a socket that was closed meanwhile
            logger.debug("a message reached nobody", exc_info=True)
            return False
        return self.is_open


def _is_notification(body: Json) -> bool:
    return isinstance(body, dict) and "id" not in body and isinstance(body.get("method"), str)
