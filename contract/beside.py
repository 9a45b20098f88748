"""What a flow offers beside its streams: a pause is answered and gone on from, stores are asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import msgspec

    from contract.conversations import Turn
    from contract.human import Answer


class Sessions(Protocol):
    """What is kept of conversations, wherever it is kept."""

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """Read every turn of a session, oldest first; none of one nobody knows."""
        ...

    async def forget(self, session_id: str, *, lock: str) -> bool:
        """Remove a session: turns, what was learnt in it, pauses, checkpoints.

        False when nothing was kept. Raises `Refused` 409 while an exchange holds `lock`.
        """
        ...


Perform = Callable[[Sessions, Mapping[str, str]], Awaitable["msgspec.Struct | None"]]
"""Answers a call from its path's arguments: the answer's body, None where there is none.

Raises `Refused`.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is no stream and no stack's: arguments stand in braces in its path."""

    method: Literal["GET", "DELETE"]
    path: str
    perform: Perform
    reply: type[msgspec.Struct] | None = None


@dataclass(frozen=True, slots=True)
class Responding:
    """Where the answer to a question is brought; the functions read it out of the body."""

    path: str
    request: type[msgspec.Struct]
    hitl_id: Callable[[Any], str]
    answer: Callable[[Any], Answer]


def _brought_before(_body: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Continuing:
    """Where a paused exchange goes on; `answer` reads one that comes with the request, if any."""

    path: str
    request: type[msgspec.Struct]
    hitl_id: Callable[[Any], str]
    answer: Callable[[Any], Answer | None] = _brought_before
