"""The port of the board: notes that change by compare-and-set, and sums of what is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

Phase: TypeAlias = Literal["open", "probing", "closed"]

KEEP_SECONDS = 3_600.0
"""How long a note is kept after its time is over: nobody who lives has not read it by then."""
SPENT_SECONDS = 2 * 86_400
"""How long a day's sums are kept."""


class Note(msgspec.Struct, frozen=True):
    """What is known of a breaker: `left` seconds, by the board's clock, is how long it holds.

    `mark` names this very note, and is never used again; `well` is how many probes went well.
    """

    mark: str
    phase: Phase
    left: float = 0.0
    well: int = 0


class Post(msgspec.Struct, frozen=True):
    """A note that takes the place of the one marked `expected`: "" is none, None whichever."""

    key: str
    note: Note
    expected: str | None = ""


class Spent(msgspec.Struct, frozen=True):
    """Tokens, and money in the currency of the models' prices."""

    tokens: int = 0
    cost: float = 0.0


NOTHING: Final = Spent()


class Board(Protocol):
    """What many routers know together. All methods raise `EffectFailed`."""

    async def post(self, posts: Sequence[Post]) -> Mapping[str, Note]:
        """Put up those notes whose place is as expected; gives all that are up then, by key.

        To post the same again changes nothing while it is up.
        """
        ...

    async def spend(self, day: int, who: str, own: Spent) -> Spent:
        """Say what one has spent in a day, all told; gives what all have. Saying it again is free.

        `day` counts from the Unix epoch, in UTC.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and files; idempotent."""
        ...


def takes_place(post: Post, held: str) -> bool:
    """Say whether a note goes up where the one marked `held` is."""
    return held != post.note.mark and post.expected in (None, held)


def total(spent: Sequence[Spent]) -> Spent:
    """Add up."""
    return Spent(sum(one.tokens for one in spent), sum(one.cost for one in spent))
