"""Where tools come from."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from router.sections.section import Seconds, Section


class McpServer(Section, frozen=True):
    """`[tools.mcp.<name>]`: a program that is started, or a URL (docs/tools.md).

    `env` names the variables the program is given, `token_env` the one with the token a URL is
    shown. `allow` (empty: all), `deny` and `read_only` hold the server's own names of its tools.
    """

    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str = ""
    token_env: str = ""
    timeout_seconds: Seconds = 10.0
    connect_seconds: Seconds = 30.0
    prefix: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    read_only: bool | tuple[str, ...] | Literal["hints"] = "hints"


class Tools(Section, frozen=True):
    """`[tools]`: where tools come from beside those built in."""

    mcp: dict[str, McpServer] = field(default_factory=dict)
