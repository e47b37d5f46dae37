"""
A store around another store, made to be subclassed: it passes everything on, a subclass overrides a part.

Every method is forwarded by name and with its own signature, the ones that ``TaskStore`` implements as well:
the inner store may do them better. A method that was merely inherited would be a capability silently lost.
"""

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from .base import TaskStore

P = ParamSpec("P")
R = TypeVar("R")


class forwarded(Generic[P, R]):  # noqa: N801 - reads like a decorator where it is used
    """The method of the same name of the inner store; ``super()`` reaches it from an override."""

    is_forwarded = True

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._name = method.__name__
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: Any = None) -> "forwarded[P, R]": ...

    @overload
    def __get__(self, instance: "ForwardingTaskStore", owner: Any = None) -> Callable[P, R]: ...

    def __get__(self, instance: "ForwardingTaskStore | None", owner: Any = None) -> "forwarded[P, R] | Callable[P, R]":
        if instance is None:
            return self
        return cast("Callable[P, R]", getattr(instance.inner, self._name))


class ForwardingTaskStore(TaskStore):
    """
    Passes every call on to ``inner``.

    The ``a…`` twins look methods up by name, so they go through a subclass's overrides. Methods of the inner
    store that call each other do not: a subclass that changes what is read overrides each reading method.
    """

    def __init__(self, inner: TaskStore) -> None:
        self.inner = inner

    create_task = forwarded(TaskStore.create_task)
    discard_task = forwarded(TaskStore.discard_task)
    hand_over = forwarded(TaskStore.hand_over)

    resolve = forwarded(TaskStore.resolve)
    task_presence = forwarded(TaskStore.task_presence)
    task_owner = forwarded(TaskStore.task_owner)
    get_task = forwarded(TaskStore.get_task)
    get_task_result = forwarded(TaskStore.get_task_result)
    owned_refs = forwarded(TaskStore.owned_refs)
    snapshots = forwarded(TaskStore.snapshots)
    revisions = forwarded(TaskStore.revisions)
    list_tasks = forwarded(TaskStore.list_tasks)
    before_sleep = forwarded(TaskStore.before_sleep)
    wait_for_completion = forwarded(TaskStore.wait_for_completion)

    require_input = forwarded(TaskStore.require_input)
    outstanding_input_requests = forwarded(TaskStore.outstanding_input_requests)
    apply_input_responses = forwarded(TaskStore.apply_input_responses)
    input_responses = forwarded(TaskStore.input_responses)
    resume_context = forwarded(TaskStore.resume_context)
    recorded_steps = forwarded(TaskStore.recorded_steps)
    record_step = forwarded(TaskStore.record_step)

    set_status = forwarded(TaskStore.set_status)
    set_task_meta = forwarded(TaskStore.set_task_meta)
    set_ttl = forwarded(TaskStore.set_ttl)
    complete_task = forwarded(TaskStore.complete_task)
    fail_task = forwarded(TaskStore.fail_task)
    cancel_task = forwarded(TaskStore.cancel_task)

    claim = forwarded(TaskStore.claim)
    heartbeat = forwarded(TaskStore.heartbeat)
    end_leg = forwarded(TaskStore.end_leg)
    release = forwarded(TaskStore.release)
    retry = forwarded(TaskStore.retry)
    let_go = forwarded(TaskStore.let_go)

    cancel = forwarded(TaskStore.cancel)
    fail = forwarded(TaskStore.fail)
    extend = forwarded(TaskStore.extend)
    requeue = forwarded(TaskStore.requeue)
    dismiss_inputs = forwarded(TaskStore.dismiss_inputs)
    delete_terminal = forwarded(TaskStore.delete_terminal)

    note_refusal = forwarded(TaskStore.note_refusal)

    recover = forwarded(TaskStore.recover)
    redeliver = forwarded(TaskStore.redeliver)
    answer_overdue = forwarded(TaskStore.answer_overdue)
    expire = forwarded(TaskStore.expire)
    purge = forwarded(TaskStore.purge)
    roll_up = forwarded(TaskStore.roll_up)
    tidy = forwarded(TaskStore.tidy)
    stamp = forwarded(TaskStore.stamp)
    note_process = forwarded(TaskStore.note_process)
    is_outdated = forwarded(TaskStore.is_outdated)
    forget_process = forwarded(TaskStore.forget_process)
    outlook = forwarded(TaskStore.outlook)
    cleanup_expired = forwarded(TaskStore.cleanup_expired)
