"""The store that graphs are compiled with: the memory of the world that is open when they run."""

from __future__ import annotations

from collections.abc import Iterable

from langgraph.store.base import BaseStore, Op, Result

from effects.world import current


class CurrentStore(BaseStore):
    """Hands each operation on to the current world's memory: graphs are compiled on import.

    `wrap_graph` puts it on the tape, as it does with any graph's store.
    """

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order."""
        found: list[Result] = await current().memory.abatch(ops)
        return found

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in order, from a thread."""
        found: list[Result] = current().memory.batch(ops)
        return found
