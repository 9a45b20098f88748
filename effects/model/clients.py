"""Clients of providers: one per provider value, closed when it is neither wanted nor in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from openai import AsyncOpenAI, DefaultAioHttpClient

from effects.model.entry import Provider

NO_KEY = "no-key"

KEPT_ALIVE = 3.0
"""Seconds an idle connection is kept: below the five after which common servers hang up. A
connection they close at the moment it is used again would fail a call nobody is to blame for."""


class _WholeErrors(DefaultAioHttpClient):
    """Reads the bodies of error responses itself.

    The SDK does so after the response has left every `finally`: a time limit or cancellation
    in that moment would leave the connection open.
    """

    async def send(
        self,
        request: httpx2.Request,
        **options: Any,  # noqa: ANN401 (passed on as they came)
    ) -> httpx2.Response:
        """Send as the base class does; a response that is an error is returned read."""
        response = await super().send(request, **options)
        if response.is_error:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response


def open_client(provider: Provider) -> AsyncOpenAI:
    """Make a client that sends one request per call: no retries, no limit but on connecting."""
    client = AsyncOpenAI(
        # The SDK refuses to do without; servers that need no key ignore it.
        api_key=provider.key.reveal() or NO_KEY,
        base_url=provider.base_url,
        max_retries=0,
        http_client=_WholeErrors(
            trust_env=provider.trust_env,
            timeout=httpx2.Timeout(None, connect=provider.limits.connect),
            limits=httpx2.Limits(
                max_connections=1_000,
                max_keepalive_connections=100,
                keepalive_expiry=KEPT_ALIVE,
            ),
        ),
    )
    # Taken from the environment, where they belong to somebody else's account.
    client.organization = client.project = None
    return client


@dataclass(slots=True)
class _Leased:
    client: AsyncOpenAI
    streams: int = 0


class ClientPool:
    """Lends clients to streams."""

    def __init__(self, wanted: Iterable[Provider] = ()) -> None:
        self._wanted = frozenset(wanted)
        self._leased: dict[Provider, _Leased] = {}

    def __len__(self) -> int:
        return len(self._leased)

    @asynccontextmanager
    async def lease(self, provider: Provider) -> AsyncIterator[AsyncOpenAI]:
        """Lend the provider's client for one stream."""
        leased = self._leased.get(provider)
        if leased is None:
            leased = self._leased[provider] = _Leased(open_client(provider))
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


async def _close(clients: list[AsyncOpenAI]) -> None:
    for client in clients:
        await client.close()
