"""Questions and answers that the tests of this folder use."""

from typing import Any

OPEN_FORM: dict[str, Any] = {"type": "object", "properties": {}}


def form(message: str, **properties: str) -> dict[str, Any]:
    """A form with required members of these types."""
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": [*properties],
    }
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def link(message: str) -> dict[str, Any]:
    """A link to open."""
    return {"method": "elicitation/create", "params": {"mode": "url", "message": message, "url": "https://x.example/y"}}


def sample(**params: Any) -> dict[str, Any]:
    """A question to the client's model."""
    messages = [{"role": "user", "content": {"type": "text", "text": "?"}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 5, **params}}


ROOTS: dict[str, Any] = {"method": "roots/list"}


def accept(**content: Any) -> dict[str, Any]:
    """A form that was filled in."""
    return {"action": "accept", "content": content}
