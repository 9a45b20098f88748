"""Clients of providers: one per provider value, closed when it is neither wanted nor in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from effects.model.entry import Provider

if TYPE_CHECKING:
    from effects.model.provider_client import ProviderClient


@dataclass(slots=True)
class _Leased:
    client: ProviderClient
    streams: int = 0


class ClientPool:
    """Lends clients to streams."""

    def __init__(self, wanted: Iterable[Provider] = ()) -> None:
        self._wanted = frozenset(wanted)
        self._leased: dict[Provider, _Leased] = {}

    def __len__(self) -> int:
        return len(self._leased)

    def warm(self) -> None:
        """Make the clients that are wanted: certificates and imports cost the first user 40 ms."""
        _imported()  # also where none is wanted yet: one may be, once requests are being served
        for provider in self._wanted:
            self._client_of(provider)

    @asynccontextmanager
    async def lease(self, provider: Provider) -> AsyncIterator[ProviderClient]:
        """Lend the provider's client for one stream."""
        leased = self._client_of(provider)
        leased.streams += 1
        try:
            yield leased.client
        finally:
            leased.streams -= 1
            await self._close_unwanted()

    async def want(self, providers: Iterable[Provider]) -> None:
        """Close clients of all other providers, each when its last stream has ended."""
        self._wanted = frozenset(providers)
        await self._close_unwanted()

    def _client_of(self, provider: Provider) -> _Leased:
        leased = self._leased.get(provider)
        if leased is None:
            leased = self._leased[provider] = _Leased(_imported()(provider))
        return leased

    async def _close_unwanted(self) -> None:
        idle = [
            provider
            for provider, leased in self._leased.items()
            if provider not in self._wanted and not leased.streams
        ]
        clients = [self._leased.pop(provider).client for provider in idle]
        if clients:
            # Nobody else knows them any more: a cancelled caller must not leave them open.
            await asyncio.shield(_close(clients))


def _imported() -> type[ProviderClient]:
    found: type[ProviderClient] = import_module("effects.model.provider_client").ProviderClient
    return found


async def _close(clients: list[ProviderClient]) -> None:
    for client in clients:
        await client.close()
