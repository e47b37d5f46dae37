"""What requests may say; how their answers look is in ``serializers``."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from ...operators.acting import REASON_LONGEST
from ...operators.bulk import MOST_AT_ONCE
from ...operators.states import FILTERS
from .fields import MAX_REVISION, Instant, Strict
from .filters import condition


class Empty(Strict):
    """Nothing is asked for."""


class AnswersGiven(Strict):
    """Answers by key, as in ``tasks/update``."""

    inputResponses = serializers.DictField(child=serializers.DictField())  # noqa: N815 - the protocol's name


class Order(Strict):
    """A verb on one task. With ``revision`` a task that has changed since is left alone."""

    reason = serializers.CharField(max_length=REASON_LONGEST)
    revision = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=MAX_REVISION)


class SettlingOrder(Order):
    """``share_reason``: whether the client reads the reason as the status message."""

    share_reason = serializers.BooleanField(required=False, allow_null=True)


class ExtendingOrder(Order):
    """``expires_at``: until when the task is kept; only ever longer."""

    expires_at = Instant()


class DeletionOrder(Order):
    """Read from the query: a DELETE has no body that every server passes on."""


class LookUp(Strict):
    """The id that a client has; it is hashed and never stored or logged."""

    task_id = serializers.CharField(max_length=200, write_only=True)


class BulkFilter(Strict):
    """At least one of these; the same as in the list, read by the same rules."""

    state = serializers.ChoiceField(choices=list(FILTERS), required=False)
    tool = serializers.ListField(child=serializers.CharField(max_length=200), required=False, min_length=1)
    owner = serializers.CharField(required=False)
    worker = serializers.CharField(required=False, max_length=100)
    created_after = Instant(required=False)
    created_before = Instant(required=False)
    expires_before = Instant(required=False)

    def to_internal_value(self, data: Any) -> Any:
        """The condition itself."""
        if not isinstance(data, Mapping) or not data:
            raise serializers.ValidationError("Name at least one filter.")
        return condition({str(name): value if isinstance(value, list) else [value] for name, value in data.items()})


class BulkOrder(Strict):
    """Cancel what matches and was created until ``as_of``, oldest first."""

    filter = BulkFilter()
    as_of = Instant(required=False, allow_null=True)
    reason = serializers.CharField(max_length=REASON_LONGEST)
    share_reason = serializers.BooleanField(required=False, allow_null=True)
    limit = serializers.IntegerField(required=False, min_value=1, max_value=MOST_AT_ONCE, default=MOST_AT_ONCE)
    dry_run = serializers.BooleanField(required=False, default=False)
