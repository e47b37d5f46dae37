"""The demo site's own page."""

import json
from typing import Any

from django.http import HttpResponse
from django.views.generic import TemplateView

from mcp_tasks.tools.registry import registry


class HomeView(TemplateView):
    """
    What runs here and how to connect, for somebody who has just started the demo.

    All addresses are made from the host of the request, so that they can be pasted. The page needs no script and
    nothing from other hosts; its policy says so to the browser.
    """

    template_name = "home.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        mcp_url = self.request.build_absolute_uri("/mcp")
        return super().get_context_data(
            mcp_url=mcp_url,
            tools=[
                {"name": tool.name, "title": tool.title, "description": tool.description, "task": tool.task}
                for tool in registry
            ],
            client_configuration=json.dumps(_client_configuration(mcp_url), indent=2),
            **kwargs,
        )

    def render_to_response(self, context: dict[str, Any], **response_kwargs: Any) -> HttpResponse:
        policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
        return super().render_to_response(context, headers={"Content-Security-Policy": policy}, **response_kwargs)


def _client_configuration(mcp_url: str) -> dict[str, Any]:
    """The file that most MCP clients read, with a place for the token."""
    headers = {"Authorization": "Bearer YOUR_TOKEN"}
    return {"mcpServers": {"demo": {"type": "http", "url": mcp_url, "headers": headers}}}
