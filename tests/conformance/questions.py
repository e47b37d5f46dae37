"""Tools that ask before they answer, in rounds of ``tools/call``."""

from typing import Any

from mcp_tasks import TaskContext, tool


def form(**types: str) -> dict[str, Any]:
    """The schema of a form whose fields, given as name and JSON type, are all required."""
    properties = {name: {"type": json_type} for name, json_type in types.items()}
    return {"type": "object", "properties": properties, "required": list(types)}


def elicitation(message: str, **types: str) -> dict[str, Any]:
    """An input request for a form."""
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": form(**types)}}


def sampling(text: str) -> dict[str, Any]:
    """An input request to the client's model."""
    return {"method": "sampling/createMessage", "params": {"messages": [user_says(text)], "maxTokens": 100}}


def user_says(text: str) -> dict[str, Any]:
    """A message of the user, as prompts and sampling have it."""
    return {"role": "user", "content": {"type": "text", "text": text}}


def ask_name(ctx: TaskContext) -> str:
    """Ask for the user's name; who declines is a stranger."""
    answer = ctx.elicit("user_name", "What is your name?", form(name="string"))
    return str(answer["content"]["name"]) if answer["action"] == "accept" else "stranger"


@tool(task="never")
def test_input_required_result_elicitation(ctx: TaskContext) -> str:
    """Ask the user for a name."""
    return f"Hello, {ask_name(ctx)}!"


@tool(task="never")
def test_input_required_result_sampling(ctx: TaskContext) -> str:
    """Ask the client's model for a capital."""
    answer = ctx.sample("capital_question", [user_says("What is the capital of France?")], max_tokens=100)
    return f"The model said: {answer['content']['text']}"


@tool(task="never")
def test_input_required_result_list_roots(ctx: TaskContext) -> str:
    """Ask which folders the client offers."""
    roots = ctx.roots("client_roots")["roots"]
    return "The folders: " + ", ".join(root["uri"] for root in roots)


@tool(task="never")
def test_input_required_result_request_state(ctx: TaskContext) -> str:
    """Ask for a confirmation; the state comes along with every question."""
    ctx.elicit("confirm", "Please confirm.", form(ok="boolean"))
    return "state-ok"


@tool(task="never")
def test_input_required_result_tampered_state(ctx: TaskContext) -> str:
    """Ask for a confirmation; an altered state is refused before this runs again."""
    ctx.elicit("confirm", "Please confirm.", form(ok="boolean"))
    return "confirmed"


@tool(task="never")
def test_input_required_result_multiple_inputs(ctx: TaskContext) -> str:
    """Ask the user, the model and the client together."""
    answers = ctx.ask(
        {
            "user_name": elicitation("What is your name?", name="string"),
            "greeting": sampling("Write a greeting."),
            "client_roots": {"method": "roots/list"},
        }
    )
    return f"Answered: {', '.join(answers)}"


@tool(task="never")
def test_input_required_result_multi_round(ctx: TaskContext) -> str:
    """Ask for a name, then for a colour."""
    name = ctx.elicit("step1", "Step 1: what is your name?", form(name="string"))
    colour = ctx.elicit("step2", "Step 2: which colour do you like best?", form(color="string"))
    return f"{name['action']}, then {colour['action']}"


@tool(task="never")
def test_input_required_result_capabilities(ctx: TaskContext) -> str:
    """Ask each question that the client declared it can answer."""
    questions = {
        "elicitation": elicitation("What is your name?", name="string"),
        "sampling": sampling("Write a greeting."),
        "roots": {"method": "roots/list"},
    }
    asked = {name: question for name, question in questions.items() if name in ctx.capabilities}
    answers = ctx.ask(asked) if asked else {}
    return f"Answered: {', '.join(answers) or 'nothing'}"


@tool(task="never")
def test_missing_capability(ctx: TaskContext) -> str:
    """Ask the client's model: an error for a client that did not declare sampling."""
    answer = ctx.sample("reply", [user_says("Say something.")], max_tokens=100)
    return f"The model said: {answer['content']['text']}"


@tool(task="never")
def test_streaming_elicitation(ctx: TaskContext) -> str:
    """Ask the user in the result: no request of ours travels on the response stream."""
    return f"Hello, {ask_name(ctx)}!"
