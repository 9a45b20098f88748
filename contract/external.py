"""External effects: what a stack does to the world itself, beside the ports, and says so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec


class ExternalCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """Arguments of `external.run` and `external.read`: the call's own, as JSON.

    A call with a `key` may be made again where its outcome is not known: whoever carries it out
    recognises the key.
    """

    arguments: Any = None
    key: str = ""


class PerformedCall(ExternalCall, frozen=True, omit_defaults=True, dict=True):
    """A call with the means to carry it out; on the tape, and in its key, it is the plain call.

    `perform` returns the updates, of which the last has the result. One that is `shadowed` may be
    carried out for a shadow, too, where its tape does not have it.
    """

    @classmethod
    def made(
        cls,
        arguments: Any,
        key: str,
        perform: Callable[[], AsyncIterator[ExternalUpdate]],
        *,
        shadowed: bool = False,
    ) -> PerformedCall:
        """Make a call; raises nothing."""
        call = cls(arguments, key)
        call.__dict__.update(perform=perform, shadowed=shadowed)
        return call

    @property
    def shadowed(self) -> bool:
        """Whether a shadow may have it carried out."""
        return bool(self.__dict__["shadowed"])

    def updates(self) -> AsyncIterator[ExternalUpdate]:
        """Carry it out."""
        perform: Callable[[], AsyncIterator[ExternalUpdate]] = self.__dict__["perform"]
        return perform()


class ExternalError(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an external effect failed: a name that the stack knows, and what it said."""

    type: str
    message: str = ""


class ExternalResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of an external effect, as JSON; with an `error`, `value` has its details."""

    value: Any = None
    error: ExternalError | None = None


class ExternalUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of an external effect: a value it streamed or, last, the result."""

    value: Any = None
    result: ExternalResult | None = None
    at: int = 0


STATE_SITE: Final = "cutover.state"
"""The effect by which a stack reads, and writes, what it alone stores: it is not compared."""
IN_DOUBT: Final = "effect_in_doubt"
"""Of an effect that has begun and was never reported: it may have happened."""
