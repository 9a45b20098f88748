"""Tape sessions of shadows: they yield to served requests, and may ask a model of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from contract import operations as ops
from contract.operations import Operation
from contract.ports import Model
from contract.records import OwnHistory
from effects.stores import ShadowConversation
from effects.tape import Entry, Exchange, Play, TapeSession, model_exchange

QUIET_SECONDS = 0.0005
"""After a sign of serving more of it is near for so long: a hop to a thread, a task woken."""
NAP_SECONDS = 0.001
"""How long to wait before looking again; event loops round timers to milliseconds."""
PATIENCE_SECONDS = 0.25
"""How long one run waits in all: a loop that is never idle must not starve it."""


class IdleGate:
    """Knows when a request was last being served.

    Served exchanges get `clock`, and each reading of it is a sign of serving.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._last = float("-inf")

    def clock(self) -> float:
        """Return the time in seconds, for an exchange that is served."""
        self._last = now = self.monotonic()
        return now

    @property
    def idle(self) -> bool:
        """Whether nothing has just been served."""
        return self.monotonic() - self._last >= QUIET_SECONDS

    async def wait(self, patience: float = PATIENCE_SECONDS) -> float:
        """Wait until it is idle, at most `patience` seconds; returns what is left of them."""
        while patience > 0 and not self.idle:
            patience -= NAP_SECONDS
            await asyncio.sleep(NAP_SECONDS)
        return patience


class ShadowSession(TapeSession):
    """Plays the tape of a served exchange, and leaves the event loop to served requests."""

    def __init__(self, exchange: Exchange, name: str, gate: IdleGate) -> None:
        super().__init__(
            exchange, name, "nearest", stamp=lambda: exchange.stamp_of(gate.monotonic())
        )
        self._gate = gate
        self._patience = PATIENCE_SECONDS

    async def give_way(self) -> None:
        """Yield to others, for longer while requests are being served."""
        await super().give_way()
        self._patience = await self._gate.wait(self._patience)


class LiveSession(ShadowSession):
    """Asks its own model instead of playing the served answers; everything else is played.

    Its answers are on a tape of its own, which no other run reads; fencing it cancels its calls.
    """

    def __init__(self, exchange: Exchange, name: str, gate: IdleGate, model: Model) -> None:
        super().__init__(exchange, name, gate)
        self._own = model_exchange(model, gate.monotonic, self.stamp())

    def fence(self) -> None:
        """Refuse every further call, and cancel the model calls under way."""
        super().fence()
        self._own.cancel()

    async def _obtain(self, play: Play, arguments: msgspec.Struct) -> Entry:
        if play.operation is not ops.MODEL_STREAM:
            return await super()._obtain(play, arguments)
        entry = self._own.start(play.operation, play.site, arguments, play.args)
        play.how, play.entry, play.off_tape = "live", entry, True
        return entry


class OwnHistorySession(LiveSession):
    """Asks its own model, and reads its own earlier answers in later turns of a conversation.

    What it stores is played, and kept on its side of the conversation, which no other run reads.
    """

    def __init__(
        self,
        exchange: Exchange,
        name: str,
        gate: IdleGate,
        model: Model,
        side: ShadowConversation,
    ) -> None:
        super().__init__(exchange, name, gate, model)
        self._side = side

    @property
    def history(self) -> OwnHistory:
        """What it has read of its own conversation."""
        return self._side.read

    async def call(self, operation: Operation, site: str, arguments: msgspec.Struct) -> Any:
        """Play a call; reads of the conversation return its own side."""
        played = await super().call(operation, site, arguments)
        return self._side.result(operation, arguments, played)


def shadow_session(
    exchange: Exchange,
    name: str,
    gate: IdleGate,
    model: Model | None,
    side: ShadowConversation | None = None,
) -> ShadowSession:
    """Make the session of a shadow: live where there is a `model`, on its own `side` if it has."""
    if model is None:
        return ShadowSession(exchange, name, gate)
    if side is None:
        return LiveSession(exchange, name, gate, model)
    return OwnHistorySession(exchange, name, gate, model, side)
