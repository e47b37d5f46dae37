"""
The Channels consumer: the upgrade, the frames, one JSON-RPC message in each text frame, and the end of the socket.

What is said between is the conversation's. A closed socket ends what runs on it; tasks live on.
"""

import asyncio
import logging
from functools import partial
from typing import Any

from ...access.authentication import Refusal, authenticate
from ...access.credentials import Credential
from ...execution.threads import Busy
from ...notifications.places import Place, places
from ...protocol.codec import JsonError, loads
from ...protocol.errors import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, McpError
from ...rpc.caller import Caller
from ...runners.base import get_runner
from ...store.types import owner_key
from .. import stopping
from ..http.checks import body_limit
from ..lanes import lanes, on_thread
from ..stopping import hear_signals
from .authentication import read
from .conversation import TOO_BUSY, UNAUTHORIZED, UNAVAILABLE, Conversation
from .socket import Socket

logger = logging.getLogger("mcp_tasks.rpc")

#: Further close codes, of sockets that were never open.
FORBIDDEN, TOO_MANY, INTERNAL = 4403, 4429, 4500
#: Messages up to this length are parsed on the loop; longer ones would hold up everybody else.
SHORT = 16 * 1024


class McpConsumer(Socket):
    """One WebSocket of a client."""

    _conversation: Conversation | None = None
    _place: Place | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket. A server that stops may cancel this before what is under way was said."""
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if stopping.is_stopping():
                if self._conversation is not None:
                    await self._conversation.say_goodbye(stopping.GOODBYE_SECONDS)
                await asyncio.sleep(stopping.FLUSH_SECONDS)
            raise
        finally:
            self._leave()  # also where the server says nothing of the end

    async def connect(self) -> None:
        """Host, origin and credential, before anything is said; a refused credential is told by the close code."""
        handshake = await self.handshake()
        if handshake is None:
            return
        try:
            caller = await on_thread(lanes, partial(_authenticate, handshake.request))
            self._place = places.take(owner_key(caller.owner))
        except Refusal as refusal:
            await self.refuse(UNAUTHORIZED if refusal.status == 401 else FORBIDDEN, handshake.subprotocol)
            return
        except Busy:
            await self.refuse(UNAVAILABLE, handshake.subprotocol)
            return
        except McpError:
            await self.refuse(TOO_MANY, handshake.subprotocol)
            return
        except Exception:
            logger.exception("a socket could not be opened", extra={"event": "internal_error"})
            await self.refuse(INTERNAL, handshake.subprotocol)
            return
        hear_signals()
        credential = Credential(handshake.request, caller)
        self._conversation = Conversation(self, credential, lambda: read(self.scope).request)
        await self.accept(subprotocol=handshake.subprotocol)

    async def disconnect(self, code: int) -> None:
        """The socket is closed, by whomever."""
        self._leave()

    def _leave(self) -> None:
        if self._conversation is not None:
            self._conversation.leave()
        if self._place is not None:
            self._place.release()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A frame. They are read one after the other."""
        conversation = self._conversation
        if conversation is None or not conversation.is_open:
            return
        limit = body_limit()
        if text_data is None:
            await conversation.refuse(None, INVALID_REQUEST, "Send text frames, one message in each")
            return
        if limit is not None and len(text_data) > limit // 4 and len(text_data.encode()) > limit:
            await conversation.refuse(None, INVALID_REQUEST, f"The message is larger than {limit} bytes")
            return
        try:
            body = loads(text_data) if len(text_data) <= SHORT else await on_thread(lanes, partial(loads, text_data))
        except JsonError as problem:
            await conversation.refuse(None, PARSE_ERROR, f"Parse error: {problem}")
        except Busy:
            await conversation.refuse(None, INTERNAL_ERROR, TOO_BUSY)
        else:
            await conversation.begin(body)


def _authenticate(request: Any) -> Caller:
    get_runner().ensure_started()
    return authenticate(request)
