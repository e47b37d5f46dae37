"""
OpenTelemetry: add ``mcp_tasks.contrib.opentelemetry`` to INSTALLED_APPS.

Needs the API package ``opentelemetry-api`` (the extra ``opentelemetry``); which spans are kept, and where they go, is
for the project's SDK to say. Without the package, or without an SDK, nothing happens.
"""
