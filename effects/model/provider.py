"""The model port on OpenAI-compatible providers.

The SDK brings authentication, its headers and its connections; requests are encoded and chunks
decoded here, because its models of every message and chunk cost nine tenths of the processor time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

import aiohttp
import httpx2

from contract.errors import EffectFailed, Fault
from contract.model import Chunk, ModelCall, ModelInfo
from effects.model.entry import ModelEntry
from effects.model.failures import error_in, status_fault
from effects.model.limits import Deadline, Deadlines
from effects.model.registry import ModelRegistry
from effects.model.request import encode
from effects.model.stream import StreamAssembler

if TYPE_CHECKING:
    from effects.model.provider_client import ProviderClient

_LOG: Final = logging.getLogger(__name__)
# The transport lets aiohttp's errors through where it has no name for them, as for bad HTTP.
_BROKEN: Final = (httpx2.RequestError, aiohttp.ClientError)


class OpenAIModel:
    """Implements `contract.ports.Model`; asks once and never again."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Tell what is registered; raises `EffectFailed` (`unknown_model`)."""
        return self._registry.entry(model_id).info

    async def stream(self, site: str, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        """Ask the registered model; raises `EffectFailed` with any of the model faults.

        Closing the generator, or cancelling who waits for it, drops the connection.
        """
        # Looked up here: a stream fails when it is read, not when it is made.
        entry = self._registry.entry(call.model_id)
        async with self.answer(entry, encode(call, entry.model)) as answer:
            while (chunks := await answer.next()) is not None:
                for chunk in chunks:
                    yield chunk

    @asynccontextmanager
    async def answer(
        self,
        entry: ModelEntry,
        body: bytes,
        ends: Deadline | None = None,
        *,
        assembler: type[StreamAssembler] = StreamAssembler,
    ) -> AsyncIterator[Answer]:
        """Ask one entry once; leaving drops the connection, or keeps it for the next request.

        `ends` is when the whole must be over, if not after the provider's own total limit. Raises
        `EffectFailed` where there is no answer to read.
        """
        deadlines = Deadlines(entry.provider.limits, asyncio.get_running_loop().time(), ends)
        async with self._registry.lease(entry.provider) as client:
            response = await _respond(client, body, deadlines)
            try:
                async with aclosing(_pieces(response)) as pieces:
                    yield Answer(entry, pieces, deadlines, assembler())
            finally:
                await response.aclose()


class Answer:
    """One answer while it comes."""

    __slots__ = ("_assembler", "_deadlines", "_entry", "_now", "_pieces")

    def __init__(
        self,
        entry: ModelEntry,
        pieces: AsyncIterator[bytes],
        deadlines: Deadlines,
        assembler: StreamAssembler,
    ) -> None:
        self._entry = entry
        self._pieces = pieces
        self._deadlines = deadlines
        self._assembler = assembler
        self._now = asyncio.get_running_loop().time

    async def next(self) -> list[Chunk] | None:
        """Wait for bytes, return the chunks they complete; None at the end of a whole answer.

        Raises `EffectFailed`, always after all that was said has been returned.
        """
        assembler = self._assembler
        piece = await self._piece() if assembler.fault is None else None
        if piece is None:
            self._end()
            return None
        chunks = assembler.feed(piece)
        now = self._now()
        self._deadlines.heard(now, spoke=assembler.spoke)
        if assembler.complete:
            self._deadlines.finished(now, done=assembler.done)
        return chunks

    async def _piece(self) -> bytes | None:
        """Wait for bytes; None when no more will come or, of a complete answer, matter."""
        deadline = self._deadlines.next()
        limit = asyncio.timeout_at(deadline.when)
        try:
            async with limit:
                return await anext(self._pieces, None)
        except TimeoutError:
            if limit.expired() and not self._assembler.complete:
                raise EffectFailed(deadline.fault) from None
        except _BROKEN as error:
            # Whether anything is missing is the assembler's to say.
            _LOG.debug("a model's connection broke: %s", type(error).__name__)
        return None

    def _end(self) -> None:
        _report(self._entry, self._assembler)
        if (fault := self._assembler.end()) is not None:
            raise EffectFailed(fault)


async def _respond(client: ProviderClient, body: bytes, deadlines: Deadlines) -> httpx2.Response:
    """Send the request; return the response when its headers have come, its body unread."""
    deadline = deadlines.next()
    limit = asyncio.timeout_at(deadline.when)
    try:
        async with limit:
            response = await client.ask(body)
    except TimeoutError as error:
        fault = deadline.fault if limit.expired() else _unreachable(error)
        raise EffectFailed(fault) from error
    except _BROKEN as error:
        raise EffectFailed(_unreachable(error)) from error
    if not response.is_success:
        said = error_in(response.content)
        raise EffectFailed(status_fault(response.status_code, response.headers, said))
    deadlines.answered()
    return response


def _pieces(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Give the body as it comes, decompressed where it was compressed all the same."""
    plain = response.headers.get("content-encoding", "identity") == "identity"
    return response.aiter_raw() if plain else response.aiter_bytes()


def _unreachable(error: BaseException) -> Fault:
    """Name the first cause by its class: its text may hold addresses."""
    # Behind a limit that ran out is the cancellation it was brought about with, which is no cause.
    while isinstance(cause := error.__cause__, Exception):
        error = cause
    return Fault("model_unavailable", retryable=True, data={"cause": type(error).__name__})


def _report(entry: ModelEntry, assembler: StreamAssembler) -> None:
    if assembler.malformed:
        _LOG.warning(
            "passed over %d malformed chunks of %r at %r",
            assembler.malformed,
            entry.model,
            entry.provider.name,
        )
