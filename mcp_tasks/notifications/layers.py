"""Which channel layer is used: the one of the settings, where it reaches other processes."""

from typing import Any

from channels.layers import InMemoryChannelLayer, channel_layers
from django.utils.module_loading import import_string

from .. import conf


def layer_problem() -> str | None:
    """What is wrong with ``MCP_TASKS["CHANNEL_LAYER"]``, as a sentence; None when it can be used, or there is none."""
    alias = conf.get_settings().CHANNEL_LAYER
    if alias is None or alias in channel_layers:
        try:
            _backend(alias)
        except (ImportError, AttributeError, KeyError, TypeError) as problem:
            return f"The channel layer {alias!r} cannot be used: {problem}. For Redis install django-mcp-tasks[redis]."
        return None
    if alias == "default":
        return None  # a project without channel layers has not asked for one
    return f"MCP_TASKS['CHANNEL_LAYER'] names {alias!r}, which is not in CHANNEL_LAYERS."


def crossing_layer() -> str | None:
    """The alias of a layer that reaches other processes; None where there is none, or only one in memory."""
    alias = conf.get_settings().CHANNEL_LAYER
    backend = _backend(alias)
    return None if backend is None or issubclass(backend, InMemoryChannelLayer) else alias


def _backend(alias: str | None) -> type[Any] | None:
    if alias is None or alias not in channel_layers:
        return None
    backend: type[Any] = import_string(channel_layers.configs[alias]["BACKEND"])
    return backend
