"""A model port that asks for a few answers at a time: who comes later waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from contract.model import Chunk, ModelCall, ModelInfo
from contract.ports import Model


class FewAtOnce:
    """Implements `contract.ports.Model` on another; `most` answers are under way at once."""

    def __init__(self, model: Model, most: int) -> None:
        self._model = model
        self._turns = asyncio.Semaphore(most)

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Tell what is registered, as the other does; that is no answer."""
        return await self._model.lookup(site, model_id)

    async def stream(self, site: str, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        """Ask once it is this call's turn; closing the generator gives the turn to the next."""
        async with self._turns:
            answer = cast("AsyncGenerator[Chunk, None]", self._model.stream(site, call))
            async with aclosing(answer) as chunks:
                async for chunk in chunks:
                    yield chunk
