"""Listeners over real sockets: SSE by hand, so that a test can be as rude as clients are, and WebSocket."""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from mcp_tasks.protocol.tasks import TERMINAL
from mcp_tasks.testing.client import McpClient

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


@dataclass(slots=True)
class Listener:
    """What one subscription was sent, each message with the time of its arrival."""

    messages: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    ended: bool = False
    #: The connection was cut rather than ended.
    cut: bool = False
    #: Why it was not even a stream.
    problem: Exception | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def took(self, message: dict[str, Any]) -> None:
        self.messages.append((time.time(), message))
        self._news.set()

    def over(self, *, cut: bool) -> None:
        self.ended, self.cut = True, cut
        self._news.set()

    @property
    def tasks(self) -> list[tuple[float, dict[str, Any]]]:
        """The states of tasks."""
        return [(at, m["params"]) for at, m in self.messages if m.get("method") == "notifications/tasks"]

    def of(self, task_id: str) -> list[dict[str, Any]]:
        """The states of one task."""
        return [params for _, params in self.tasks if params["taskId"] == task_id]

    @property
    def result(self) -> dict[str, Any] | None:
        """The response to the listen request."""
        return next((m["result"] for _, m in self.messages if "result" in m), None)

    def terminal_at(self, task_id: str) -> float | None:
        """When the end of a task was known here."""
        return next((at for at, p in self.tasks if p["taskId"] == task_id and p["status"] in TERMINAL), None)

    async def until(self, true: Callable[[], Any], seconds: float, what: str = "it did not come") -> None:
        """Wait until something is so of what was sent."""
        deadline = time.monotonic() + seconds
        while not true():
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                if true():
                    return
                last = self.messages[-1][1] if self.messages else None
                why = f"{what} within {seconds} s; the last of {len(self.messages)}: {str(last)[:2000]}"
                raise AssertionError(f"{why}; {self.problem}" if self.problem else why) from None

    async def until_terminal(self, task_id: str, seconds: float) -> dict[str, Any]:
        """Wait for the end of a task; returns that state."""
        await self.until(lambda: self.terminal_at(task_id), seconds, "no end was told")
        return self.of(task_id)[-1]

    async def until_listening(self, tasks: int = 1, seconds: float = 20.0) -> Self:
        """Wait for the acknowledgement and the first state of so many tasks."""
        await self.until(lambda: len({p["taskId"] for _, p in self.tasks}) >= tasks, seconds, "it does not listen")
        return self


def why_wrong(listener: Listener, task_id: str) -> str | None:
    """What is wrong with the order of one task's states; None when nothing is. Called once its end was told."""
    states = listener.of(task_id)
    times = [state["lastUpdatedAt"] for state in states]
    ends = [state for state in states if state["status"] in TERMINAL]
    if times != sorted(times):
        return f"out of order: {times}"
    if len(ends) != 1 or states[-1] is not ends[0]:
        return f"{len(ends)} ends among {[state['status'] for state in states]}"
    first = listener.messages[0][1]
    if first.get("method") != ACKNOWLEDGED or first["params"]["notifications"].get("taskIds", []).count(task_id) != 1:
        return f"began with {first}"
    return None


def listen_request(client: McpClient, tasks: Iterable[str], request_id: Any = "L-1") -> dict[str, Any]:
    """The message: for these tasks, and for the list of tools."""
    notifications = {"taskIds": list(tasks), "toolsListChanged": True}
    return {**client.envelope("subscriptions/listen", {"notifications": notifications}), "id": request_id}


class Sse(Listener):
    """A listen stream over HTTP."""

    __slots__ = ("_reader", "_reading", "_writer")

    @classmethod
    async def open(
        cls, url: str, client: McpClient, tasks: Iterable[str], *, receive_buffer: int | None = None, reads: bool = True
    ) -> Self:
        """Send the request, and read from then on unless told otherwise."""
        parts = urlsplit(url)
        message = listen_request(client, tasks)
        body = json.dumps(message).encode()
        headers = {**client.headers(message), "Host": parts.netloc, "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection = socket.socket()
        connection.setblocking(False)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(connection, (parts.hostname, parts.port))
        self = cls()
        self._reader, self._writer = await asyncio.open_connection(sock=connection)
        if not reads:
            self._writer.transport.pause_reading()  # type: ignore[attr-defined]
        self._writer.write(f"POST {parts.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        self._reading = asyncio.ensure_future(self._read()) if reads else None
        return self

    def read_at_last(self) -> None:
        """Begin to read."""
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            status = await self._reader.readline()
            chunked = False
            while (line := (await self._reader.readline()).strip().lower()) != b"":
                chunked = chunked or line == b"transfer-encoding: chunked"
            assert b" 200 " in status, status + await self._reader.read(1000)
            assert chunked
            await self._read_events()
            self.over(cut=False)
        except (OSError, asyncio.IncompleteReadError):
            self.over(cut=True)
        except Exception as problem:
            self.problem = problem
            self.over(cut=True)
        finally:
            self._writer.close()

    async def _read_events(self) -> None:
        text = b""
        while True:
            size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            chunk = (await self._reader.readexactly(size + 2))[:-2]
            if not size:
                assert not text, text
                return
            *events, text = (text + chunk).split(b"\n\n")
            for event in events:
                for line in event.split(b"\n"):
                    if line.startswith(b"data: "):
                        self.took(json.loads(line[6:]))

    def vanish(self) -> None:
        """Go without goodbye: a reset instead of an end."""
        if self._reading is not None:
            self._reading.cancel()
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self) -> None:
        """Go as one should."""
        if self._reading is not None:
            self._reading.cancel()
        self._writer.close()


class Socket(Listener):
    """A WebSocket with one subscription on it."""

    __slots__ = ("_connection", "_reading")

    @classmethod
    async def open(cls, url: str, client: McpClient, tasks: Iterable[str]) -> Self:
        """Connect, send the request, and read from then on."""
        self = cls()
        self._connection = await socket_to(url, client)
        await self._connection.send(json.dumps(listen_request(client, tasks)))
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def _read(self) -> None:
        try:
            async for text in self._connection:
                self.took(json.loads(text))
            self.over(cut=False)
        except ConnectionClosed:
            self.over(cut=True)

    def vanish(self) -> None:
        """Go without goodbye."""
        self._reading.cancel()
        connection = self._connection.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.transport.abort()

    async def close(self) -> None:
        """Go as one should."""
        self._reading.cancel()
        await self._connection.close()


async def socket_to(url: str, client: McpClient) -> ClientConnection:
    """An open WebSocket."""
    return await connect(
        url.replace("http://", "ws://"),
        subprotocols=["mcp"],  # type: ignore[list-item]
        additional_headers={"Authorization": f"Bearer {client.token}"},
        ping_interval=None,
        max_size=None,
    )
