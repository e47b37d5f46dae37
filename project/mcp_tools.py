"""Tools of the demo site: one for each thing that a task can do."""

import asyncio
from dataclasses import dataclass

from mcp_tasks import McpError, TaskContext, ToolError, tool

RERUNNABLE = {"readOnlyHint": True}


@tool(task="never", annotations=RERUNNABLE)
def add(a: int = 0, b: int = 0) -> int:
    """Add two numbers, at once."""
    return a + b


@tool(annotations=RERUNNABLE)
async def slow_echo(text: str, seconds: float = 1.0) -> str:
    """Give the text back after some seconds."""
    await asyncio.sleep(seconds)
    return text


@tool(annotations=RERUNNABLE)
async def failing_job(message: str) -> str:
    """A job whose result is an error that the model can read."""
    await asyncio.sleep(0.2)
    raise ToolError(message)


@tool(annotations=RERUNNABLE)
async def crashing_job() -> str:
    """A job that ends in a JSON-RPC error."""
    await asyncio.sleep(0.2)
    raise McpError(-32603, "The job crashed", {"reason": "demo"})


@tool
def needs_approval(service: str, ctx: TaskContext) -> str:
    """Deploy a service once a human has approved it."""
    schema = {"type": "object", "properties": {"approve": {"type": "boolean"}}, "required": ["approve"]}
    answer = ctx.elicit("approval", f"Deploy {service}?", schema)
    if answer["action"] == "accept" and answer["content"]["approve"]:
        return f"deployed {service}"
    return "declined"


@tool(annotations=RERUNNABLE)
def two_questions(ctx: TaskContext) -> str:
    """Ask for a name and a region together."""
    answers = ctx.ask({"name": _question("Your name?", "name"), "region": _question("Which region?", "region")})
    if any(answer["action"] != "accept" for answer in answers.values()):
        return "no answer"
    return f"{answers['name']['content']['name']} in {answers['region']['content']['region']}"


def _question(message: str, field: str) -> dict[str, object]:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


@tool(annotations=RERUNNABLE)
async def countdown(n: int, ctx: TaskContext) -> str:
    """Count down, a number each 0.2 seconds, until zero or until it is cancelled."""
    for left in range(n, 0, -1):
        ctx.progress(f"{left} left", done=n - left, total=n)
        await ctx.token.wait_async(0.2)
        ctx.token.raise_if_cancelled()
    return "liftoff"


@dataclass
class Report:
    """What build_report made."""

    rows: int
    checksum: int


@tool(annotations=RERUNNABLE)
def build_report(rows: int, ctx: TaskContext) -> Report:
    """Build a report over so many rows, in steps that each take a while."""
    checksum = 0
    for row in range(rows):
        ctx.progress("Reading rows", done=row, total=rows)
        checksum = _read(row, checksum, ctx)
    ctx.progress("Writing the report", done=rows, total=rows)
    return Report(rows, checksum)


def _read(row: int, checksum: int, ctx: TaskContext) -> int:
    """Stands for a slow source: fifty milliseconds a row, unless the task is cancelled meanwhile."""
    ctx.token.wait(0.05)
    ctx.token.raise_if_cancelled()
    return (checksum * 31 + row) % 1_000_003
