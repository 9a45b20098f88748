"""The journal of an exchange: its writes, stored as they are made, for the case of a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from contract.operations import TOOLS_RUN, Operation

if TYPE_CHECKING:
    from contract.ports import Effects
    from effects.tape.tape import Entry


class Journal(Protocol):
    """Stores the writes of one exchange. Neither method raises but to be cancelled."""

    async def begin(self, entry: Entry, /) -> bool:
        """Store that a write begins, and what came before it; False where it must not begin."""
        ...

    async def end(self, entry: Entry, /) -> None:
        """Store the result of a write, which is on the entry; no run has read it yet."""
        ...


def is_read_only(live: Effects, operation: Operation, arguments: object) -> bool:
    """Whether a call changes nothing: live tools declare it, beyond their port."""
    return operation.kind == "read" or _declared(live, operation, arguments, "read_only")


def is_repeatable(live: Effects, operation: Operation, arguments: object) -> bool:
    """Whether a write whose result was lost may be made again."""
    return operation.idempotent or _declared(live, operation, arguments, "idempotent")


def _declared(live: Effects, operation: Operation, arguments: object, what: str) -> bool:
    if operation is not TOOLS_RUN:
        return False
    declares = getattr(live.tools, what, None)
    return declares is not None and bool(declares(getattr(arguments, "name", "")))
