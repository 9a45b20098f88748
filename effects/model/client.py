"""A client of one provider: the SDK's, with the head of its requests made once.

The SDK brings six hundred modules of types, which take longer to import than all else of a router:
the pool in `effects.model.registry` imports this module when the first client is made, and a
process that calls no provider never does.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final, Literal, get_args

import httpx2
from openai import AsyncOpenAI, DefaultAioHttpClient

from effects.model.registry import Provider

NO_KEY = "no-key"

Operation = Literal["chat/completions", "embeddings"]

# Compressed streams wait in the compressor until a block is full.
_OWN_HEADERS: Final = {"Accept-Encoding": "identity"}

MAX_ERROR_BYTES: Final = 65_536
"""Bytes of an error response that are read."""
_WIRE_HEADERS: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})

KEEP_ALIVE_SECONDS = 3.0
"""Seconds an idle connection stays open: below the five after which common servers close it. A
connection closed at the moment it is used again would fail a call without any fault."""


class ProviderClient:
    """An SDK client, and the head of its requests made once.

    The SDK brings authentication, its headers and its connections. What its `post` does again for
    every call, to the same end, costs four times the sending: the request is made here.
    """

    def __init__(self, provider: Provider) -> None:
        self._connections = DefaultAioHttpClient(
            trust_env=provider.trust_env,
            follow_redirects=False,  # it would send the prompt to wherever the answer says
            timeout=httpx2.Timeout(None, connect=provider.limits.connect),
            limits=httpx2.Limits(
                max_connections=1_000,
                max_keepalive_connections=100,
                keepalive_expiry=KEEP_ALIVE_SECONDS,
            ),
        )
        self._sdk = AsyncOpenAI(
            # The SDK refuses to do without; servers that need no key ignore it.
            api_key=provider.key.reveal() or NO_KEY,
            base_url=provider.base_url,
            max_retries=0,
            http_client=self._connections,
        )
        # Taken from the environment, where they belong to another account.
        self._sdk.organization = self._sdk.project = None
        base = self._sdk.base_url
        self._urls = {
            operation: base.copy_with(raw_path=base.raw_path + operation.encode())
            for operation in get_args(Operation)
        }
        headers = {**self._sdk.default_headers, **self._sdk.auth_headers, **_OWN_HEADERS}
        # Headers that the SDK would leave out are no text.
        self._headers = [(name, text) for name, text in headers.items() if isinstance(text, str)]

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
    """Return a response with the beginning of its body, decompressed; its connection is closed."""
    body = bytearray()
    try:
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MAX_ERROR_BYTES:
                    break
    finally:
        await response.aclose()
    headers = [pair for pair in response.headers.multi_items() if pair[0] not in _WIRE_HEADERS]
    return httpx2.Response(
        response.status_code, headers=headers, content=bytes(body[:MAX_ERROR_BYTES])
    )
