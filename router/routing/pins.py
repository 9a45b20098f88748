"""Stickiness: a conversation stays on the stack its first turn was assigned to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from contract.errors import EffectFailed
from effects.stores import Pin, PinCount, PinStore
from router.routing.lookup import BoundedLookup
from router.stack import StackName

MOST = 50_000
"""How many conversations are remembered in front of the store."""
FRESH_SECONDS = 300.0
"""How long they are, at most: then the store is read again, which also renews the pin there."""


class HeldStack(NamedTuple):
    """The stack that a conversation is pinned to; `new`: by this very turn, its first."""

    stack: StackName
    new: bool


class Pins:
    """Pins in a store, the latest of them remembered here.

    A pin does not change until it is released: `release` does that, and `follow`, called
    periodically, learns of releases by other routers and writes moves that the store has missed.
    Only that of a conversation which one stack stores moves with it. `counts` is what `count`
    returned last.
    """

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
        self.counts: Mapping[str, PinCount] = {}
        self._known: OrderedDict[tuple[str, str], tuple[StackName, float]] = OrderedDict()
        self._unsaved: OrderedDict[tuple[str, str], tuple[Pin, float]] = OrderedDict()
        self._releases: Mapping[str, str] = {}

    @property
    def size(self) -> int:
        """How many conversations are remembered."""
        return len(self._known)

    async def hold(
        self, flow: str, conversation: str, stack: StackName, version: str, seconds: float
    ) -> HeldStack | None:
        """Return the stack of a conversation, pinned to `stack` if it has no pin yet.

        The pin is kept for so many seconds after the conversation's last turn. None where the
        store does not answer. Never raises.
        """
        key = flow, conversation
        known = self._known.get(key)
        if known is not None and known[1] > self._monotonic():
            self._known.move_to_end(key)
            return HeldStack(known[0], new=False)
        if (unsaved := self._unsaved.get(key)) is not None:
            return HeldStack(unsaved[0].stack, new=False)
        own, release = self._pin(stack, version), self.release_of(flow)

        def remember(pin: Pin) -> None:
            # A late answer may be older than a release, or a move.
            if release == self.release_of(flow) and self._known.get(key) is known:
                self._remember(key, seconds, pin)

        held = await self.lookup.call(
            lambda: self._store.hold(flow, conversation, own, seconds), remember
        )
        return None if held is None else HeldStack(held.stack, new=held == own)

    def move(
        self, flow: str, conversation: str, stack: StackName, version: str, seconds: float
    ) -> None:
        """Pin a conversation to another stack: here at once, in the store soon. Never raises.

        Where the store does not answer, `follow` writes it later.
        """
        key, pin = (flow, conversation), self._pin(stack, version)
        self._remember(key, seconds, pin)
        self._unsaved[key] = pin, seconds
        if len(self._unsaved) > self._most:
            self._unsaved.popitem(last=False)
        if self.lookup.fault is None:
            self.lookup.start(partial(self._save, key, pin, seconds))

    def release_of(self, flow: str) -> str | None:
        """Return the mark of a flow's last release, as far as it is known here."""
        return self._releases.get(flow)

    async def count(self) -> Mapping[str, PinCount]:
        """Count the pins in the store by flow; raises `EffectFailed`."""
        self.counts = await self._store.count()
        return self.counts

    async def release(self, flow: str, stack: StackName | None = None) -> PinCount:
        """Release a flow's conversations, all or those pinned to one stack.

        Returns how many were pinned. From their next turn here they are assigned anew, and by
        other routers once those have called `follow`. Raises `EffectFailed`; then repeat it.
        """
        released = await self._store.release(flow, stack)
        self._forget(await self._store.released())
        with suppress(EffectFailed):  # they are released all the same
            await self.count()
        return released

    async def follow(self) -> None:
        """Forget what other routers have released since the last call, and count anew if they have.

        Then write the moves that the store has missed. While it does not answer, what is remembered
        holds; it is probed here, since requests of remembered conversations do not.
        """
        with suppress(EffectFailed):
            if self.lookup.fault is None:
                releases = await self._store.released()
            elif (answer := await self.lookup.call(self._store.released)) is not None:
                releases = answer
            else:
                return
            if self._forget(releases):
                await self.count()
            for key, (pin, seconds) in tuple(self._unsaved.items()):
                await self._save(key, pin, seconds)

    async def _save(self, key: tuple[str, str], pin: Pin, seconds: float) -> None:
        """Write a move into the store, unless a later one or a release has replaced it."""
        if self._unsaved.get(key) == (pin, seconds):
            await self._store.move(*key, pin, seconds)
            if self._unsaved.get(key) == (pin, seconds):
                del self._unsaved[key]

    def _forget(self, releases: Mapping[str, str]) -> bool:
        """Forget the conversations of flows whose last release is another one; False for none."""
        before, self._releases = self._releases, releases
        changed = {flow for flow, mark in releases.items() if before.get(flow) != mark}
        if changed:
            others = ((key, value) for key, value in self._known.items() if key[0] not in changed)
            self._known = OrderedDict(others)
            unsaved = (each for each in self._unsaved.items() if each[0][0] not in changed)
            self._unsaved = OrderedDict(unsaved)
        return bool(changed)

    async def aclose(self) -> None:
        """Cancel all lookups; the store is closed where it was opened."""
        await self.lookup.aclose()

    def _pin(self, stack: StackName, version: str) -> Pin:
        return Pin(stack, version, int(self._wall() * 1_000_000))

    def _remember(self, key: tuple[str, str], seconds: float, pin: Pin) -> None:
        """Remember a pin; forget those at the front that are no longer fresh."""
        known, now = self._known, self._monotonic()
        known[key] = (pin.stack, now + min(FRESH_SECONDS, seconds / 2))
        known.move_to_end(key)
        while len(known) > self._most or next(iter(known.values()))[1] < now:
            known.popitem(last=False)
