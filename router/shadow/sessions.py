"""Tape sessions of shadows: they yield to served requests, and may ask a model of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import msgspec

from contract import operations as ops
from contract.external import PerformedCall
from contract.operations import Operation
from contract.ports import Model
from contract.records import How, OwnHistory
from effects.local import CallerPerforms
from effects.stores import ShadowConversation
from effects.tape import Entry, Exchange, Play, Signal, TapeSession, port_exchange
from effects.tasks import ANYTHING

QUIET_SECONDS = 0.0005
"""After a sign of serving more of it is near for so long: a hop to a thread, a task woken."""
NAP_SECONDS = 0.001
"""How long to wait before looking again; event loops round timers to milliseconds."""
PATIENCE_SECONDS = 0.25
"""How long one run waits in all: a loop that is never idle must not starve it."""
SLICE_SECONDS = 0.02
"""Of the processor, in one turn of the loop: what a shadow takes beyond is a wait for others."""
HELD_SECONDS = 0.25
"""For how long in all shadows may hold the loop so while requests are being served."""
HELD_SHARE = 0.02
"""How much of that comes back in each second."""


class LoopShare:
    """For how long shadows may still hold the loop; used up, they wait until it is whole again."""

    def __init__(self) -> None:
        self.left = HELD_SECONDS
        self._used_up = False
        self._at = 0.0

    def take(self, seconds: float, now: float) -> None:
        """A shadow has held the loop while requests were being served."""
        self.used_up(now)
        self.left -= seconds
        self._used_up = self._used_up or self.left <= 0

    def used_up(self, now: float) -> bool:
        """Whether no shadow may hold the loop now."""
        self.left = min(self.left + (now - self._at) * HELD_SHARE, HELD_SECONDS)
        self._at = now
        self._used_up = self._used_up and self.left < HELD_SECONDS
        return self._used_up


class IdleGate:
    """Knows when a request was last being served, and how long shadows kept others waiting.

    Served exchanges get `clock`, and each reading of it is a sign of serving; `open` counts them.
    `processor` is the time that this thread has computed, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.processor: Callable[[], float] = time.thread_time
        self.open = 0
        self._last = float("-inf")
        self._share = LoopShare()

    def held(self, seconds: float) -> None:
        """A shadow has computed for so long in one turn of the loop."""
        if self.open and seconds > SLICE_SECONDS:
            self._share.take(seconds, self.monotonic())

    @property
    def used_up(self) -> bool:
        """Whether served requests have waited for shadows for too long."""
        return self._share.used_up(self.monotonic())

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
    """Plays the tape of a served exchange, and leaves the event loop to served requests.

    A call that may be carried out for a shadow is, where the tape does not have it: on a tape of
    its own, which no other run reads. `on_used_up`, where it is set, is called when shadows have
    held the loop for too long.
    """

    def __init__(self, exchange: Exchange, name: str, gate: IdleGate) -> None:
        self.on_used_up: Callable[[], object] | None = None
        self._gate = gate
        self._patience = PATIENCE_SECONDS
        self._since: float | None = None  # when it began to compute in this turn of the loop
        self._turn: asyncio.Handle | None = None
        self._step = self._measured = 0.0
        self._external: Exchange | None = None
        super().__init__(
            exchange, name, "nearest", stamp=lambda: exchange.stamp_of(gate.monotonic())
        )

    def fence(self) -> None:
        """Refuse every further call; what it computes from here on is its end."""
        super().fence()
        self.on_used_up = None
        if self._external is not None:
            self._external.cancel()

    def touch(self) -> None:
        """Note a sign of life, and what it has computed for it."""
        super().touch()
        self._measure()
        self._resume()

    async def give_way(self) -> None:
        """Yield to others, for longer while requests are being served."""
        self._measure()
        await super().give_way()
        self._patience = await self._gate.wait(self._patience)
        self._resume()

    async def _wait(self, signal: Signal) -> None:
        self._measure()
        await super()._wait(signal)
        self._resume()

    def _on_miss(self, play: Play, arguments: msgspec.Struct) -> tuple[How, Entry]:
        if not (isinstance(arguments, PerformedCall) and arguments.shadowed):
            return super()._on_miss(play, arguments)
        if self._external is None:
            performs, clock = CallerPerforms(), self._gate.monotonic
            self._external = port_exchange("external", performs, clock, self.stamp())
        play.off_tape = True
        return "live", self._external.start(play.operation, play.site, arguments, play.args)

    async def steps(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run it, and note what each step of its task computes, where that is limited."""
        if self.on_used_up is None:
            await run()
        else:
            await _Steps(run(), self._step_begins, self._step_ended)

    def _step_begins(self) -> None:
        self._measure()  # of a task of its own
        self._measured, self._step = 0.0, self._gate.processor()

    def _step_ended(self) -> None:
        self._since = None
        self._hold(self._gate.processor() - self._step - self._measured)

    def _resume(self) -> None:
        """A task of the stack computes from here to its next wait, or to the end of this turn."""
        if self.on_used_up is not None:
            self._since = self._gate.processor()
            if self._turn is None:
                self._turn = asyncio.get_running_loop().call_soon(self._turned)

    def _turned(self) -> None:
        self._turn = None
        self._measure()

    def _measure(self) -> None:
        since, self._since = self._since, None
        if since is not None:
            seconds = self._gate.processor() - since
            self._measured += seconds
            self._hold(seconds)

    def _hold(self, seconds: float) -> None:
        if self.on_used_up is not None:
            self._gate.held(seconds)
            if self._gate.used_up:
                self.on_used_up()


class _Steps:
    """Awaits a coroutine, and calls a function before and after each of its steps."""

    def __init__(
        self,
        awaited: Coroutine[Any, Any, None],
        begins: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._awaited = awaited
        self._begins = begins
        self._ended = ended

    def __await__(self) -> Generator[Any, Any, None]:
        step: Callable[[Any], Any] = self._awaited.send
        value: Any = None
        while True:
            self._begins()
            try:
                waits_for = step(value)
            except StopIteration:
                return
            finally:
                self._ended()
            try:
                value = yield waits_for
                step = self._awaited.send
            except ANYTHING as error:
                value, step = error, self._awaited.throw


class LiveSession(ShadowSession):
    """Asks its own model instead of playing the served answers; everything else is played.

    Its answers are on a tape of its own, which no other run reads; fencing it cancels its calls.
    """

    def __init__(self, exchange: Exchange, name: str, gate: IdleGate, model: Model) -> None:
        super().__init__(exchange, name, gate)
        self._own = port_exchange("model", model, gate.monotonic, self.stamp())

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
