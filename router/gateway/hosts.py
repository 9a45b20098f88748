"""The gateways of other hosts, as they announce themselves where all routers share state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from contract.errors import EffectFailed

EVERY_SECONDS: Final = 2.0
ENDS_SECONDS: Final = 15
"""After so long without a word a host is gone."""

log = logging.getLogger(__name__)


class GatewayHosts(Protocol):
    """Where names of workers are announced; every method may raise `EffectFailed`."""

    async def announce(self, name: str, address: str, seconds: int) -> Mapping[str, str]:
        """Say where a name is for so many seconds; return the addresses of all names."""
        ...

    async def withdraw(self, name: str, address: str) -> None:
        """Say that a name is nowhere any more."""
        ...


class KnownHosts:
    """The gateways of other hosts by the names with which ids of their exchanges begin.

    Out of reach, what was known last holds.
    """

    def __init__(self, hosts: GatewayHosts, name: str, address: str) -> None:
        self._hosts = hosts
        self._name = name
        self._address = address
        self._addresses: Mapping[str, str] = {}
        self._announced = asyncio.Event()
        """Set, and replaced, whenever the hosts have announced what they know."""
        self.fault: str | None = None
        """Why other hosts cannot be found; None where they can."""

    @asynccontextmanager
    async def announced(self) -> AsyncIterator[None]:
        """Return a block in which this worker is announced, and others are known."""
        await self._announce()
        task = asyncio.create_task(self._keep(), name="gateway hosts")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with suppress(EffectFailed):  # it ends by itself
                await self._hosts.withdraw(self._name, self._address)

    async def address_of(self, exchange: str) -> str | None:
        """Return the address of the host that an exchange's id names; None for none, or this."""
        name = exchange[: len(self._name)]
        if name not in self._addresses and self.fault is None:  # it may have begun a moment ago
            await self._announce()
        address = self._addresses.get(name)
        return None if address == self._address else address

    async def others(self) -> list[str]:
        """Return the addresses of all other hosts."""
        if self.fault is None:
            await self._announce()
        return sorted({*self._addresses.values()} - {self._address})

    async def gone(self, address: str) -> None:
        """Wait until a host is known no longer: one that stands still announces nothing."""
        while address in self._addresses.values():
            await self._announced.wait()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self._announce()

    async def _announce(self) -> None:
        try:
            self._addresses = await self._hosts.announce(self._name, self._address, ENDS_SECONDS)
        except EffectFailed as failed:
            if self.fault is None:
                log.error("gateways of other hosts cannot be found: %s", failed)
            self.fault = f"gateways of other hosts cannot be found: {failed}"
        else:
            self.fault = None
            self._announced.set()
            self._announced = asyncio.Event()
