"""Tools of MCP servers. Importing this package imports the SDK: only where one is configured."""

from effects.tools.mcp.client import McpSession, ToolFailed, describe_error, open_session
from effects.tools.mcp.connection import McpConnection
from effects.tools.mcp.server import ListedTool, McpServer, OfferedTool, Offering, offer_tools

__all__ = [
    "ListedTool",
    "McpConnection",
    "McpServer",
    "McpSession",
    "OfferedTool",
    "Offering",
    "ToolFailed",
    "describe_error",
    "offer_tools",
    "open_session",
]
