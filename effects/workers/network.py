"""The worker `network`: whether a host resolves and takes connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias

from contract.workers import BadWorkerArguments, WorkerResult
from effects.loop_time import limit
from effects.workers.action import Action, ActionFailed, Arguments, ReportLine
from effects.workers.threads import WorkerThreads

Address: TypeAlias = IPv4Address | IPv6Address

METADATA: Final = tuple(
    map(
        ip_network,
        (
            "169.254.0.0/16",  # link-local: where most clouds answer
            "fe80::/10",
            "fd00:ec2::/32",
            "fd20:ce::254/128",
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
        ),
    )
)
"""Where clouds hand out credentials; only reached where the configuration names them."""
_LOW: Final = 0xFFFF_FFFF


class NetworkWorker:
    """Connects to hosts that are allowed: names (`*.internal`), addresses, networks, or `*`.

    A name that matches none may have an address in a network that is allowed. `*` allows any but
    the addresses in `METADATA`. What was checked is what is connected to. Names are resolved in
    `threads`: where that takes long, no other name of this process has to wait.
    """

    def __init__(self, threads: WorkerThreads, hosts: Sequence[str]) -> None:
        self._threads = threads
        self._names: list[str] = []
        self._networks = []
        for host in hosts:
            try:
                self._networks.append(ip_network(host))
            except ValueError:
                self._names.append(host.lower())

    def actions(self) -> Mapping[tuple[str, str], Action]:
        """Return the action, where a host is allowed at all."""
        allowed = self._names or self._networks
        return {("network", "reach"): self.reach} if allowed else {}

    async def reach(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Resolve a host and connect to each of its addresses until one takes the connection.

        Codes: `not_resolved`, `host_not_allowed`, `not_connected`, `timed_out`.
        """
        host, port = str(arguments["host"]), int(arguments["port"])
        seconds = float(arguments["timeout"])
        loop = asyncio.get_running_loop()
        began = loop.time()
        stage = "resolving it"
        try:
            async with limit(seconds):
                addresses = self.allowed(host, await self._resolved(host, port))
                stage = f"connecting to port {port}"
                for address in addresses:
                    report(f"connecting to {address}")
                    if await _connects(address, port):
                        milliseconds = round((loop.time() - began) * 1_000)
                        return WorkerResult(
                            ok=True,
                            message=f"{host} port {port} is reached in {milliseconds} ms",
                            data={"address": str(address), "milliseconds": milliseconds},
                        )
        except TimeoutError:
            reason = f"{host}: {stage} took longer than {seconds:g} s"
            raise ActionFailed(code="timed_out", message=reason) from None
        reason = f"{host} resolves, but port {port} takes no connections"
        raise ActionFailed(code="not_connected", message=reason)

    def allowed(self, host: str, addresses: Sequence[Address]) -> list[Address]:
        """Return the addresses that may be connected to; raises `ActionFailed`."""
        name = host.lower().rstrip(".")
        named = any(fnmatchcase(name, pattern) for pattern in self._names)
        allowed = [
            one
            for one in addresses
            if any(one in network for network in self._networks)
            or (named and not any(inner in net for inner in _meanings(one) for net in METADATA))
        ]
        if not allowed:
            raise ActionFailed(
                code="host_not_allowed", message=f"{host!r} is no host that is configured"
            )
        return allowed

    async def _resolved(self, host: str, port: int) -> list[Address]:
        """Resolve a host; raises `ActionFailed`, `BadWorkerArguments`."""
        resolve = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = await self._threads.run(resolve)
        except OSError as failure:
            reason = f"{host!r} does not resolve"
            raise ActionFailed(code="not_resolved", message=reason) from failure
        except UnicodeError as failure:  # a label that is too long, or empty
            reason = "must be a name or an address"
            raise BadWorkerArguments(argument="host", reason=reason) from failure
        addresses = map(ip_address, dict.fromkeys(str(entry[4][0]) for entry in found))
        return [getattr(one, "ipv4_mapped", None) or one for one in addresses]


async def _connects(address: Address, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(str(address), port)
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def _meanings(address: Address) -> list[Address]:
    """Return an address, and the IPv4 addresses to which gateways and tunnels may translate it."""
    if isinstance(address, IPv4Address):
        return [address]
    _, teredo = address.teredo or (None, None)
    # NAT64 and others have them at the end, behind whatever prefix a network has chosen.
    inner = IPv4Address(int(address) & _LOW), address.sixtofour, teredo
    return [address, *(one for one in inner if one is not None)]
