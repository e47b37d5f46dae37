"""The wire of MCP 2026-07-28 and its Tasks extension. No Django import at all, so it is tested without settings."""
