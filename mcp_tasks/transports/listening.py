"""
A subscription as a transport sees it: messages one after the other, and no payload without a valid credential.

The credential is looked at before each message that says something, and from time to time in between. Streams of one
caller share the look, so a thousand of them cost one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from weakref import WeakValueDictionary

from ..access.credentials import Credential
from ..execution.threads import Busy
from ..notifications.subscription import Subscription
from ..protocol.subscriptions import Frame, ended
from ..rpc.requests import server_info
from . import stopping
from .lanes import LANES, lanes, on_thread

logger = logging.getLogger("mcp_tasks.access")

#: How long a stream is silent before a sign of life, and how old the last look at a credential may be.
KEEP_ALIVE_SECONDS, RECHECK_SECONDS = 25.0, 60.0
_RETRY_SECONDS = 1.0
#: Looks at once on one event loop. A changed list has everybody looked at, and requests need threads meanwhile.
LOOKS = LANES // 2


class Turns:
    """What the guards of one event loop share: so many look at once, and that none can is logged once."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(LOOKS)
        self._failing = False

    async def look(self, credential: Credential) -> bool | None:
        """Whether it is accepted; None while nobody can say."""
        try:
            async with self._free:
                accepted = await on_thread(lanes, credential.is_accepted)
        except Busy:
            return None
        except Exception:
            if not self._failing:
                logger.exception("credentials cannot be checked", extra={"event": "credential_unknown"})
            self._failing = True
            return None
        self._failing = False
        return accepted


class Guard:
    """The looks at one credential on one event loop."""

    def __init__(self, credential: Credential, turns: Turns) -> None:
        self._credential, self._turns = credential, turns
        self._waiting: list[asyncio.Future[bool]] = []
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = asyncio.get_running_loop().time()

    def ask(self) -> "asyncio.Future[bool]":
        """Whether the credential is accepted now, by a look that begins after this call; all who wait share it."""
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(asked)
        if self._looking is None:
            self._looking = loop.create_task(self._look())
        return asked

    @property
    def fresh_seconds(self) -> float:
        """How long the last look is still good enough for a silent stream."""
        return max(0.0, self._looked_at + RECHECK_SECONDS - asyncio.get_running_loop().time())

    @property
    def is_old(self) -> bool:
        """Whether the last look was long ago."""
        return asyncio.get_running_loop().time() >= self._looked_at + RECHECK_SECONDS

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            asked, self._waiting = self._waiting, []
            begun_at = loop.time()
            accepted = await self._turns.look(self._credential)
            if accepted is None:  # unknown is not refused: nothing is sent until somebody can say
                await asyncio.sleep(_RETRY_SECONDS)
                self._waiting = [future for future in asked if not future.done()] + self._waiting
                continue
            self._looked_at = begun_at
            for future in asked:
                if not future.done():
                    future.set_result(accepted)
        self._looking = None


_guards: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], Guard] = WeakValueDictionary()
_turns: WeakValueDictionary[asyncio.AbstractEventLoop, Turns] = WeakValueDictionary()


def guard_of(credential: Credential) -> Guard:
    """The guard that all streams with an equal credential share on this loop."""
    loop = asyncio.get_running_loop()
    guard = _guards.get((loop, credential.key))
    if guard is None:
        turns = _turns.get(loop)
        if turns is None:
            turns = _turns[loop] = Turns()
        guard = _guards[(loop, credential.key)] = Guard(credential, turns)
    return guard


class Revoked(Exception):
    """The credential is not accepted any more: the stream ends, and what was to be sent is not."""


async def listen(subscription: Subscription, credential: Credential) -> AsyncGenerator[list[Frame], None]:
    """
    The messages of a subscription, several at once where several wait; an empty list is a sign of life.

    Begins with the acknowledgement, ends when the server ends the subscription; raises Revoked. Closes the
    subscription in any case.
    """
    try:
        guard = guard_of(credential)
        subscription.start()
        if stopping.is_stopping():
            subscription.end()  # begun behind the back of the signal, which ended those that were open
        yield [subscription.acknowledgement]
        while True:
            frames = await subscription.frames(KEEP_ALIVE_SECONDS)
            if not frames and subscription.is_ended:
                return
            if frames or guard.is_old:
                asked = guard.ask()
                subscription.wait_for(asked)
                if not await asked:
                    if subscription.is_ended:
                        return  # before anybody could say
                    raise Revoked
            yield frames
    finally:
        subscription.close()


def last_message(subscription: Subscription) -> str:
    """The response to the listen request, after its last notification."""
    return ended(subscription.id, server_info())
