"""Tools and workers from settings: of a team's modules, of servers (MCP), of this machine."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from contract.errors import MissingExtra
from cutover.own_modules import refuse_hidden
from effects.model import Secret
from effects.tools import python_tools, reserved_names
from effects.workers import WorkerRegistry
from effects.workers.action import Action
from effects.workers.container import ContainerWorker
from effects.workers.deployment import Deployment, DeployWorker
from effects.workers.network import NetworkWorker
from effects.workers.system import SystemWorker
from effects.workers.threads import WorkerThreads
from router.config.addresses import read_secret
from router.config.errors import unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from effects.tools import Tool
    from effects.tools.mcp import McpConnection, McpServer
    from router.config.schema import (
        DeploySettings,
        McpServerSettings,
        Settings,
        WorkerSettings,
    )

_LIBRARY = "effects.tools.mcp"
_EXTRA = "mcp"
_WHERE = "configuration"


@dataclass(frozen=True, slots=True)
class ConfiguredTools:
    """The tools of settings beside those built in: of a team's own modules, and of servers."""

    own: Sequence[Tool]
    servers: Sequence[McpServer]


def configured_tools(settings: Settings, environ: Mapping[str, str]) -> ConfiguredTools:
    """Read the tools from settings; nothing is opened.

    Raises `ToolModuleRefused`, `DuplicateTool`, `MissingExtra` and, for a variable that is not set
    or the limit of an unknown tool, `ConfigRefused`.
    """
    for module in settings.tools.python.modules:
        refuse_hidden(module)
    own = python_tools(settings.tools.python.modules)
    reserved = reserved_names(own)
    refuse_unknown_tools(settings, reserved)
    servers = settings.tools.mcp.items()
    reached = settings.gateway.tool_servers
    return ConfiguredTools(
        own,
        [replace(tool_server(*one, environ, reserved), asks=one[0] in reached) for one in servers],
    )


def open_tool_servers(
    servers: Sequence[McpServer], stack: AsyncExitStack
) -> Sequence[McpConnection]:
    """Start connecting to every server without waiting; closed with `stack`."""
    connections: list[McpConnection] = [mcp().McpConnection(one) for one in servers]

    async def close() -> None:
        await asyncio.gather(*(one.aclose() for one in connections))

    stack.push_async_callback(close)
    for one in connections:
        one.start()
    return connections


def tool_server(
    name: str,
    section: McpServerSettings,
    environ: Mapping[str, str],
    reserved: Mapping[str, str],
) -> McpServer:
    """Return one server; raises `MissingExtra`, `ConfigRefused`.

    `reserved` are the names of other tools, and where each is from.
    """
    server: McpServer = mcp().McpServer(
        name=name,
        prefix=section.prefix or "",
        command=section.command,
        variables={one: read_secret(one, environ).decode() for one in section.env},
        url=section.url,
        token=Secret(read_secret(section.token_env, environ).decode()),
        timeout=section.timeout_seconds,
        connect=section.connect_seconds,
        allow=frozenset(section.allow) or None,
        deny=frozenset(section.deny),
        read_only=_declared(section.read_only),
        idempotent=_declared(section.idempotent),
        shadow_reads=section.shadow_reads,
        reserved=reserved,
    )
    return server


def refuse_unknown_tools(settings: Settings, known: Mapping[str, str]) -> None:
    """Raise `ConfigRefused` for the limit of a tool that is not `known`, nor may be a server's."""
    prefixes = tuple(one.prefix or "" for one in settings.tools.mcp.values())
    for name in settings.limits.tools:
        if name not in known and not name.startswith(prefixes):
            raise unknown_name(_WHERE, "limits.tools", known, "tool", name)


Declared: TypeAlias = bool | tuple[str, ...] | str
"""Whether tools are read-only or idempotent: all or none, those named, or as the server hints."""


def _declared(value: Declared) -> bool | frozenset[str] | None:
    match value:
        case bool():
            return value
        case tuple(names):
            return frozenset(names)
        case _:
            return None


def mcp() -> Any:
    """Import the adapter, only where servers are configured: the SDK takes a second."""
    try:
        library = import_module(_LIBRARY)
    except ModuleNotFoundError as missing:
        raise MissingExtra(adapter="McpConnection", extra=_EXTRA) from missing
    # It logs messages it cannot parse, and these may hold what users wrote.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    return library


INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""Variables that the commands of a deployment get in any case."""


def open_workers(
    settings: WorkerSettings, environ: Mapping[str, str], stack: AsyncExitStack
) -> WorkerRegistry:
    """Return the workers that are configured; what they run is ended with `stack`.

    Raises `ConfigRefused` for a variable that is not set.
    """

    def threads() -> WorkerThreads:
        """Return threads for one worker: where a disk hangs, a release can still go back."""
        own = WorkerThreads()
        stack.callback(own.close)
        return own

    actions = dict[tuple[str, str], Action]()
    actions |= SystemWorker(
        threads(),
        shown=settings.system,
        root=_folder(settings.root),
        temporary_root=_folder(settings.temporary_root),
    ).actions()
    actions |= NetworkWorker(threads(), settings.hosts).actions()
    if settings.engine:
        actions |= ContainerWorker(
            threads(),
            settings.engine,
            settings.containers,
            seconds=settings.seconds,
            most=settings.output_bytes,
        ).actions()
    if settings.deploy.root:
        deployment = _deployment(settings.deploy, settings.output_bytes, environ)
        actions |= DeployWorker(threads(), deployment).actions()
    workers = WorkerRegistry(actions, seconds=settings.seconds, limits=settings.limits)
    stack.push_async_callback(workers.aclose)
    return workers


def _deployment(section: DeploySettings, most: int, environ: Mapping[str, str]) -> Deployment:
    passed = {name: environ[name] for name in INHERITED if name in environ}
    return Deployment(
        root=_absolute(section.root),
        source=_absolute(section.source),
        build=section.build,
        check=section.check,
        check_url=section.check_url,
        check_seconds=section.check_seconds,
        environ=passed | {name: read_secret(name, environ).decode() for name in section.env},
        keep=section.keep,
        most=most,
    )


def _folder(configured: str) -> Path | None:
    return _absolute(configured) if configured else None


def _absolute(configured: str) -> Path:
    """Return a folder without a link's being resolved: results name it as it is configured."""
    return Path(os.path.abspath(configured))  # noqa: PTH100 - Path.resolve follows links
