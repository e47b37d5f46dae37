"""
What host projects test with: a client, time travel, fixtures, and the contract that every store passes.

Nothing of Django is imported before a name is used: pytest loads the plugin beside this before settings exist.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["IdleRunner", "McpClient", "TaskStoreContract", "ref_of", "rewind", "run_until_idle"]

if TYPE_CHECKING:
    from ..store.types import ref_of
    from .client import McpClient
    from .contract import TaskStoreContract
    from .driving import IdleRunner, run_until_idle
    from .timetravel import rewind

_HOMES = {
    "IdleRunner": ".driving",
    "McpClient": ".client",
    "TaskStoreContract": ".contract",
    "ref_of": "..store.types",
    "rewind": ".timetravel",
    "run_until_idle": ".driving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
