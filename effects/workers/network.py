"""The worker `network`: whether a host resolves and takes connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from contract.workers import BadWorkerArguments, WorkerResult
from effects.loop_time import limit
from effects.workers.action import Action, ActionFailed, Arguments, ReportLine

Address: TypeAlias = IPv4Address | IPv6Address

ANY: Final = "*"
METADATA: Final = tuple(
    map(
        ip_network,
        (
            "169.254.0.0/16",  # link-local: where most clouds answer
            "fe80::/10",
            "fd00:ec2::/32",
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
        ),
    )
)
"""Where clouds hand out credentials; only reached where the configuration names them."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOW: Final = 0xFFFF_FFFF


class NetworkWorker:
    """Connects to hosts that are allowed: names (`*.internal`), addresses, networks, or `*`.

    A name that matches none may have an address in a network that is allowed. `*` allows any but
    the addresses in `METADATA`. What was checked is what is connected to.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
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
                addresses = self.allowed(host, await _resolved(host, port))
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


async def _resolved(host: str, port: int) -> list[Address]:
    """Resolve a host in a thread; raises `ActionFailed`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as failure:
        raise ActionFailed(code="not_resolved", message=f"{host!r} does not resolve") from failure
    except UnicodeError as failure:  # a label that is too long, or empty
        raise BadWorkerArguments(
            argument="host", reason="must be a name or an address"
        ) from failure
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
    """Return an address, and the IPv4 address to which a gateway translates it."""
    if isinstance(address, IPv4Address):
        return [address]
    inner = address.sixtofour
    if inner is None and address in _NAT64:
        inner = IPv4Address(int(address) & _LOW)
    return [address] if inner is None else [address, inner]
