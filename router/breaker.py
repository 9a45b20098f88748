"""A circuit breaker: who has failed too often is spared, probed, and tried again. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from router.sections import BreakerRules

State = Literal["closed", "open", "probing"]
Result = Literal["well", "failed", "untold"]
"""How a try ended; `untold` is the world's fault or the client's leaving, and says nothing."""

_SLOTS = 10


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave to try; its result counts only in the era it was given in."""

    era: int


class Breaker:
    """Closed, open or probing; every `now` is in seconds of one clock that never goes back.

    Closed, it opens when of the tries in the window enough have failed. Open, it gives no leave
    for a while; then to a few probes: all well, and it closes, one failed, and it opens again.
    Where routers share what they know, only the one with the claim probes: `wished` is whether
    there was somebody who could have, `told` whether it was opened by another router's news.
    """

    def __init__(self, rules: BreakerRules) -> None:
        self.rules = rules
        self.era = 0
        self.running = 0
        self.well = 0
        self.wished = False
        self.told = False
        self._leave = Leave(0)
        self._window = _Window(rules.window_seconds)
        self._until: float | None = None
        self._claimed = -math.inf
        self._probing = False
        self._probed = 0.0

    @property
    def closed(self) -> bool:
        """Whether everybody is given leave."""
        return self._until is None

    def state(self, now: float) -> State:
        """Tell the state; an open one whose time is over waits for its first probe."""
        if self._until is None:
            return "closed"
        return "probing" if self.wait(now) == 0 else "open"

    def wait(self, now: float) -> float:
        """Tell for how many seconds there will be no leave at all."""
        if self._until is None or self._probing:
            return 0.0
        return max(self._until - now, 0.0)

    def ask(self, now: float, *, alone: bool = True) -> Leave | None:
        """Give leave to try; None when the stack is to be spared.

        `alone`, it asks nobody before it probes.
        """
        if self._until is None:
            return self._leave
        if self.wait(now) > 0:
            return None
        if not alone and not self.claimed(now):
            self.wished = True
            return None
        return self._probe(now)

    def tell(self, leave: Leave, result: Result, now: float) -> State | None:
        """Take the result of a try; gives the new state if it has changed it."""
        if leave.era != self.era:
            return None
        if self._until is not None:
            return self._tell_probe(result, now)
        if result == "untold":
            return None
        self._window.add(now, failed=result == "failed")
        return self._open(now) if result == "failed" and self._too_many() else None

    def reset(self) -> None:
        """Close it and forget everything, results still to come included."""
        self._until = None
        self.wished = self.told = False
        self._window.clear()
        self._next_era()

    def hear_open(self, until: float, well: int) -> None:
        """Another router spares the stack, or probes it, until then; so many probes went well."""
        self.told = self.told or self.closed
        self._until = until
        self._next_era()
        self.well = min(well, self.rules.probes - 1)  # the other's rules may be older

    def claimed(self, now: float) -> bool:
        """Whether this router, and no other, probes."""
        return now < self._claimed

    def claim(self, until: float) -> None:
        """Until then this router, and no other, probes."""
        self._claimed = until

    def _probe(self, now: float) -> Leave | None:
        self._probing = True
        if self.running and now - self._probed >= self.rules.open_seconds:
            self.running = 0  # a stream without end must not keep others from probing
        if self.running + self.well >= self.rules.probes:
            return None
        self.wished = False
        self.running += 1
        self._probed = now
        return self._leave

    def _tell_probe(self, result: Result, now: float) -> State | None:
        self.running = max(self.running - 1, 0)
        if result == "failed":
            return self._open(now)
        self.well += result == "well"
        if self.well < self.rules.probes:
            return None
        self.reset()
        return "closed"

    def _too_many(self) -> bool:
        tries, failed = self._window.totals()
        rules = self.rules
        return tries >= rules.least_requests and failed >= rules.failure_ratio * tries

    def _open(self, now: float) -> State:
        self._until = now + self.rules.open_seconds
        self.told = False
        self._next_era()
        return "open"

    def _next_era(self) -> None:
        self.era += 1
        self._leave = Leave(self.era)
        self._probing = False
        self._claimed = -math.inf
        self.running = self.well = 0


class _Window:
    """Tries and failures of the last seconds, in tenths of them: [slot, tries, failed]."""

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _SLOTS
        self._slots: deque[list[int]] = deque()

    def add(self, now: float, *, failed: bool) -> None:
        at = int(now / self._width)
        slots = self._slots
        if not slots or slots[-1][0] != at:
            slots.append([at, 0, 0])
            while slots[0][0] <= at - _SLOTS:
                slots.popleft()
        slots[-1][1] += 1
        slots[-1][2] += failed

    def totals(self) -> tuple[int, int]:
        return sum(slot[1] for slot in self._slots), sum(slot[2] for slot in self._slots)

    def clear(self) -> None:
        self._slots.clear()
