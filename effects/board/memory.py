"""A board inside this process: the fake in tests, for routers that share it as an object."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from effects.board.store import KEEP_SECONDS, Note, Post, Spent, takes_place, total

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class MemoryBoard:
    """Notes and sums in dictionaries; sums are of the last day alone."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._notes: dict[str, tuple[Note, float]] = {}
        self._day = 0
        self._spent: dict[str, Spent] = {}

    async def post(self, posts: Sequence[Post]) -> Mapping[str, Note]:
        """Put up those notes whose place is as expected; gives all that are up then."""
        return self.put(posts)

    def put(self, posts: Sequence[Post]) -> Mapping[str, Note]:
        """Do it at once."""
        now = self._wall()
        self._notes = {
            key: held for key, held in self._notes.items() if held[1] > now - KEEP_SECONDS
        }
        for post in posts:
            held = self._notes.get(post.key)
            if takes_place(post, held[0].mark if held else ""):
                self._notes[post.key] = (post.note, now + post.note.left)
        return {
            key: msgspec.structs.replace(note, left=max(until - now, 0.0))
            for key, (note, until) in self._notes.items()
        }

    async def spend(self, day: int, who: str, own: Spent) -> Spent:
        """Say what one has spent in a day, all told; gives what all have."""
        if day > self._day:
            self._day, self._spent = day, {}
        if day == self._day:
            self._spent[who] = own
        return total(list(self._spent.values()))

    async def aclose(self) -> None:
        """Nothing is open."""
