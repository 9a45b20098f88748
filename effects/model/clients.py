"""Clients of providers: one per provider value, closed when it is neither wanted nor in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal, get_args

import httpx2
from openai import AsyncOpenAI, DefaultAioHttpClient

from effects.model.entry import Provider

NO_KEY = "no-key"

Operation = Literal["chat/completions", "embeddings"]

# Compressed streams wait in the compressor until a block is full.
_OWN_HEADERS: Final = {"Accept-Encoding": "identity"}

MOST_ERROR: Final = 65_536
"""Bytes of what a provider says to a failure: nobody reads more of it."""
_OF_THE_WIRE: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})

KEPT_ALIVE = 3.0
"""Seconds an idle connection is kept: below the five after which common servers hang up. A
connection they close at the moment it is used again would fail a call nobody is to blame for."""


class ProviderClient:
    """An SDK client, and the head of its requests made once.

    The SDK brings authentication, its headers and its connections. What its `post` does again for
    every call, to the same end, costs four times the sending: the request is made here.
    """

    def __init__(self, provider: Provider) -> None:
        self._connections = DefaultAioHttpClient(
            trust_env=provider.trust_env,
            timeout=httpx2.Timeout(None, connect=provider.limits.connect),
            limits=httpx2.Limits(
                max_connections=1_000,
                max_keepalive_connections=100,
                keepalive_expiry=KEPT_ALIVE,
            ),
        )
        self._sdk = AsyncOpenAI(
            # The SDK refuses to do without; servers that need no key ignore it.
            api_key=provider.key.reveal() or NO_KEY,
            base_url=provider.base_url,
            max_retries=0,
            http_client=self._connections,
        )
        # Taken from the environment, where they belong to somebody else's account.
        self._sdk.organization = self._sdk.project = None
        base = self._sdk.base_url
        self._urls = {
            operation: base.copy_with(raw_path=base.raw_path + operation.encode())
            for operation in get_args(Operation)
        }
        said = {**self._sdk.default_headers, **self._sdk.auth_headers, **_OWN_HEADERS}
        # What the SDK would leave out is no text.
        self._headers = [(name, text) for name, text in said.items() if isinstance(text, str)]

    async def ask(self, body: bytes, operation: Operation = "chat/completions") -> httpx2.Response:
        """Send one request: no retries, no limit but on connecting.

        Returns the response when its headers have come, its body unread; one that is not a success
        is read (the first 64 KiB) and closed, so that no time limit or cancellation can leave its
        connection open.
        """
        url = self._urls[operation]
        request = httpx2.Request("POST", url, headers=self._headers, content=body)
        response = await self._connections.send(request, stream=True)
        return response if response.is_success else await _read(response)

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.close()


async def _read(response: httpx2.Response) -> httpx2.Response:
    """Give a response with the beginning of its body, decompressed; its connection is closed."""
    body = bytearray()
    try:
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MOST_ERROR:
                    break
    finally:
        await response.aclose()
    headers = [pair for pair in response.headers.multi_items() if pair[0] not in _OF_THE_WIRE]
    return httpx2.Response(response.status_code, headers=headers, content=bytes(body[:MOST_ERROR]))


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
            leased = self._leased[provider] = _Leased(ProviderClient(provider))
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


async def _close(clients: list[ProviderClient]) -> None:
    for client in clients:
        await client.close()
