"""A server that does not answer: calls fail at once until a probe in the background reaches it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context

from effects.circuit_breaker import Dependency

CONSEQUENCE = "calls fail at once until it answers"
PROBE_SECONDS = 2.0
"""Between two probes."""


class OutageGuard:
    """Whether a server may be called; all of its callers report how their calls ended.

    The outage begins with a call that met silence while no other was answered for `quiet` seconds:
    a server that is merely busy answers others. Then `probe` is tried in the background, so that no
    request pays for finding out. Before its first answer a server is never skipped.
    """

    def __init__(
        self,
        name: str,
        probe: Callable[[], Awaitable[object]],
        *,
        quiet: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._probe = probe
        self._quiet = quiet
        self._monotonic = monotonic
        self._server = Dependency(name, CONSEQUENCE, monotonic)
        self._last_answer = math.inf
        self._probing: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def fault(self) -> str | None:
        """Why it is not called now, and what holds meanwhile; None while it is called."""
        return self._server.fault

    def answered(self) -> None:
        """Record an answer, be it that a call is wrong."""
        self._last_answer = self._monotonic()
        self._server.answered()

    def silent(self, detail: str) -> None:
        """Record a call that waited in vain, or found no server."""
        if self._closed or self._monotonic() - self._last_answer < self._quiet:
            return
        self._server.failed(detail)
        if self._probing is None or self._probing.done():
            # An empty context: the task outlives the request that happened to notice.
            self._probing = asyncio.get_running_loop().create_task(
                self._until_answered(), name=f"probe {self._name}", context=Context()
            )

    async def aclose(self) -> None:
        """Stop probing; idempotent."""
        self._closed = True
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    async def _until_answered(self) -> None:
        # A pool of connections may swallow the cancellation that meets its answer.
        while self._server.fault is not None and not self._closed:
            with suppress(Exception):  # whatever it is, the next probe is due
                await self._probe()
                self.answered()
                return
            await asyncio.sleep(PROBE_SECONDS)
