"""Vectors made later: of entries written while the embedder failed, or before there was one."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Final

from contract.errors import EffectFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from effects.embeddings import Embedder
    from effects.memory.shelf import Shelf, Stored

_LOG: Final = logging.getLogger(__name__)

BATCH: Final = 64
FIRST_REST: Final = 1.0
LONGEST_REST: Final = 300.0
_SEQS: Final = 1 << 20


class CatchingUp:
    """Makes the vectors that are due, in the background, whenever it is woken.

    Several processes may: each begins somewhere else (`draw` gives numbers from 0 to 1), and a
    vector is kept once.
    """

    def __init__(
        self, shelf: Shelf, embedder: Embedder, draw: Callable[[], float] = random.random
    ) -> None:
        self._shelf = shelf
        self._embedder = embedder
        self._draw = draw
        self._due = asyncio.Event()
        self._rest = FIRST_REST
        # By their hashes: the texts of somebody who is forgotten are kept nowhere.
        self._refused: set[int] = set()
        self._over = asyncio.Event()

    def wake(self) -> None:
        """Say that vectors are due."""
        self._due.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Catch up until it is left."""
        task = asyncio.get_running_loop().create_task(
            self._run(), name="memory: catching up", context=Context()
        )
        try:
            yield
        finally:
            # A pool of connections may swallow the cancellation that meets its answer.
            self._over.set()
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while not self._over.is_set():
            await self._due.wait()
            self._due.clear()
            await self._pass(int(self._draw() * _SEQS))
            await self._pass(0)

    async def _pass(self, after: int) -> None:
        """Go once through what waits; a text the embedder refuses is passed over from then on."""
        size = BATCH
        while (batch := await self._waiting(after, size)) and not self._over.is_set():
            outcome = await self._try([one for one in batch if hash(one) not in self._refused])
            if self._over.is_set():
                return
            if outcome == "later":
                await asyncio.sleep(self._rest)
                self._rest = min(2 * self._rest, LONGEST_REST)
            elif outcome == "refused" and len(batch) > 1:
                size = 1  # one of them: which?
            else:
                if outcome == "refused":
                    self._refused.update(map(hash, batch))
                    size = BATCH
                after = batch[-1].seq

    async def _waiting(self, after: int, size: int) -> list[Stored]:
        try:
            return await self._shelf.waiting(after, size)
        except EffectFailed as failed:
            # Whoever recalls next wakes it again.
            _LOG.warning("memory: what waits for vectors is not known: %s", failed.fault.code)
            return []

    async def _try(self, stored: list[Stored]) -> str:
        if not stored:
            return "done"
        try:
            await self._shelf.keep(stored, await self._embedder.embed([one.text for one in stored]))
        except EffectFailed as failed:
            fault = failed.fault
            _LOG.warning("memory: %d vectors not made: %s", len(stored), fault.code)
            return "refused" if fault.code in _ABOUT_THE_TEXT else "later"
        self._rest = FIRST_REST
        return "done"


_ABOUT_THE_TEXT: Final = frozenset(
    {"model_bad_request", "model_context_length", "model_content_policy"}
)
