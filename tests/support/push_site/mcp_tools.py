"""Tools whose tasks stay open until a test says otherwise."""

from mcp_tasks import DeferredTask, tool


@tool
def hold() -> DeferredTask:
    """A task that nobody works at."""
    return DeferredTask(lambda ref: None)
