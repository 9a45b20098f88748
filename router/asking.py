"""Asking: a shadow whose model is asked anew, while all else it does is played from the tape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract import operations as ops
from effects.own import own_exchange
from router.courtesy import CourteousRun

if TYPE_CHECKING:
    import msgspec

    from contract.ports import Model
    from effects.exchange import Exchange
    from effects.play import Play
    from effects.tape import Entry
    from router.courtesy import Courtesy


class AskingRun(CourteousRun):
    """A run on the tape of an exchange that never plays the model's answers, but asks for its own.

    They are on a tape of its own, which nobody else reads; fenced, it lets go of them.
    """

    def __init__(self, exchange: Exchange, name: str, courtesy: Courtesy, model: Model) -> None:
        super().__init__(exchange, name, courtesy)
        self._own = own_exchange(model, courtesy.monotonic, self.stamp())

    def fence(self) -> None:
        """Refuse every further call, and drop what is being asked."""
        super().fence()
        self._own.hang_up()

    def _look_up(self, play: Play) -> None:
        if play.operation is not ops.MODEL_STREAM:
            super()._look_up(play)

    async def _obtain(self, play: Play, arguments: msgspec.Struct) -> Entry:
        if play.operation is not ops.MODEL_STREAM:
            return await super()._obtain(play, arguments)
        entry = self._own.start(play.operation, play.site, arguments, play.args)
        play.how, play.entry, play.apart = "live", entry, True
        return entry


def shadow_run(
    exchange: Exchange, name: str, courtesy: Courtesy, model: Model | None
) -> CourteousRun:
    """Make the run of a shadow; where there is a model it asks that."""
    if model is None:
        return CourteousRun(exchange, name, courtesy)
    return AskingRun(exchange, name, courtesy, model)
