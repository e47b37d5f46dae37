"""The Runner interface, and the runner that the settings name."""

from abc import ABC, abstractmethod
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

    @abstractmethod
    def enqueue(self, ref: UUID) -> None:
        """The doorbell: a task is queued. Called after the commit; must return at once."""

    def ensure_started(self) -> None:  # noqa: B027 - a runner without threads here has nothing to do
        """Called by what serves, in the process that serves: start what this runner needs here, once per process."""

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


def ring(ref: UUID) -> None:
    """Tell the runner that a task is queued; registered as an effect of the store."""
    get_runner().enqueue(ref)
