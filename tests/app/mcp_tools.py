"""Tools of the test project."""

from mcp_tasks import TaskContext, tool


@tool(task="never")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def echo(text: str, ctx: TaskContext) -> str:
    """Echo."""
    ctx.progress("hi", done=1, total=2)
    return text


@tool
async def approve(service: str, ctx: TaskContext) -> str:
    """Approve."""
    a = ctx.elicit(
        "approval",
        f"Deploy {service}?",
        {"type": "object", "properties": {"approve": {"type": "boolean"}}, "required": ["approve"]},
    )
    return "ok" if a.get("content", {}).get("approve") else "no"
