"""Sweeping pauses: what is due expires and what is long over goes, though nobody asks for it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
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
    """Sweep at once and every so many seconds; a store that fails is swept the next time."""
    task = asyncio.create_task(_sweep(pauses, every), name="sweep pauses")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _sweep(pauses: PauseStore, every: float) -> None:
    while True:
        try:
            swept = await pauses.sweep()
        except EffectFailed as failure:
            log.warning("pauses could not be swept: %s", failure.fault.code)
        else:
            if any(swept):
                log.info("pauses: %s expired, %s removed", *swept)
        await asyncio.sleep(every)
