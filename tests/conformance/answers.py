"""Tools that answer at once: kinds of content, errors, progress, a header, a schema."""

import time
from typing import Annotated, Any

from mcp_types import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

from mcp_tasks import TaskContext, ToolError, tool
from mcp_tasks.notifications import list_changed

#: One red pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
#: Two samples of silence.
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA=="


def image() -> ImageContent:
    """A picture, as a content block."""
    return ImageContent(data=PNG, mime_type="image/png")


def embedded(uri: str) -> EmbeddedResource:
    """A text resource, as a content block."""
    contents = TextResourceContents(uri=uri, mime_type="text/plain", text="The text of an embedded resource.")
    return EmbeddedResource(resource=contents)


@tool(task="never")
def test_simple_text() -> str:
    """Answer with a text."""
    return "A simple text."


@tool(task="never")
def test_image_content() -> ImageContent:
    """Answer with an image."""
    return image()


@tool(task="never")
def test_audio_content() -> AudioContent:
    """Answer with a sound."""
    return AudioContent(data=WAV, mime_type="audio/wav")


@tool(task="never")
def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource."""
    return embedded("test://embedded-resource")


@tool(task="never")
def test_multiple_content_types() -> list[ContentBlock]:
    """Answer with a text, an image and a resource."""
    return [TextContent(text="Three kinds of content."), image(), embedded("test://mixed-content")]


@tool(task="never")
def test_error_handling() -> str:
    """Fail in a way that a model can read."""
    raise ToolError("This tool always fails.")


@tool(task="never")
def test_tool_with_progress(ctx: TaskContext) -> str:
    """Report progress three times on the way."""
    for done in (0, 50, 100):
        ctx.progress(done=done, total=100)
        time.sleep(0.05)
    return "Done, with progress."


@tool(task="never")
def test_logging_tool() -> str:
    """Answer without a log message: this server sends none, whatever level the client names."""
    return "Nothing was logged to the client."


@tool(task="never")
def test_trigger_tool_change() -> str:
    """Announce that the tools changed to whoever listens."""
    list_changed("tools")
    return "Announced."


@tool(task="never")
def test_trigger_prompt_change() -> str:
    """Announce that the prompts changed to whoever listens."""
    list_changed("prompts")
    return "Announced."


@tool(task="never")
def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Take an argument that clients mirror in the header Mcp-Param-Region."""
    return f"The region is {region}."


@tool(
    task="never",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {
            "address": {
                "$anchor": "address",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "reach_by": {"enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "additionalProperties": False,
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"reach_by": {"const": "phone"}}, "required": ["reach_by"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
    },
)
def json_schema_2020_12_tool(**contact: Any) -> dict[str, Any]:
    """Give a contact back; its schema uses what only JSON Schema 2020-12 has."""
    return contact
