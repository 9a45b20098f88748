"""Tools of MCP servers. Importing this package imports the SDK: only where one is configured."""

from effects.tools.mcp.connection import McpConnection
from effects.tools.mcp.offering import Listed, Offer, Offering, offering
from effects.tools.mcp.sdk import opened
from effects.tools.mcp.server import McpServer
from effects.tools.mcp.session import Session, ToolFailed
from effects.tools.mcp.trouble import trouble

__all__ = [
    "Listed",
    "McpConnection",
    "McpServer",
    "Offer",
    "Offering",
    "Session",
    "ToolFailed",
    "offering",
    "opened",
    "trouble",
]
