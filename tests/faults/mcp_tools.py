"""Tools of the fault tests, beside those of the demo site: what is killed in the middle must tell what became of it."""

import asyncio
import time

from mcp_tasks import TaskContext, tool

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
def stubborn(seconds: float, ctx: TaskContext) -> str:
    """May be run again, and never looks whether it should stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    return f"done on leg {ctx.leg}"


@tool
async def threaded(seconds: float, step_seconds: float) -> str:
    """Works on threads that the interpreter takes away at its exit, and never looks whether it should stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.to_thread(time.sleep, step_seconds)
    return "done"
