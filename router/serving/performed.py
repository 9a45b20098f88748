"""Effects that a caller performs itself: it is told to, or what came of it in another run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from contract.errors import EffectFailed, Fault
from contract.external import IN_DOUBT, ExternalResult, ExternalUpdate
from contract.operations import EXTERNAL_READ, EXTERNAL_RUN
from effects.tape import Lease, LentCall, Play, TapeSession

MOST_CHARACTERS: Final = 200
"""Of the name of an effect, and of an idempotency key."""


class PlayedEffect(NamedTuple):
    """An effect that was performed before: the values it streamed, and its result."""

    items: list[Any]
    result: ExternalResult


async def ask(
    session: TapeSession,
    effect: str,
    arguments: Any,
    *,
    read_only: bool,
    key: str,
    seconds: float | None,
) -> Lease | PlayedEffect:
    """Play an effect, or let the caller perform it; with a key again where it is in doubt.

    Raises what a call of a port raises.
    """
    operation = EXTERNAL_READ if read_only else EXTERNAL_RUN
    while True:
        lease = Lease(seconds)
        call = LentCall.made(arguments, key, lease)
        try:
            play, entry = await session.begin(operation, effect, call)
        except BaseException:
            lease.abandon()  # the caller is gone, and performs nothing
            raise
        if lease.entry is entry and not lease.ended:
            return lease
        try:
            return _played(await session.outcome(entry))
        except EffectFailed as error:
            if not (key and was_left_in_doubt(play, error)):
                raise


def was_left_in_doubt(play: Play, error: EffectFailed) -> bool:
    """Whether a call that failed is one that an earlier run had left in doubt."""
    return error.fault.code == IN_DOUBT and play.how == "exact"


def _played(updates: Sequence[ExternalUpdate]) -> PlayedEffect:
    result = updates[-1].result if updates else None
    if result is None or (result.error is not None and result.error.type == IN_DOUBT):
        raise EffectFailed(Fault(IN_DOUBT))
    return PlayedEffect([update.value for update in updates[:-1]], result)
