"""An MCP server: where it is, and what of it is offered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from effects.model import Secret


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server started with `command`, or reached at `url`.

    `variables` are given to the command, beside the few every program needs; `token` is sent as a
    bearer token. `allow` (None: all) and `deny` hold the server's own names of tools; what they
    let through is offered with `prefix` in front. `read_only` says which change nothing: all, none,
    those named, or (None) those the server itself says so of. `timeout` is what one call may take,
    `connect` what the server may take to start and to list its tools; seconds.
    """

    name: str
    prefix: str = ""
    command: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    token: Secret = Secret()  # noqa: RUF009 - it never changes
    timeout: float = 10.0
    connect: float = 30.0
    allow: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()
    read_only: bool | frozenset[str] | None = None
