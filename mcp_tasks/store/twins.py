"""The ``a…`` twins of a store's synchronous methods."""

from collections.abc import Callable, Coroutine
from functools import partial
from inspect import getattr_static
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from . import waiting

P = ParamSpec("P")
R = TypeVar("R")


class twin(Generic[P, R]):  # noqa: N801 - reads like a decorator where it is used
    """The async twin of a method: looks the method up by name, so an override is never passed by."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._name = method.__name__
        self.__doc__ = f"``{method.__name__}`` on a thread."

    def __get__(self, instance: Any, owner: Any = None) -> Callable[P, Coroutine[Any, Any, R]]:
        if instance is None:
            return self  # type: ignore[return-value]  # looked up on the class, as help() does
        return sync_to_async(getattr(instance, self._name))


class waiting_twin(twin[P, R]):  # noqa: N801 - as above
    """
    The async twin of ``wait_for_completion``: a coroutine of its own, unless a store waits in its own way.

    Then that runs on a thread, which sleeps with it.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        super().__init__(method)
        self._own = method

    def __get__(self, instance: Any, owner: Any = None) -> Callable[P, Coroutine[Any, Any, R]]:
        if instance is None:
            return self  # type: ignore[return-value]
        method = getattr_static(type(instance), self._name)
        if getattr(method, "is_forwarded", False):
            return getattr(instance.inner, f"a{self._name}")  # type: ignore[no-any-return]
        if method is self._own:
            return partial(waiting.await_, instance)  # type: ignore[return-value]
        return sync_to_async(getattr(instance, self._name), thread_sensitive=False)
