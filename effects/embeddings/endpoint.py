"""Embeddings of an OpenAI-compatible endpoint, asked as the model port asks its providers."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final, assert_never

import aiohttp
import httpx2
import numpy as np

from contract.errors import EffectFailed, Fault
from effects.circuit_breaker import BreakerPolicy, Result
from effects.embeddings.answers import decode, encode
from effects.embeddings.embedder import MOST_OF_A_TEXT, Vectors, normalised
from effects.model.clients import ClientPool
from effects.model.failures import error_in, status_fault
from effects.model.limits import Deadline, total_of
from effects.model.rescue.breaker import ProviderBreakers
from effects.model.rescue.decisions import Ask, GiveUp, Means, Rescue, Wait
from effects.model.rescue.policy import RescuePolicy, blames_provider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from effects.model.entry import ModelEntry
    from effects.model.rescue.decisions import Step

_LOG: Final = logging.getLogger(__name__)
_BROKEN: Final = (httpx2.RequestError, aiohttp.ClientError)

BATCH: Final = 64
"""Texts in one request."""

POLICY: Final = RescuePolicy(
    first_wait=0.2, longest_wait=2.0, breaker=BreakerPolicy(calls=3, rest=10.0)
)
"""Somebody waits for a reply meanwhile, and full text is at hand: give up early."""


class EndpointEmbedder:
    """Asks `entry.model` of `entry.provider`; its limits' `total` is for one batch and its retries.

    `shortened` asks the endpoint for that many dimensions, where the model can be shortened.
    `draw` gives numbers from 0 to 1 for the jitter, `sleep` waits so many seconds.
    """

    def __init__(
        self,
        entry: ModelEntry,
        dimensions: int,
        *,
        shortened: bool = False,
        policy: RescuePolicy = POLICY,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = entry.model
        self.dimensions = dimensions
        self._entry = entry
        self._shortened = shortened
        self._clients = ClientPool([entry.provider])
        self._means = Means(policy, ProviderBreakers(policy.breaker), draw)
        self._sleep = sleep

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make a vector of each text, so many a request; raises `EffectFailed`."""
        batches = [
            await self._batch([text[:MOST_OF_A_TEXT] for text in texts[at : at + BATCH]])
            for at in range(0, len(texts), BATCH)
        ]
        return normalised(np.concatenate([self._none(), *batches]))

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._clients.want(())

    def _none(self) -> Vectors:
        return np.zeros((0, self.dimensions), np.float32)

    async def _batch(self, texts: Sequence[str]) -> Vectors:
        body = encode(self.name, texts, self.dimensions if self._shortened else 0)
        ends = total_of(self._entry.provider.limits, _now())
        rescue = Rescue(self._entry, {}, self._means, ends.when)
        step: Step = rescue.next(_now())
        while True:
            match step:
                case Ask():
                    answer = await self._attempt(step, body, len(texts), ends)
                    if not isinstance(answer, Fault):
                        return answer
                    step = rescue.failed(answer, _now(), "nothing")
                    _LOG.warning("embeddings of %r: %s%s", self.name, answer.code, _lengths(answer))
                case Wait(seconds):
                    await self._sleep(seconds)
                    step = rescue.next(_now())
                case GiveUp(fault):
                    raise EffectFailed(fault)
                case _:
                    assert_never(step)

    async def _attempt(self, ask: Ask, body: bytes, texts: int, ends: Deadline) -> Vectors | Fault:
        """Ask once, and tell the breaker how it ended."""
        result: Result = "ignored"
        try:
            vectors = decode(await self._answer(body, ends), texts, self.dimensions)
        except EffectFailed as failed:
            result = "failure" if blames_provider(failed.fault) else "ignored"
            return failed.fault
        else:
            result = "success"
            return vectors
        finally:
            self._means.breakers.of(ask.entry).record(ask.permit, result, _now())

    async def _answer(self, body: bytes, ends: Deadline) -> bytes:
        limit = asyncio.timeout_at(ends.when)
        try:
            async with limit, self._clients.lease(self._entry.provider) as client:
                response = await client.ask(body, "embeddings")
                try:
                    content = await response.aread()
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise EffectFailed(ends.fault if limit.expired() else _unreachable(error)) from error
        except _BROKEN as error:
            raise EffectFailed(_unreachable(error)) from error
        if not response.is_success:
            said = error_in(content)
            raise EffectFailed(status_fault(response.status_code, response.headers, said))
        return content


def _lengths(fault: Fault) -> str:
    """Say of vectors of other lengths which they have; nothing of any other fault."""
    if fault.data.get("reason") != "dimensions":
        return ""
    sent, configured = fault.data["sent"], fault.data["configured"]
    return f", it sends {sent} dimensions and [embeddings] dimensions is {configured}"


def _unreachable(error: Exception) -> Fault:
    """Name the failure by its class: its text may hold addresses."""
    return Fault("model_unavailable", retryable=True, data={"cause": type(error).__name__})


def _now() -> float:
    return asyncio.get_running_loop().time()
