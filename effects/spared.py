"""Spared: who has said nothing is asked by nobody until it has been found to answer again."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING

from effects.rest import Rest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MEANWHILE = "calls fail at once until it answers"
PAUSE_SECONDS = 2.0
"""Between two attempts to find out whether it answers."""


class Spared:
    """Whether a server is asked; shared by all who ask it, who tell how that ended.

    It is spared once a call has met silence while nobody was answered for `quiet` seconds: one
    that is merely busy answers others. Meanwhile `ask` is tried in the background, so that no
    request pays for finding out. Before its first answer it is not spared.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[], Awaitable[object]],
        *,
        quiet: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._ask = ask
        self._quiet = quiet
        self._monotonic = monotonic
        self._rest = Rest(name, MEANWHILE, monotonic)
        self._answered = math.inf
        self._asking: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def fault(self) -> str | None:
        """Why it is not asked now, and what holds meanwhile; None where it is asked."""
        return self._rest.fault

    def answered(self) -> None:
        """It said something, be it that a call is wrong."""
        self._answered = self._monotonic()
        if self._rest.fault is not None:
            self._rest.answered()

    def silent(self, why: str) -> None:
        """A call has waited in vain, or nobody was there."""
        if self._closed or self._monotonic() - self._answered < self._quiet:
            return
        self._rest.failed(why)
        if self._asking is None or self._asking.done():
            # Nothing of the request that happened to notice: this goes on when it is over.
            self._asking = asyncio.get_running_loop().create_task(
                self._find_out(), name=f"ask {self._name}", context=Context()
            )

    async def aclose(self) -> None:
        """Find out nothing any more; idempotent."""
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def _find_out(self) -> None:
        # A pool of connections may swallow the cancellation that meets its answer.
        while self._rest.fault is not None and not self._closed:
            with suppress(Exception):  # whatever it is, it is asked again
                await self._ask()
                self.answered()
                return
            await asyncio.sleep(PAUSE_SECONDS)
