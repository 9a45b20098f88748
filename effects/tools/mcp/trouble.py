"""What is wrong with an MCP server, in words without secrets: never those of an exception."""

from __future__ import annotations

import httpx2
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

from contract.errors import CutoverError

_WORDS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((FileNotFoundError,), "no such command"),
    ((PermissionError,), "the command may not be run"),
    ((TimeoutError, httpx2.TimeoutException), "no answer in time"),
    ((ConnectionRefusedError, httpx2.ConnectError), "nobody listens"),
)

_CODES = {CONNECTION_CLOSED: "the connection ended", REQUEST_TIMEOUT: "no answer in time"}


def trouble(error: BaseException) -> str:
    """Say why a server cannot be used; of several errors at once, the first."""
    if isinstance(error, BaseExceptionGroup):
        return trouble(error.exceptions[0])
    if isinstance(error, CutoverError):
        return str(error)
    if isinstance(error, MCPError):
        return _CODES.get(error.code, f"answered with error {error.code}")
    words = (said for kinds, said in _WORDS if isinstance(error, kinds))
    return next(words, type(error).__name__)
