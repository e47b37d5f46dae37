"""What a client declared in ``_meta``, and what a question to it needs (basic/index, "_meta")."""

from .codec import Json

TASKS = "io.modelcontextprotocol/tasks"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY = "io.modelcontextprotocol/subscriptionId"
RELATED_TASK_KEY = "io.modelcontextprotocol/related-task"
#: Ours: a client that repeats a call with the same key gets the same task.
IDEMPOTENCY_KEY = "django-mcp-tasks/idempotencyKey"
#: Ours: the numbers of ``ctx.progress`` in every view of a task.
PROGRESS_KEY = "django-mcp-tasks/progress"

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
#: Every revision before the stateless one: a request that names one belongs to the handshake era.
HANDSHAKE_ERA = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY)

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

#: The ClientCapabilities object that lets a client work with tasks.
NEEDS_TASKS: dict[str, Json] = {"extensions": {TASKS: {}}}


def declares_tasks(capabilities: dict[str, Json]) -> bool:
    """Whether the client declared the Tasks extension on this request; any object counts."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


def needed_for(request: dict[str, Json]) -> dict[str, Json]:
    """The client capabilities without which an input request must not be sent."""
    params = request.get("params") or {}
    match request["method"]:
        case "elicitation/create":
            return {"elicitation": {"url" if params.get("mode") == "url" else "form": {}}}
        case "sampling/createMessage":
            wanted: dict[str, Json] = {}
            if "tools" in params or "toolChoice" in params:
                wanted["tools"] = {}
            if params.get("includeContext", "none") != "none":
                wanted["context"] = {}
            return {"sampling": wanted}
    return {"roots": {}}


def missing_for(requests: dict[str, dict[str, Json]], capabilities: dict[str, Json]) -> dict[str, Json]:
    """What the client would have to declare before these questions may be asked; empty when nothing lacks."""
    missing: dict[str, Json] = {}
    for request in requests.values():
        for name, wanted in needed_for(request).items():
            have = capabilities.get(name)
            if not isinstance(have, dict):
                lacking = wanted
            elif name == "elicitation" and not have:
                # An empty declaration means forms, and nothing but forms.
                lacking = {mode: {} for mode in wanted if mode != "form"}
            else:
                lacking = {mode: {} for mode in wanted if mode not in have}
            if lacking or not isinstance(have, dict):
                missing.setdefault(name, {}).update(lacking)
    return missing
