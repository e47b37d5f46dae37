"""Whether a project mounts the addresses of operators, for its system check."""

from collections.abc import Iterable, Iterator
from typing import Any

from django.urls import URLResolver, get_resolver
from rest_framework.settings import api_settings

from .operator import OperatorView


def authentication_problem() -> str | None:
    """Why nobody can use the addresses of operators that are mounted, as a sentence; None when somebody can (W007)."""
    if api_settings.DEFAULT_AUTHENTICATION_CLASSES or not _has_operator_views():
        return None
    return "Operator endpoints can never be used: no authentication class."


def _has_operator_views() -> bool:
    classes = (getattr(callback, "view_class", None) for callback in _callbacks(get_resolver().url_patterns))
    return any(isinstance(found, type) and issubclass(found, OperatorView) for found in classes)


def _callbacks(patterns: Iterable[Any]) -> Iterator[Any]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _callbacks(pattern.url_patterns)
        else:
            yield pattern.callback
