"""
JSON-RPC methods without a transport.

``method`` and ``capability`` are public: a host project adds further MCP methods with them.
"""

from .methods import capability, method

__all__ = ["capability", "method"]
