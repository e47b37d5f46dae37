"""MCP over a WebSocket, through Channels: every method, and any number of subscriptions on one socket."""
