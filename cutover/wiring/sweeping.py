"""Sweeping pauses: what is due expires and what is long over goes, though nobody asks for it."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from contract.errors import EffectFailed
from cutover.wiring.periodic import chore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from effects.stores import PauseStore

log = logging.getLogger(__name__)

EVERY = 600.0
"""Seconds between two sweeps: that much longer than it should a tape may be kept."""


@asynccontextmanager
async def sweeping(pauses: PauseStore, every: float = EVERY) -> AsyncIterator[None]:
    """Sweep at once and every so many seconds; a store that fails is swept the next time."""
    async with chore("sweep pauses", partial(_sweep, pauses), every, at_once=True):
        yield


async def _sweep(pauses: PauseStore) -> None:
    try:
        swept = await pauses.sweep()
    except EffectFailed as failure:
        log.warning("pauses could not be swept: %s", failure.fault.code)
    else:
        if any(swept):
            log.info("pauses: %s expired, %s removed", *swept)
