"""Pins inside this process: the default where one router serves, and the fake in tests."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from effects.pins.store import pin_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from effects.pins.store import Pin

MOST = 100_000


class MemoryPins:
    """Pins in a dictionary: at most `most`, those not asked for the longest go first."""

    def __init__(self, wall: Callable[[], float] = time.time, *, most: int = MOST) -> None:
        self._wall = wall
        self._most = most
        self._pins: OrderedDict[str, tuple[Pin, float]] = OrderedDict()

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation, `pin` where it has none; kept for so many seconds."""
        key, now = pin_key(flow, conversation), self._wall()
        kept, until = self._pins.pop(key, (pin, now))
        held = kept if until > now else pin
        self._pins[key] = (held, now + seconds)
        if len(self._pins) > self._most:
            self._pins.popitem(last=False)
        return held

    async def aclose(self) -> None:
        """Nothing is open."""
