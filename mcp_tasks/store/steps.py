"""Steps: what a leg did once for its task, written under the leg's fence."""

from uuid import UUID

from django.db.models import F

from ..dbtime import DbNow
from ..models import TaskStep
from ..protocol.codec import Json, digest, size_bytes
from ..querysets import TaskQuerySet
from ..tools.steps import RecordedStep
from . import rules
from .locking import rows, single, transact
from .reading import Reading
from .types import Outcome


class _Recorded(Exception):
    """The step is there already: nothing of this transaction is to stay."""

    def __init__(self, args_hash: str) -> None:
        super().__init__("the step was recorded before")
        self.args_hash = args_hash


class Steps(Reading):
    """The operations of the database store on steps."""

    def recorded_steps(self, ref: UUID) -> dict[str, RecordedStep]:
        def look(using: str) -> dict[str, RecordedStep]:
            present: TaskQuerySet = rows(using).filter(pk=ref).present()
            found = TaskStep.objects.using(using).filter(task__in=present).order_by("id")
            return {
                name: RecordedStep(args_hash, result_json)
                for name, args_hash, result_json in found.values_list("name", "args_hash", "result_json")
            }

        return single(look)

    def record_step(self, ref: UUID, leg: int, name: str, args_hash: str, result: Json) -> Outcome:
        text, name_hash = rules.step_text(name, result), digest(name)

        def operation(using: str) -> Outcome:
            size = F("payload_bytes") + size_bytes(text)
            if not rows(using).mine(ref, leg).update(payload_bytes=size):
                return self.refusal(using, ref, leg)
            steps = TaskStep.objects.using(using)
            for known in steps.filter(task_id=ref, name_hash=name_hash).values_list("args_hash", flat=True):
                raise _Recorded(known)
            steps.create(
                task_id=ref,
                name=name,
                name_hash=name_hash,
                args_hash=args_hash,
                leg=leg,
                at=DbNow(),
                result_json=text,
            )
            return Outcome(True)

        try:
            return transact(operation)
        except _Recorded as recorded:
            return rules.same_step(name, recorded.args_hash, args_hash)
