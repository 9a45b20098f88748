"""`[tools]`: reading the servers of tools, and what may stand there."""

from __future__ import annotations

import re
from itertools import permutations

import msgspec

from router.config.addresses import service_fault, variable_fault
from router.config.sections import McpServerSettings, ToolSettings
from router.config.toml_table import (
    ConfigRefused,
    Table,
    checked,
    convert_table,
    display_value,
    subtable,
    unknown_name,
)

_NAME = re.compile(r"[a-zA-Z0-9-]+(_[a-zA-Z0-9-]+)*")
_PREFIX = re.compile(r"[a-zA-Z0-9_-]{0,32}")
_LONGEST_NAME = 30
_KIND = "mcp"


def tools_section(table: Table, where: str) -> ToolSettings:
    """Read `[tools]`; raises `ConfigRefused`."""
    section = subtable(table, "tools", where)
    for key in section:
        if key != _KIND:
            raise unknown_name(where, f"tools.{key}", (_KIND,))
    servers = subtable(section, _KIND, where, "tools.")
    found = {name: _server(name, servers, where) for name in servers}
    _check_prefixes(found, where)
    return ToolSettings(mcp=found)


def _server(name: str, servers: Table, where: str) -> McpServerSettings:
    key = f"tools.mcp.{name}"
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        why = f"up to {_LONGEST_NAME} letters, digits, '-', and single '_' between them are due"
        raise ConfigRefused(where, key, why)
    below = subtable(servers, name, where, "tools.mcp.")
    server = convert_table(below, McpServerSettings, where, f"{key}.")
    _check(server, where, key)
    # Two underscores, which no name holds: no prefix is the beginning of another.
    prefix = f"{name}__" if server.prefix is None else server.prefix
    return msgspec.structs.replace(server, prefix=prefix)


def _check(server: McpServerSettings, where: str, key: str) -> None:
    if bool(server.command) == bool(server.url):
        raise ConfigRefused(where, key, "one of command and url is due")
    stray = "token_env" if server.command and server.token_env else "env"
    if (server.command and server.token_env) or (server.url and server.env):
        why = "only a url has a token_env, only a command an env"
        raise ConfigRefused(where, f"{key}.{stray}", why)
    if server.command and not server.command[0]:
        raise ConfigRefused(where, f"{key}.command", "a program is due")
    if server.url:
        checked(service_fault, server.url, where, f"{key}.url")
    for name in (*server.env, server.token_env):
        checked(variable_fault, name, where, f"{key}.{'env' if server.command else 'token_env'}")
    if server.prefix is not None and not _PREFIX.fullmatch(server.prefix):
        why = "up to 32 letters, digits, '_' and '-' are due"
        raise ConfigRefused(where, f"{key}.prefix", why, display_value("prefix", server.prefix))


def _check_prefixes(servers: dict[str, McpServerSettings], where: str) -> None:
    """Refuse prefixes by which a tool's name might be that of another server's."""
    for (one, first), (other, second) in permutations(servers.items(), 2):
        if (second.prefix or "").startswith(first.prefix or ""):
            why = f"tools of {other!r}, whose prefix is {second.prefix!r}, might bear the same name"
            raise ConfigRefused(where, f"tools.mcp.{one}.prefix", why, repr(first.prefix))
