"""The Runner interface, and the runner that the settings name."""

import atexit
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured

from .. import conf


class Runner(ABC):
    """
    Something that makes legs run. It holds no task: whatever it forgets, the table still has.

    Its constructor takes the ``OPTIONS`` of the setting as keyword arguments and raises TypeError or ValueError
    for wrong ones, without starting anything.
    """

    #: What runs the tasks, as operators call it; empty where it is processes of ours.
    engine = ""

    @abstractmethod
    def enqueue(self, ref: UUID) -> None:
        """The doorbell: a task is queued. Called after the commit; must return at once."""

    def ensure_started(self) -> None:  # noqa: B027 - a runner without threads here has nothing to do
        """Called by what serves, in the process that serves: start what this runner needs here, once per process."""

    def answer(self, rang: Callable[[], None]) -> None:  # noqa: B027 - its workers look at the table by themselves
        """Called by a worker process of ours: ``rang`` is to be called, on any thread, when a task may be queued."""

    def flush(self) -> None:  # noqa: B027 - a runner that only rings in this process has nothing on its way
        """Called at the end of a process: wait a moment until what was rung is out."""

    def drain(self, seconds: float) -> None:  # noqa: B027 - nor anything to wait for
        """Stop claiming, tell the running legs to stop, wait for them so long, and release what may be re-run."""


@lru_cache(maxsize=1)
def get_runner() -> Runner:
    """The runner of ``MCP_TASKS["RUNNER"]``, made once per process; raises ImproperlyConfigured naming it."""
    named = conf.get_settings().RUNNER
    backend = conf.load(named.BACKEND)
    if not (isinstance(backend, type) and issubclass(backend, Runner)):
        raise ImproperlyConfigured(f"The runner {named.BACKEND} is no Runner class.")
    try:
        return backend(**named.OPTIONS)
    except (TypeError, ValueError) as problem:
        raise ImproperlyConfigured(f"The runner {named.BACKEND} refuses its OPTIONS: {problem}.") from problem


conf.on_reset(get_runner.cache_clear)


def import_backend() -> None:
    """Import the runner of the settings: workers of an engine find its job by its name, once it is defined."""
    try:
        conf.load(conf.get_settings().RUNNER.BACKEND)
    except ImproperlyConfigured:
        pass  # which check says, and what serves


@atexit.register
def flush() -> None:
    """Let the runner of this process, if it was used, send what is still on its way."""
    if get_runner.cache_info().currsize:
        get_runner().flush()


def ring(ref: UUID) -> None:
    """Tell the runner that a task is queued; registered as an effect of the store."""
    get_runner().enqueue(ref)
