"""Fields and bodies that take exactly what is documented: no unknown member, no time without its zone."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rest_framework import serializers

from ...operators.instants import instant_of
from ...protocol.tasks import timestamp

MAX_REVISION = 2**63 - 1


class Instant(serializers.DateTimeField):
    """A time: UTC with milliseconds and ``Z``, whatever the project's settings say."""

    def to_internal_value(self, value: Any) -> datetime:
        at = instant_of(value)
        if at is None:
            raise serializers.ValidationError("This must be a time with its zone, like 2026-01-31T12:00:00Z.")
        return at

    def to_representation(self, value: Any) -> str:
        return timestamp(value)


class Strict(serializers.Serializer[Any]):
    """A body in which an unknown member is an error."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = [str(name) for name in data if name not in self.fields]
            if unknown:
                raise serializers.ValidationError(dict.fromkeys(unknown, "There is no such member."))
        return super().to_internal_value(data)


class Shape(serializers.Serializer[Any]):
    """An answer: read only, so every member is always there."""

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        for field in fields.values():
            field.read_only = True
        return fields
