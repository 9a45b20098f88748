"""Sweeping pauses: what is due expires and what is long over goes, though nobody asks for it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from contract.errors import EffectFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from effects.human import PauseStore

log = logging.getLogger(__name__)

EVERY = 600.0
"""Seconds between two sweeps: that much longer than it should a tape may be kept."""


@asynccontextmanager
async def sweeping(pauses: PauseStore, every: float = EVERY) -> AsyncIterator[None]:
    """Sweep at once and every so many seconds; a store that fails is swept the next time.

    A sweep under way is waited for: a cancellation could get lost in the database's driver.
    """
    over = asyncio.Event()
    task = asyncio.create_task(_sweep(pauses, every, over), name="sweep pauses")
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({task})


async def _sweep(pauses: PauseStore, every: float, over: asyncio.Event) -> None:
    while not over.is_set():
        try:
            swept = await pauses.sweep()
        except EffectFailed as failure:
            log.warning("pauses could not be swept: %s", failure.fault.code)
        else:
            if any(swept):
                log.info("pauses: %s expired, %s removed", *swept)
        with suppress(TimeoutError):
            async with asyncio.timeout(every):
                await over.wait()
