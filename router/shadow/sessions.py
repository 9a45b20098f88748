"""Asking: a shadow whose model is asked anew, while all else it does is played from the tape.

One that runs free reads, of what it answered in the conversation before, its own answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract import operations as ops
from effects.own import own_exchange
from router.shadow.idle_gate import CourteousRun

if TYPE_CHECKING:
    import msgspec

    from contract.operations import Operation
    from contract.ports import Model
    from contract.records import OwnHistory
    from effects.stores.shadow_replies import ShadowConversation
    from effects.tape import Entry, Exchange, Play
    from router.shadow.idle_gate import IdleGate


class AskingRun(CourteousRun):
    """A run on the tape of an exchange that never plays the model's answers, but asks for its own.

    They are on a tape of its own, which nobody else reads; fenced, it lets go of them.
    """

    def __init__(self, exchange: Exchange, name: str, courtesy: IdleGate, model: Model) -> None:
        super().__init__(exchange, name, courtesy)
        self._own = own_exchange(model, courtesy.monotonic, self.stamp())

    def fence(self) -> None:
        """Refuse every further call, and drop what is being asked."""
        super().fence()
        self._own.cancel()

    def _look_up(self, play: Play) -> None:
        if play.operation is not ops.MODEL_STREAM:
            super()._look_up(play)

    async def _obtain(self, play: Play, arguments: msgspec.Struct) -> Entry:
        if play.operation is not ops.MODEL_STREAM:
            return await super()._obtain(play, arguments)
        entry = self._own.start(play.operation, play.site, arguments, play.args)
        play.how, play.entry, play.off_tape = "live", entry, True
        return entry


class FreeRun(AskingRun):
    """A run that asks for its own answers and, in later turns, is told those.

    What it stores is played, and kept on its side of the conversation; nobody else reads that.
    """

    def __init__(
        self,
        exchange: Exchange,
        name: str,
        courtesy: IdleGate,
        model: Model,
        side: ShadowConversation,
    ) -> None:
        super().__init__(exchange, name, courtesy, model)
        self._side = side

    @property
    def history(self) -> OwnHistory:
        """What it was told of its conversation."""
        return self._side.read

    async def call(self, operation: Operation, site: str, arguments: msgspec.Struct) -> Any:
        """Play a call; of what was said before it is told its own side."""
        played = await super().call(operation, site, arguments)
        return self._side.given(operation, arguments, played)


def shadow_run(
    exchange: Exchange,
    name: str,
    courtesy: IdleGate,
    model: Model | None,
    side: ShadowConversation | None = None,
) -> CourteousRun:
    """Make the run of a shadow; where there is a model it asks that, on its own side if it has."""
    if model is None:
        return CourteousRun(exchange, name, courtesy)
    if side is None:
        return AskingRun(exchange, name, courtesy, model)
    return FreeRun(exchange, name, courtesy, model, side)
