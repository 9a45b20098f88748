"""Stickiness: a conversation stays on the stack its first turn was assigned to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from effects.stores import Pin, PinStore
from router.context import Assignment
from router.routing.lookup import BoundedLookup
from router.stack import StackName

MOST = 50_000
"""How many conversations are remembered in front of the store."""
FRESH_SECONDS = 300.0
"""How long they are, at most: then the store is read again, which also renews the pin there."""


class Pins:
    """Pins in a store, the latest of them remembered here; pins never change while they last."""

    def __init__(
        self,
        store: PinStore,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        *,
        most: int = MOST,
    ) -> None:
        self.lookup = BoundedLookup(
            "pins", "conversations are assigned by the hash alone", monotonic
        )
        self._store = store
        self._monotonic = monotonic
        self._wall = wall
        self._most = most
        self._known: OrderedDict[tuple[str, str], tuple[StackName, float]] = OrderedDict()

    @property
    def size(self) -> int:
        """How many conversations are remembered."""
        return len(self._known)

    async def settle(
        self, flow: str, conversation: str, found: Assignment, version: str, seconds: float
    ) -> Assignment:
        """Return the assignment of a turn: its conversation's pin, or `found` on its first turn.

        A pin is kept for so many seconds after its last turn. Where the store does not answer,
        `found` holds for this turn. Never raises.
        """
        known = self._known.get((flow, conversation))
        if known is not None and known[1] > self._monotonic():
            self._known.move_to_end((flow, conversation))
            return Assignment(known[0], found.bucket, "pinned")
        own = Pin(found.stack, version, int(self._wall() * 1_000_000))
        held = await self.lookup.call(
            lambda: self._store.hold(flow, conversation, own, seconds),
            lambda pin: self._remember(flow, conversation, pin, seconds),
        )
        if held is None or held == own:
            return found
        return Assignment(held.stack, found.bucket, "pinned")

    async def aclose(self) -> None:
        """Cancel all lookups; the store is closed where it was opened."""
        await self.lookup.aclose()

    def _remember(self, flow: str, conversation: str, pin: Pin, seconds: float) -> None:
        """Remember a pin; forget those at the front that are no longer fresh."""
        known, now = self._known, self._monotonic()
        known[flow, conversation] = (pin.stack, now + min(FRESH_SECONDS, seconds / 2))
        known.move_to_end((flow, conversation))
        while len(known) > self._most or next(iter(known.values()))[1] < now:
            known.popitem(last=False)
