"""Prompts, resources and completion: MCP methods that a project adds to those of ``mcp_tasks``."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp_tasks import McpError, TaskContext
from mcp_tasks.rpc import method

from .answers import PNG, embedded, image
from .questions import form, user_says

Params = dict[str, Any]
Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """An entry of ``prompts/list`` and what makes its messages from the arguments, all of them required."""

    description: str
    messages: Callable[[dict[str, str], TaskContext], Messages]
    arguments: tuple[str, ...] = ()


def _with_context(arguments: dict[str, str], context: TaskContext) -> Messages:
    answer = context.elicit("user_context", "Which context should the prompt use?", form(context="string"))
    return [user_says(f"The context: {answer.get('content', {}).get('context', 'none')}")]


def _block(block: Any) -> dict[str, Any]:
    return {"role": "user", "content": block.model_dump(by_alias=True, exclude_none=True)}


PROMPTS = {
    "test_simple_prompt": Prompt("One message.", lambda arguments, context: [user_says("A simple prompt.")]),
    "test_prompt_with_arguments": Prompt(
        "A message with both arguments in it.",
        lambda arguments, context: [user_says(f"{arguments['arg1']} and {arguments['arg2']}")],
        ("arg1", "arg2"),
    ),
    "test_prompt_with_embedded_resource": Prompt(
        "A message with a resource.",
        lambda arguments, context: [_block(embedded(arguments["resourceUri"])), user_says("Read it.")],
        ("resourceUri",),
    ),
    "test_prompt_with_image": Prompt(
        "A message with an image.", lambda arguments, context: [_block(image()), user_says("Look at it.")]
    ),
    "test_input_required_result_prompt": Prompt("Asks the user for the context first.", _with_context),
}


@method("prompts/list")
def prompts_list(params: Params, context: TaskContext) -> dict[str, Any]:
    """All prompts, on one page."""
    return {
        "prompts": [
            {
                "name": name,
                "description": prompt.description,
                "arguments": [{"name": argument, "required": True} for argument in prompt.arguments],
            }
            for name, prompt in PROMPTS.items()
        ]
    }


@method("prompts/get")
def prompts_get(params: Params, context: TaskContext) -> dict[str, Any]:
    """The messages of a prompt, which may ask first."""
    prompt = PROMPTS.get(params.get("name", ""))
    if prompt is None:
        raise McpError(-32602, "Unknown prompt")
    arguments = params.get("arguments", {})
    missing = [name for name in prompt.arguments if name not in arguments]
    if missing:
        raise McpError(-32602, f"Missing arguments: {', '.join(missing)}")
    return {"description": prompt.description, "messages": prompt.messages(arguments, context)}


RESOURCES: dict[str, dict[str, str]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "The text of a static resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
}
TEMPLATE = "test://template/{id}/data"


@method("resources/list")
def resources_list(params: Params, context: TaskContext) -> dict[str, Any]:
    """The static resources, on one page."""
    return {
        "resources": [
            {"uri": uri, "name": uri.removeprefix("test://"), "mimeType": contents["mimeType"]}
            for uri, contents in RESOURCES.items()
        ]
    }


@method("resources/templates/list")
def resources_templates_list(params: Params, context: TaskContext) -> dict[str, Any]:
    """The one template."""
    return {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "data", "mimeType": "text/plain"}]}


@method("resources/read")
def resources_read(params: Params, context: TaskContext) -> dict[str, Any]:
    """A static resource, or one that the template describes."""
    uri = str(params.get("uri"))
    contents = RESOURCES.get(uri)
    templated = re.fullmatch(r"test://template/([^/]+)/data", uri)
    if templated is not None:
        contents = {"mimeType": "text/plain", "text": f"The data of {templated[1]}"}
    if contents is None:
        raise McpError(-32602, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, **contents}]}


@method("completion/complete")
def completion_complete(params: Params, context: TaskContext) -> dict[str, Any]:
    """Complete what was typed to one of a few words."""
    typed = str(params.get("argument", {}).get("value", ""))
    values = [word for word in ("test", "testing", "tests") if word.startswith(typed)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}
