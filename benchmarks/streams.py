"""What the programs share: many streams in one process that cost it little, and requests whose time is the server's."""

import asyncio
import json
import resource
import sys
import time
from typing import Any, Self
from urllib.parse import urlsplit

from mcp_tasks.testing.client import McpClient
from tests.support.push_clients import listen_request

AT_ONCE = 100


class Stream(asyncio.Protocol):
    """One stream: counts events that contain a mark, and when the newest came. Parses nothing."""

    def __init__(self, request: bytes, mark: bytes) -> None:
        self.mark = mark
        self.count = 0
        self.at = 0.0
        self.opened = asyncio.get_running_loop().create_future()
        self._request = request
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self._rest += data
            if not self._rest.startswith(b"HTTP/1.1 200"[: len(self._rest)]):
                self.opened.set_exception(RuntimeError(self._rest[:500].decode()))
            elif self.mark in self._rest:
                self.opened.set_result(None)
                self._rest = b""
            return
        found = data.count(self.mark)
        if found:
            self.count += found
            self.at = time.perf_counter()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(RuntimeError(f"cut: {exc}"))


def request(url: str, headers: dict[str, str], body: bytes) -> bytes:
    """A POST as bytes."""
    parts = urlsplit(url)
    all_headers = {**headers, "Host": parts.netloc, "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"POST {parts.path} HTTP/1.1\r\n{head}\r\n".encode() + body


def of(url: str, client: McpClient, message: dict[str, Any]) -> bytes:
    """One message of a client, as bytes."""
    return request(url, client.headers(message), json.dumps(message).encode())


def listening(url: str, client: McpClient, tasks: list[str]) -> bytes:
    """A ``subscriptions/listen``, as bytes."""
    return of(url, client, listen_request(client, tasks))


async def open_streams(url: str, asking: list[bytes], mark: bytes) -> list[Stream]:
    """Open them, a hundred at once, each until its first marked event."""
    loop, parts = asyncio.get_running_loop(), urlsplit(url)
    made: list[Stream] = []
    for start in range(0, len(asking), AT_ONCE):
        some = [
            loop.create_connection(lambda ask=ask: Stream(ask, mark), parts.hostname, parts.port)
            for ask in asking[start : start + AT_ONCE]
        ]
        streams = [stream for _, stream in await asyncio.gather(*some)]
        async with asyncio.timeout(60):
            await asyncio.gather(*(stream.opened for stream in streams))
        made += streams
    return made


class Line:
    """A connection that is kept for request after request."""

    @classmethod
    async def open(cls, url: str) -> Self:
        self = cls()
        parts = urlsplit(url)
        self._reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port)
        return self

    async def post(self, asking: bytes) -> bytes:
        """Send a request; returns the body of its answer."""
        self._writer.write(asking)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await self._reader.readexactly(int(length.split(b":")[1]))


def many_files(wanted: int) -> None:
    """Raise the limit of open files as far as it goes; servers that are started inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    if min(max(soft, wanted), hard) < wanted:
        raise SystemExit(f"{wanted} open files are needed, and {hard} are allowed: raise it with ulimit -Hn")


def say(line: str) -> None:
    """Print at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
