"""Which locks an exchange holds, by its tape: whoever goes on from it has to hold them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract import operations as ops
from contract.stores import Acquire, Release

if TYPE_CHECKING:
    from effects.tape.tape import Tape

_acquire = msgspec.json.Decoder(Acquire)
_release = msgspec.json.Decoder(Release)


def held(tape: Tape) -> tuple[Acquire, ...]:
    """Give what was acquired and is still needed, in the order of acquiring."""
    locks: dict[str, Acquire] = {}
    for entry in tape.entries:
        if entry.operation is ops.LOCK_ACQUIRE and entry.items and entry.items[0].held:
            asked = _acquire.decode(entry.args)
            locks[asked.key] = asked
        elif entry.operation is ops.LOCK_RELEASE:
            locks.pop(_release.decode(entry.args).key, None)
    return tuple(locks.values())
