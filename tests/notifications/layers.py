"""A channel layer that reaches other hubs of this process, and that fails, hangs or drops as a test wants."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

ALIAS = "crossing"


class Broker:
    """What the layers have in common: memberships, channels, and how they misbehave now."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.groups: dict[str, set[str]] = {}
        self.channels: dict[str, queue.SimpleQueue[Any]] = {}
        self.calls: list[tuple[str, Any]] = []
        self.failing: set[str] = set()
        self.hanging: set[str] = set()
        #: Operations that are done, and never say so.
        self.mute: set[str] = set()
        self.full: set[str] = set()
        self.dropping = False
        self.closed = 0

    def named(self, operation: str) -> list[Any]:
        """What this operation was called with, so far."""
        with self.lock:
            return [given for name, given in self.calls if name == operation]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [message for _, message in self.named("group_send")]

    def members(self, group: str) -> int:
        with self.lock:
            return len(self.groups.get(group, ()))

    def lose_memberships(self) -> None:
        """As a broker that was started anew."""
        with self.lock:
            self.groups.clear()


broker = Broker()


class FakeLayer(BaseChannelLayer):
    """A layer over the broker. No instance serves two loops."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        if "init" in broker.failing:
            raise ValueError("this layer cannot be made")
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _begin(self, operation: str, given: Any) -> None:
        here = asyncio.get_running_loop()
        self._loop = self._loop or here
        assert self._loop is here, "a layer serves one loop"
        with broker.lock:
            broker.calls.append((operation, given))
        while operation in broker.hanging:
            await asyncio.sleep(0.01)
        if operation in broker.failing:
            raise ConnectionError("the broker is away")

    async def _end(self, operation: str) -> None:
        while operation in broker.mute:
            await asyncio.sleep(0.01)

    async def new_channel(self, prefix: str = "specific") -> str:
        await self._begin("new_channel", prefix)
        with broker.lock:
            name = f"{prefix}.test!{len(broker.channels)}"
            broker.channels[name] = queue.SimpleQueue()
        return name

    async def group_add(self, group: str, channel: str) -> None:
        self.require_valid_group_name(group)
        await self._begin("group_add", group)
        with broker.lock:
            broker.groups.setdefault(group, set()).add(channel)
        await self._end("group_add")

    async def group_discard(self, group: str, channel: str) -> None:
        await self._begin("group_discard", group)
        with broker.lock:
            broker.groups.get(group, set()).discard(channel)
        await self._end("group_discard")

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        await self._begin("group_send", (group, dict(message)))
        if group in broker.full:
            raise ChannelFull
        with broker.lock:
            members = [] if broker.dropping else [broker.channels[name] for name in broker.groups.get(group, ())]
        for member in members:
            member.put(dict(message))

    async def receive(self, channel: str) -> dict[str, Any]:
        while True:
            if "receive" in broker.failing:
                raise ConnectionError("the broker is away")
            try:
                message: dict[str, Any] = broker.channels[channel].get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.005)
            else:
                return message

    async def close_pools(self) -> None:
        broker.closed += 1


@pytest.fixture
def crossing(settings: Any) -> Iterator[Broker]:
    """The fake layer is the configured one, and its broker is new."""
    for thread in threading.enumerate():
        if thread.name == "mcp-tasks-link":
            thread.join(5)  # of a test before, which would still close its layer
    broker.__init__()  # type: ignore[misc]
    settings.CHANNEL_LAYERS = {ALIAS: {"BACKEND": f"{__name__}.FakeLayer"}}
    settings.MCP_TASKS = {**settings.MCP_TASKS, "CHANNEL_LAYER": ALIAS}
    yield broker
    broker.failing.clear()
    broker.hanging.clear()
    broker.mute.clear()
