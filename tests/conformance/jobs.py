"""Tools that run as tasks, and the one that never does."""

from mcp_tasks import McpError, TaskContext, ToolError, tool

from .questions import ask_name, elicitation, form

RERUNNABLE = {"readOnlyHint": True}


@tool(task="never")
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@tool(annotations=RERUNNABLE)
def slow_compute(ctx: TaskContext, seconds: float = 0.0, label: str = "the computation") -> str:
    """Take so many seconds, or fewer when cancelled: the suite starts several of a minute each."""
    ctx.token.wait(seconds)
    ctx.token.raise_if_cancelled()
    return f"{label} took {seconds:g} seconds"


@tool(task="required", annotations=RERUNNABLE)
def failing_job(ctx: TaskContext) -> str:
    """Work for a second, then fail in a way that a model can read."""
    ctx.token.wait(1.0)
    raise ToolError("The job failed.")


@tool(annotations=RERUNNABLE)
def protocol_error_job() -> str:
    """End in a JSON-RPC error."""
    raise McpError(-32603, "The job broke.")


@tool
def confirm_delete(ctx: TaskContext, filename: str = "report.txt") -> str:
    """Ask before a file is deleted."""
    answer = ctx.elicit("confirm", f"Delete {filename}?", form(confirm="boolean"))
    if answer["action"] == "accept" and answer["content"]["confirm"]:
        return f"deleted {filename}"
    return f"kept {filename}"


@tool
def multi_input(ctx: TaskContext) -> str:
    """Ask two questions that wait at the same time."""
    answers = ctx.ask(
        {
            "name": elicitation("What is your name?", name="string"),
            "confirm": elicitation("Go on?", confirm="boolean"),
        }
    )
    return f"Answered: {', '.join(answers)}"


@tool(task="required", inline_first=True)
def test_tool_with_task(ctx: TaskContext) -> str:
    """Ask for a name first, then greet in a task that has the answer."""
    name = ask_name(ctx)
    ctx.become_task()
    return f"Hello, {name}!"
