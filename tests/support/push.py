"""The transports that push, without a socket: a stream of events and a WebSocket, driven from a test's own thread."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from mcp_tasks.protocol.codec import dumps, loads
from tests.support.adapters import scope_of

T = TypeVar("T")

#: How long a test waits for what must come, and how long for what must not.
PATIENCE, SILENCE = 10.0, 0.3
KEEP_ALIVE = "keep-alive"


class LoopThread:
    """An event loop on a thread of its own, as a server has one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.conversations: list[Conversation] = []
        self._thread = threading.Thread(target=self.loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float = PATIENCE) -> T:
        """Run on the loop and wait for the result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def call(self, function: Callable[[], T]) -> T:
        """Call on the loop and wait for the result."""

        async def called() -> T:
            return function()

        return self.run(called())

    def end(self) -> None:
        """Let every client go, cancel what still runs, and end."""
        if self.loop.is_closed():
            return
        for conversation in self.conversations:
            conversation.hang_up()
        for conversation in self.conversations:
            conversation.is_over(2.0)
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Ended(AssertionError):
    """The application said all that it had to say."""


class Conversation:
    """One connection to an ASGI application. What it sends is read in order."""

    #: What a server says when the client is gone.
    gone: dict[str, Any] = {}

    def __init__(
        self, server: LoopThread, application: Any, scope: dict[str, Any], *, unreachable: Collection[str] = ()
    ) -> None:
        """``unreachable``: types of messages that the server says it cannot send, since the client is gone."""
        self._server = server
        self._unreachable = unreachable
        self._sent: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._given: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._over = threading.Event()
        self.failure: BaseException | None = None
        server.conversations.append(self)
        self._running = asyncio.run_coroutine_threadsafe(self._run(application, scope), server.loop)

    async def _run(self, application: Any, scope: dict[str, Any]) -> None:
        async def send(message: dict[str, Any]) -> None:
            await asyncio.sleep(0)  # a server may have to wait
            if message["type"] in self._unreachable:
                raise ConnectionError("the client is gone")
            self._sent.put(message)

        try:
            await application(scope, self._given.get, send)
        except BaseException as problem:  # also a cancellation: nothing awaits this
            self.failure = problem.with_traceback(None)  # whose frames would keep what the connection held
        finally:
            self._sent.put(None)
            self._over.set()

    def give(self, *messages: dict[str, Any]) -> None:
        """What the server hands to the application."""
        for message in messages:
            self._server.loop.call_soon_threadsafe(self._given.put_nowait, message)

    def hang_up(self) -> None:
        """The client is gone, if it was still there."""
        if not self._over.is_set():
            self.give(self.gone)

    def leave(self) -> None:
        """The client goes away."""
        self.hang_up()
        assert self.is_over()

    def cut(self) -> None:
        """The server stops serving this connection, as daphne does when it ends."""
        self._running.cancel()

    def took(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """The next message of the application; Ended when there is none, queue.Empty when none came in time."""
        message = self._sent.get(timeout=timeout)
        if message is None:
            self._sent.put(None)
            raise Ended(repr(self.failure))
        return message

    def is_over(self, timeout: float = PATIENCE) -> bool:
        """Whether the application has returned, or does so in time."""
        return self._over.wait(timeout)

    def is_silent(self, seconds: float = SILENCE) -> bool:
        """Whether nothing comes for so long, although the connection is open."""
        try:
            self.hear(seconds)
        except queue.Empty:
            return True
        except Ended:
            pass
        return False

    def hear(self, timeout: float) -> Any:
        """The next of what a client of this kind reads."""
        return self.took(timeout)


class Stream(Conversation):
    """One POST whose answer may be a stream of events."""

    gone = {"type": "http.disconnect"}

    def __init__(
        self, server: LoopThread, application: Any, headers: Mapping[str, str], body: bytes, *, path: str = "/mcp"
    ) -> None:
        super().__init__(server, application, scope_of({"Content-Length": str(len(body)), **headers}, path=path))
        self.body = b""
        self._read = 0
        self.has_ended = False
        self._start: dict[str, Any] | None = None
        self.give({"type": "http.request", "body": body, "more_body": False})

    @property
    def start(self) -> dict[str, Any]:
        if self._start is None:
            self._start = self.took()
            assert self._start["type"] == "http.response.start"
        return self._start

    @property
    def status(self) -> int:
        status: int = self.start["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.start["headers"]}

    def whole(self) -> Any:
        """The message of an answer that is no stream."""
        assert self.headers["content-type"] == "application/json"
        while not self.has_ended:
            self._more(PATIENCE)
        return loads(self.body)

    def event(self, timeout: float = PATIENCE) -> Any:
        """The next message, or KEEP_ALIVE for a comment."""
        assert self.headers["content-type"] == "text/event-stream"
        while True:
            end = self.body.find(b"\n\n", self._read)
            if end >= 0:
                text, self._read = self.body[self._read : end].decode(), end + 2
                break
            if self.has_ended:
                raise Ended("the stream has ended")
            self._more(timeout)
        if text == f": {KEEP_ALIVE}":
            return KEEP_ALIVE
        kind, data = text.split("\n")
        assert kind == "event: message"
        assert data.startswith("data: ")
        assert len(data.splitlines()) == 1, "a message is one line for every reader"
        return loads(data.removeprefix("data: "))

    def hear(self, timeout: float) -> Any:
        """The next event."""
        return self.event(timeout)

    def _more(self, timeout: float) -> None:
        message = self.took(timeout)
        assert message["type"] == "http.response.body"
        self.body += message.get("body", b"")
        self.has_ended = not message.get("more_body", False)

    def next(self, timeout: float = PATIENCE) -> Any:
        """The next message."""
        while True:
            message = self.event(timeout)
            if message != KEEP_ALIVE:
                return message

    def until(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """All messages up to the first that is wanted."""
        found = [self.next()]
        while not wanted(found[-1]):
            found.append(self.next())
        return found

    def rest(self) -> list[Any]:
        """All that is still to come, to the end of the stream."""
        found = []
        while True:
            try:
                found.append(self.next())
            except Ended:
                return found


class Socket(Conversation):
    """One WebSocket, from the upgrade on."""

    gone = {"type": "websocket.disconnect", "code": 1001}

    def __init__(
        self,
        server: LoopThread,
        application: Any,
        headers: Mapping[str, str] | None = None,
        *,
        subprotocols: Sequence[str] = ("mcp",),
        path: str = "/mcp",
        scheme: str = "ws",
        unreachable: Collection[str] = (),
    ) -> None:
        scope = scope_of(headers or {}, path=path)
        del scope["method"]
        scope |= {"type": "websocket", "subprotocols": list(subprotocols), "scheme": scheme}
        super().__init__(server, application, scope, unreachable=unreachable)
        self.give({"type": "websocket.connect"})

    def accepted(self) -> dict[str, Any]:
        """The acceptance of the connection."""
        message = self.took()
        assert message["type"] == "websocket.accept", message
        return message

    def close_code(self) -> int:
        """The code by which the server closes, as its next message."""
        message = self.took()
        assert message["type"] == "websocket.close", message
        code: int = message.get("code", 1000)
        self.give({"type": "websocket.disconnect", "code": code})
        return code

    def send(self, message: Any) -> None:
        """A message; text and bytes go as they are."""
        if isinstance(message, bytes):
            self.give({"type": "websocket.receive", "bytes": message})
        else:
            text = message if isinstance(message, str) else dumps(message)
            self.give({"type": "websocket.receive", "text": text})

    def next(self, timeout: float = PATIENCE) -> Any:
        """The next message of the server."""
        message = self.took(timeout)
        assert message["type"] == "websocket.send", message
        assert message.get("bytes") is None
        return loads(message["text"])

    def ask(self, message: Any) -> Any:
        """Send a request and return the answer, which must be the next message."""
        self.send(message)
        answer = self.next()
        assert answer.get("id") == message["id"]
        return answer


def soon(condition: Callable[[], Any], seconds: float = PATIENCE) -> bool:
    """Whether a condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())
