"""The demo site's own page."""

import json
from typing import Any

from django.views.generic import TemplateView

from mcp_tasks.tools.registry import registry

#: Where ``project.asgi`` mounts MCP.
MCP_PATH = "/mcp"


class HomeView(TemplateView):
    """
    A console for the tools that run here and how to connect a client, for somebody who has just started the demo.

    All addresses are made from the host of the request, so that they can be pasted. The console's scripts speak to the
    server as any client does; this view knows no token and no task.
    """

    template_name = "home.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        mcp_url = self.request.build_absolute_uri(MCP_PATH)
        return super().get_context_data(
            mcp_path=MCP_PATH,
            mcp_url=mcp_url,
            tools=[
                {"name": tool.name, "title": tool.title, "description": tool.description, "task": tool.task}
                for tool in registry
            ],
            client_configuration=json.dumps(_client_configuration(mcp_url), indent=2),
            **kwargs,
        )


def _client_configuration(mcp_url: str) -> dict[str, Any]:
    """The file that most MCP clients read, with a place for the token."""
    headers = {"Authorization": "Bearer YOUR_TOKEN"}
    return {"mcpServers": {"demo": {"type": "http", "url": mcp_url, "headers": headers}}}
