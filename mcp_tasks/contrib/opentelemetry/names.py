"""Names of spans, attributes and metrics. The conventions for MCP are in development: what changes, changes here."""

TRACER = "mcp_tasks"

METHOD = "mcp.method.name"
TOOL = "gen_ai.tool.name"
VERSION = "mcp.protocol.version"
REQUEST_ID = "jsonrpc.request.id"
ERROR = "error.type"
CODE = "rpc.response.status_code"

#: Ours.
REF = "mcp_tasks.ref"
LEG, TRY, END = "mcp_tasks.leg", "mcp_tasks.try", "mcp_tasks.end"
LINK = "mcp_tasks.link"

LEG_SPAN = "mcp_tasks.leg"
JANITOR_SPAN = "mcp_tasks.janitor"

#: A histogram in seconds, with the bounds that the conventions give.
DURATION = "mcp.server.operation.duration"
DURATION_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
