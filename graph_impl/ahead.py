"""Asking the first question before the engine starts: it starts while the model thinks.

By then, whoever is served by the legacy stack waits for the model alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from contract.model import Chunk, ModelCall, ModelInfo
from contract.ports import Effects, Model
from graph_impl.rounds import beside

_TURNS: Final = 3
"""Turns of the loop in which a question gets out: it is noted, taken to the provider, written."""


@dataclass
class _Ahead:
    """The model, and the answer to a question it has been asked already."""

    model: Model
    answer: AsyncIterator[Chunk] | None

    def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Give the answer that is on its way to who asks first; put all other questions."""
        answer, self.answer = self.answer, None
        return self.model.stream(site, call) if answer is None else answer

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Tell about a model."""
        return await self.model.lookup(site, model_id)


@asynccontextmanager
async def asked_ahead(effects: Effects, site: str, call: ModelCall) -> AsyncIterator[Effects]:
    """Ask the model; gives effects for a graph that asks just that first."""
    chunks = effects.model.stream(site, call)

    async def begin() -> Chunk | None:
        return await anext(chunks, None)

    async with beside(begin()) as (first,):
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        yield replace(effects, model=_Ahead(effects.model, _answer(first, chunks)))


async def _answer(
    first: asyncio.Task[Chunk | None], rest: AsyncIterator[Chunk]
) -> AsyncIterator[Chunk]:
    chunk = await first
    if chunk is not None:
        yield chunk
    async for one in rest:
        yield one
