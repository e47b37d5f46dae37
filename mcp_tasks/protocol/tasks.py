"""Task, DetailedTask and CreateTaskResult as JSON text, and the params of ``tasks/*`` (Tasks extension)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from .codec import Json, dumps, merge_objects
from .errors import invalid_params
from .subscriptions import Frame, frame

WORKING, INPUT_REQUIRED = "working", "input_required"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
TERMINAL = (COMPLETED, FAILED, CANCELLED)

_TASK_ID = re.compile(r"[A-Za-z0-9_-]{43}")


def is_task_id(task_id: str) -> bool:
    """Whether a text has the shape of our ids; anything else need not be looked up."""
    return _TASK_ID.fullmatch(task_id) is not None


def timestamp(at: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and ``Z``."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


@dataclass(frozen=True, slots=True)
class WireTask:
    """What a client may see of a task; the payload members are JSON text, spliced in as they were stored."""

    status: str
    status_message: str | None
    created_at: datetime
    updated_at: datetime
    ttl_ms: int | None
    poll_interval_ms: int
    input_requests: str | None = None
    result: str | None = None
    error: str | None = None
    meta: str | None = None

    def create_result(self, task_id: str, meta: str) -> str:
        """CreateTaskResult: flat, ``resultType: "task"``, and never a payload."""
        return f'{{"resultType":"task",{self._members(task_id)},"_meta":{merge_objects(self.meta, meta)}}}'

    def detailed(self, task_id: str, meta: str) -> str:
        """The result of ``tasks/get``: exactly one payload member, or none, as the status says."""
        members = self._members(task_id) + self._payload()
        return f'{{"resultType":"complete",{members},"_meta":{merge_objects(self.meta, meta)}}}'

    def notification(self, task_id: str) -> Frame:
        """``notifications/tasks``: what ``tasks/get`` would say at this moment, which is no result of a request."""
        return frame("notifications/tasks", self._members(task_id) + self._payload(), self.meta or "{}")

    def _payload(self) -> str:
        if self.status == INPUT_REQUIRED:
            return f',"inputRequests":{self.input_requests}'
        if self.status == COMPLETED:
            return f',"result":{self.result}'
        if self.status == FAILED:
            return f',"error":{self.error}'
        return ""

    def _members(self, task_id: str) -> str:
        message = "" if self.status_message is None else f',"statusMessage":{dumps(self.status_message)}'
        ttl_ms = "null" if self.ttl_ms is None else self.ttl_ms
        return (
            f'"taskId":{dumps(task_id)},"status":"{self.status}"{message}'
            f',"createdAt":"{timestamp(self.created_at)}","lastUpdatedAt":"{timestamp(self.updated_at)}"'
            f',"ttlMs":{ttl_ms},"pollIntervalMs":{self.poll_interval_ms}'
        )


def task_id_of(params: dict[str, Json]) -> str:
    """``params.taskId``; raises -32602 when it is no string."""
    task_id = params.get("taskId")
    if not isinstance(task_id, str):
        raise invalid_params("taskId must be a string")
    return task_id


def responses_of(params: dict[str, Json]) -> dict[str, Json]:
    """``params.inputResponses`` of ``tasks/update``; its values are judged by the questions, later."""
    responses = params.get("inputResponses")
    if not isinstance(responses, dict):
        raise invalid_params("inputResponses must be an object")
    return responses
