"""
Durable MCP tasks for Django.

The names here are what a project writes tools with. They import no models, so a module may use them before
Django's apps are loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

__all__ = [
    "CancellationToken",
    "DeferredTask",
    "InputRequired",
    "McpError",
    "NobodyAnswered",
    "TaskCancelled",
    "TaskContext",
    "ToolError",
    "__version__",
    "tool",
]

if TYPE_CHECKING:
    from .protocol.errors import McpError
    from .tools.cancellation import CancellationToken, TaskCancelled
    from .tools.context import TaskContext
    from .tools.registry import tool
    from .tools.results import DeferredTask, InputRequired, NobodyAnswered, ToolError

_HOMES = {
    "CancellationToken": "tools.cancellation",
    "DeferredTask": "tools.results",
    "InputRequired": "tools.results",
    "McpError": "protocol.errors",
    "NobodyAnswered": "tools.results",
    "TaskCancelled": "tools.cancellation",
    "TaskContext": "tools.context",
    "ToolError": "tools.results",
    "tool": "tools.registry",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: settings may import this package for its version alone.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
