"""What every socket of ours begins with: the upgrade is read, and refused, before anything is said."""

from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from .authentication import Handshake, read


class Socket(AsyncWebsocketConsumer):
    """A consumer without a channel in a layer: the hub of the process tells it of changes."""

    channel_layer_alias = None  # type: ignore[assignment]  # Channels then uses none

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Channels' own looks after database connections of this thread first, of which we use none."""
        await getattr(self, message["type"].replace(".", "_"))(message)

    async def handshake(self) -> Handshake | None:
        """The upgrade; None where it was refused, by its text or its origin: the server has answered 403."""
        try:
            upgrade = read(self.scope)
        except UnicodeDecodeError:
            await self.close()
            return None
        if upgrade.problem is not None:
            await self.close()
            return None
        return upgrade

    async def refuse(self, code: int, subprotocol: str | None = None) -> None:
        """Close with this code; accepted first, for a browser is not told why a connection was never made."""
        await self.accept(subprotocol=subprotocol)
        await self.close(code=code)
