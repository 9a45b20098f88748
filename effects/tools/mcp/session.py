"""What is asked of a connection to an MCP server, and how its tools fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from contract.errors import CutoverError

if TYPE_CHECKING:
    from effects.tools.mcp.offering import Listed


class ToolFailed(CutoverError):
    """A tool answered that it failed; its own words may quote anything and stay with it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the tool {name!r} says that it failed")


class ServerAway(CutoverError):
    """A tool was called whose server is not there."""

    def __init__(self, server: str) -> None:
        super().__init__(f"the MCP server {server!r} is away")


class Session(Protocol):
    """One connection, from its handshake to its end.

    Both methods raise whatever the transport raises.
    """

    async def list(self) -> tuple[Listed, ...]:
        """Ask which tools there are."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool by the server's own name for it.

        Cancelling the call tells the server. Raises `ToolFailed`, and `BadArguments` where the
        server will not have the arguments.
        """
        ...
