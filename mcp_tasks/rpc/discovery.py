"""``server/discover`` and ``tools/list``: what this server is and has."""

import base64
import binascii

from .. import conf
from ..protocol.capabilities import LEGACY, MODERN
from ..protocol.codec import Json
from ..protocol.errors import McpError, invalid_params
from ..tools.definition import Tool
from ..tools.registry import registry
from .caller import Caller
from .methods import ours, table
from .requests import Reply, Request, complete

CACHE_TTL_MS = 60_000
TOOLS_PER_PAGE = 100


def supported_versions() -> list[str]:
    """Revisions served here. A client of both eras takes an older entry as leave to fall back to it."""
    return [MODERN, LEGACY] if conf.get_settings().LEGACY_ERA else [MODERN]


@ours("server/discover")
def discover(request: Request) -> Reply:
    """Answers anyone who may connect, completely (server/discover)."""
    members: dict[str, Json] = {
        "supportedVersions": supported_versions(),
        "capabilities": table.server_capabilities(pushes=request.pushes),
        "ttlMs": CACHE_TTL_MS,
        "cacheScope": "public",
    }
    instructions = conf.get_settings().SERVER.INSTRUCTIONS
    if instructions is not None:
        members["instructions"] = instructions
    return complete(request, members)


def visible_tools(caller: Caller, *, legacy: bool = False) -> list[Tool]:
    """The tools that this caller may call, in registration order."""
    without_tasks = legacy or not conf.get_settings().ENABLED
    return [
        tool for tool in registry if not (without_tasks and tool.task == "required") and caller.may(tool.permission)
    ]


def visible_tool(name: Json, caller: Caller, *, legacy: bool = False) -> Tool:
    """One of them; raises -32602 as if it did not exist where the caller may not see it."""
    if not isinstance(name, str):
        raise invalid_params("name must be a string")
    tool = registry.get(name)
    without_tasks = legacy or not conf.get_settings().ENABLED
    if tool is None or (without_tasks and tool.task == "required") or not caller.may(tool.permission):
        raise invalid_params(f"Unknown tool: {name[:128]}")
    return tool


@ours("tools/list")
def list_tools(request: Request) -> Reply:
    """A page of tools (server/tools, "Listing Tools"). Private once any of them depends on who asks."""
    tools = visible_tools(request.caller, legacy=request.is_legacy)
    start = _start(tools, request.params["cursor"]) if "cursor" in request.params else 0
    page = tools[start : start + TOOLS_PER_PAGE]
    members: dict[str, Json] = {"tools": [_definition(tool, request) for tool in page]}
    if start + TOOLS_PER_PAGE < len(tools):
        members["nextCursor"] = _cursor(page[-1].name)
    if not request.is_legacy:
        personal = any(tool.permission is not None for tool in registry)
        members |= {"ttlMs": CACHE_TTL_MS, "cacheScope": "private" if personal else "public"}
    return complete(request, members)


def _definition(tool: Tool, request: Request) -> dict[str, Json]:
    definition = tool.definition()
    # Older clients know structured content as objects only.
    if request.is_legacy and (tool.output_schema or {}).get("type") != "object":
        definition.pop("outputSchema", None)
    return definition


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode("ascii")


def _start(tools: list[Tool], cursor: Json) -> int:
    """Where the page after a cursor begins: it names the last tool shown, so it survives changes elsewhere."""
    unknown: McpError = invalid_params("Unknown cursor; list again without one")
    if not isinstance(cursor, str) or not cursor:
        raise unknown
    try:
        name = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise unknown from None
    for index, tool in enumerate(tools):
        if tool.name == name:
            return index + 1
    raise unknown
