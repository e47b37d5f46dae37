"""Channel layers that lose messages on purpose."""

from typing import Any

from channels_redis.pubsub import RedisPubSubChannelLayer


class DroppingLayer(RedisPubSubChannelLayer):
    """Says that it sent, and does not, each ``drop_every``-th time."""

    def __init__(self, *arguments: Any, drop_every: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._drop_every, self._sent = drop_every, 0

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self._sent += 1
        if self._sent % self._drop_every:
            await super().group_send(group, message)
