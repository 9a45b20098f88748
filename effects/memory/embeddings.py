"""The port of embeddings: below the recorder, for the memory alone; no stack ever sees it."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from contract.errors import EffectFailed, Fault
from effects.circuit_breaker import BreakerPolicy, Result
from effects.loop_time import limit_at, loop_now
from effects.model import ClientPool, ProviderBreakers, RescuePolicy
from effects.model.errors import error_in, status_fault, unreachable
from effects.model.retry import CallModel, GiveUp, Rescue, RescueMeans, RetryAfter, blames_provider
from effects.model.stream import BROKEN, CallDeadline, total_deadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from effects.model import ModelEntry
    from effects.model.errors import Facts
    from effects.model.retry import RetryStep


Vectors: TypeAlias = NDArray[np.float32]
"""Of shape (texts, dimensions); each of length 1, or 0 where a text says nothing."""

Vector: TypeAlias = NDArray[np.float32]
"""Of shape (dimensions,)."""

MOST_OF_A_TEXT = 6_000
"""Characters of a text that count: models refuse more than some 8,000 tokens."""


class Embedder(Protocol):
    """Makes vectors of texts."""

    @property
    def name(self) -> str:
        """The model."""
        ...

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make a vector of each text, in their order; raises `EffectFailed` with a model fault."""
        ...


def maker(embedder: Embedder) -> str:
    """Name what makes the vectors: those of two makers are never compared."""
    return maker_named(embedder.name, embedder.dimensions)


def maker_named(model: str, dimensions: int) -> str:
    """Name the maker of vectors of so many dimensions by a model."""
    return f"{model}/{dimensions}"


def normalised(vectors: Vectors) -> Vectors:
    """Scale every vector to the length 1; one of length 0 stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


class _Wanted(msgspec.Struct, omit_defaults=True):
    model: str
    input: Sequence[str]
    dimensions: int = 0


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int


class _Answer(msgspec.Struct):
    data: list[_Vector]


_answer = msgspec.json.Decoder(_Answer)


def _decode(body: bytes, texts: int, dimensions: int) -> Vectors:
    """Read the vectors of so many texts, in their order; raises `EffectFailed` (`model_error`)."""
    try:
        found = sorted(_answer.decode(body).data, key=lambda one: one.index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EffectFailed(_unusable("no embeddings")) from error
    if [one.index for one in found] != list(range(texts)):
        raise EffectFailed(_unusable("indices", vectors=len(found), texts=texts))
    if other := next((one for one in found if len(one.embedding) != dimensions), None):
        raise EffectFailed(
            _unusable("dimensions", sent=len(other.embedding), configured=dimensions)
        )
    # Beyond what 32 bits can hold is infinite, and refused here.
    with np.errstate(over="ignore"):
        vectors = np.array([one.embedding for one in found], np.float32)
    if not np.isfinite(vectors).all():
        raise EffectFailed(_unusable("numbers"))
    return vectors.reshape(texts, dimensions)


def _unusable(reason: str, **facts: int) -> Fault:
    data: Facts = {"reason": reason, **facts}
    return Fault("model_error", data=data)


log = logging.getLogger(__name__)

BATCH: Final = 64
"""Texts in one request."""

POLICY: Final = RescuePolicy(
    first_wait=0.2, longest_wait=2.0, breaker=BreakerPolicy(calls=3, rest=10.0)
)
"""A reply waits meanwhile, and full text is at hand: give up early."""


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
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = entry.model
        self.dimensions = dimensions
        self._entry = entry
        self._shortened = shortened
        self._clients = ClientPool([entry.provider])
        self._means = RescueMeans(POLICY, ProviderBreakers(POLICY.breaker), draw)
        self._sleep = sleep

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make a vector of each text, so many a request; raises `EffectFailed`."""
        batches = [
            await self._batch([text[:MOST_OF_A_TEXT] for text in texts[at : at + BATCH]])
            for at in range(0, len(texts), BATCH)
        ]
        none = np.zeros((0, self.dimensions), np.float32)
        return normalised(np.concatenate([none, *batches]))

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._clients.want(())

    async def _batch(self, texts: Sequence[str]) -> Vectors:
        dimensions = self.dimensions if self._shortened else 0
        body = msgspec.json.encode(_Wanted(self.name, texts, dimensions))
        ends = total_deadline(self._entry.provider.limits, loop_now())
        rescue = Rescue(self._entry, {}, self._means, ends.when)
        step: RetryStep = rescue.next(loop_now())
        while True:
            match step:
                case CallModel():
                    answer = await self._attempt(step, body, len(texts), ends)
                    if not isinstance(answer, Fault):
                        return answer
                    step = rescue.failed(answer, loop_now(), "nothing")
                    log.warning("embeddings of %r: %s%s", self.name, answer.code, _lengths(answer))
                case RetryAfter(seconds):
                    await self._sleep(seconds)
                    step = rescue.next(loop_now())
                case GiveUp(fault):
                    raise EffectFailed(fault)
                case _:
                    assert_never(step)

    async def _attempt(
        self, ask: CallModel, body: bytes, texts: int, ends: CallDeadline
    ) -> Vectors | Fault:
        """Call once, and record the result with the breaker."""
        result: Result = "ignored"
        try:
            vectors = _decode(await self._answer(body, ends), texts, self.dimensions)
        except EffectFailed as failed:
            result = "failure" if blames_provider(failed.fault) else "ignored"
            return failed.fault
        else:
            result = "success"
            return vectors
        finally:
            self._means.breakers.of(ask.entry).record(ask.permit, result, loop_now())

    async def _answer(self, body: bytes, ends: CallDeadline) -> bytes:
        limit = limit_at(ends.when)
        try:
            async with limit, self._clients.lease(self._entry.provider) as client:
                response = await client.ask(body, "embeddings")
                try:
                    content = await response.aread()
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise EffectFailed(ends.fault if limit.expired() else unreachable(error)) from error
        except BROKEN as error:
            raise EffectFailed(unreachable(error)) from error
        if not response.is_success:
            reported = error_in(content)
            raise EffectFailed(status_fault(response.status_code, response.headers, reported))
        return content


def _lengths(fault: Fault) -> str:
    """Describe vectors of another length; "" for any other fault."""
    if fault.data.get("reason") != "dimensions":
        return ""
    sent, configured = fault.data["sent"], fault.data["configured"]
    return f", it sends {sent} dimensions and [embeddings] dimensions is {configured}"
