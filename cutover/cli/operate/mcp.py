"""`cutover mcp`: an MCP server on standard input, whose calls happen once in an exchange."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import CutoverError
from cutover.cli.terminal import refusals

REFUSED = 2


class ClientNotInstalled(CutoverError):
    """The client of the effect API is not installed."""

    def __init__(self) -> None:
        super().__init__("`cutover mcp` needs the distribution cutover-client beside cutover")


class NothingToBridge(CutoverError):
    """Neither a command nor a server is named, or both are."""

    def __init__(self) -> None:
        super().__init__(
            "name one of a command (`cutover mcp -- COMMAND`) and a server of the router "
            "(`cutover mcp --server NAME`, with CUTOVER_URL set)"
        )


class KeyNotSet(CutoverError):
    """A router is named, and the gateway's key is not set."""

    def __init__(self, variable: str) -> None:
        super().__init__(f"CUTOVER_URL names a router: {variable!r} must hold its gateway's key")


def mcp(
    command: Annotated[
        list[str] | None, typer.Argument(help="The server's program, and arguments.")
    ] = None,
    server: Annotated[
        str, typer.Option(help="In place of a command: a server of [gateway] tool_servers.")
    ] = "",
    name: Annotated[
        str, typer.Option(help="What it is called on tapes; its program's name if left out.")
    ] = "",
    key_env: Annotated[str, typer.Option(help="Variable with the gateway's key.")] = "GATEWAY_KEY",
) -> None:
    """Start an MCP server and pass messages; calls that name an exchange happen once in it.

    Put it before the command of your client: `cutover mcp -- shop-server --db shop.sqlite`. In
    place of the command, `--server shop` is a server that the router has.
    CUTOVER_URL is the address of the gateway. An exchange is named by a call's `_meta`
    (`cutover/exchange` and `cutover/role`, or `traceparent`) or by CUTOVER_EXCHANGE, CUTOVER_ROLE,
    TRACEPARENT. Exit: the server's status; 2: refused.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with refusals(REFUSED):
        if find_spec("cutover_client") is None:
            raise ClientNotInstalled
        url, key = os.environ.get("CUTOVER_URL", ""), os.environ.pop(key_env, "")
        if url and not key:
            raise KeyNotSet(key_env)
        if bool(command) == bool(server) or (server and not url):
            raise NothingToBridge
        bridge = import_module("cutover.bridge")
        if server:
            at = f"{url.rstrip('/')}/mcp/{server}"
            raise typer.Exit(asyncio.run(bridge.run_relay(at, key, os.environ)))
        gateway = import_module("cutover_client").Gateway(url, key) if url else None
        started = command or []
        named = name or Path(started[0]).stem
        status = asyncio.run(bridge.run_bridge(started, named, gateway, os.environ))
    raise typer.Exit(status)
