"""Time travel for tasks in the database, whose clock nobody can set: a task is made older instead."""

from datetime import timedelta
from uuid import UUID

from django.db import models, router, transaction

from ..dbtime import moved
from ..models import Task, TaskInput


def rewind(ref: UUID, seconds: float) -> None:
    """Let so many seconds pass for one task: every instant of its row and of its questions moves into the past."""
    using = router.db_for_write(Task)
    with transaction.atomic(using=using):
        Task.objects.using(using).filter(pk=ref).update(**_moved_back(Task, seconds))
        TaskInput.objects.using(using).filter(task_id=ref).update(**_moved_back(TaskInput, seconds))


def _moved_back(model: type[models.Model], seconds: float) -> dict[str, models.expressions.Combinable]:
    instants = (field for field in model._meta.concrete_fields if isinstance(field, models.DateTimeField))
    return {field.name: moved(field.name, timedelta(seconds=-seconds)) for field in instants}
