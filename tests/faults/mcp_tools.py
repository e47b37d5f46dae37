"""Tools of the fault tests, beside those of the demo site: what is killed in the middle must tell what became of it."""

import asyncio
import os
import signal
import time
from typing import Any
from uuid import UUID

from mcp_tasks import TaskContext, tool
from mcp_tasks.runners.base import get_runner

#: What those report first that never look: a leg that was claimed is not yet a handler that runs.
AT_WORK = "at work"
_FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


@tool
def charge(text: str, seconds: float) -> str:
    """Must not run twice: it is marked neither idempotent nor read-only."""
    time.sleep(seconds)
    return text


@tool(annotations={"readOnlyHint": True})
def survey(ctx: TaskContext) -> str:
    """Two questions, one after the other; the result is what was answered."""
    first = ctx.elicit("first", "First?", _FORM)["content"]["value"]
    second = ctx.elicit("second", "Second?", _FORM)["content"]["value"]
    return f"{first} {second}"


@tool(annotations={"readOnlyHint": True})
def patient(seconds: float, ctx: TaskContext) -> str:
    """May be run again, and stops when it is told to."""
    if ctx.token.wait(seconds):
        ctx.token.raise_if_cancelled()
    return f"done on leg {ctx.leg}"


@tool(annotations={"readOnlyHint": True})
def busy(seconds: float, ctx: TaskContext) -> str:
    """May be run again, computes in place of waiting, and looks between the pieces whether it should stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(number * number for number in range(100_000))
        ctx.token.raise_if_cancelled()
    return f"done on leg {ctx.leg}"


@tool(annotations={"readOnlyHint": True})
def stubborn(seconds: float, ctx: TaskContext, seconds_again: float | None = None) -> str:
    """May be run again, which may take another time, and never looks whether it should stop."""
    ctx.progress(AT_WORK)
    end = time.monotonic() + (seconds if ctx.leg == 1 or seconds_again is None else seconds_again)
    while time.monotonic() < end:
        time.sleep(0.05)
    return f"done on leg {ctx.leg}"


@tool(annotations={"readOnlyHint": True})
def deadly() -> None:
    """May be run again, and takes its process with it each time."""
    os.kill(os.getpid(), signal.SIGKILL)


@tool
async def threaded(seconds: float, step_seconds: float, ctx: TaskContext) -> str:
    """Works on threads that the interpreter takes away at its exit, and never looks whether it should stop."""
    ctx.progress(AT_WORK)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.to_thread(time.sleep, step_seconds)
    return "done"


@tool(task="never")
def ring_again(ref: str, times: int) -> None:
    """Whatever tells the runner's workers of this task, once more, so many times."""
    runner: Any = get_runner()
    for _ in range(times):
        getattr(runner, "send", runner.enqueue)(UUID(ref))
