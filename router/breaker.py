"""A circuit breaker: who has failed too often is spared, probed, and tried again. Pure."""

from __future__ import annotations

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
    """

    def __init__(self, rules: BreakerRules) -> None:
        self.rules = rules
        self._era = 0
        self._leave = Leave(0)
        self._window = _Window(rules.window_seconds)
        self._opened: float | None = None
        self._probing = False
        self._running = 0
        self._well = 0
        self._probed = 0.0

    def state(self, now: float) -> State:
        """Tell the state; an open one whose time is over waits for its first probe."""
        if self._opened is None:
            return "closed"
        return "probing" if self.wait(now) == 0 else "open"

    def wait(self, now: float) -> float:
        """Tell for how many seconds there will be no leave at all."""
        if self._opened is None or self._probing:
            return 0.0
        return max(self._opened + self.rules.open_seconds - now, 0.0)

    def ask(self, now: float) -> Leave | None:
        """Give leave to try; None when the stack is to be spared."""
        if self._opened is None:
            return self._leave
        if self.wait(now) > 0:
            return None
        self._probing = True
        if self._running and now - self._probed >= self.rules.open_seconds:
            self._running = 0  # a stream without end must not keep others from probing
        if self._running + self._well >= self.rules.probes:
            return None
        self._running += 1
        self._probed = now
        return self._leave

    def tell(self, leave: Leave, result: Result, now: float) -> State | None:
        """Take the result of a try; gives the new state if it has changed it."""
        if leave.era != self._era:
            return None
        if self._opened is not None:
            return self._tell_probe(result, now)
        if result == "untold":
            return None
        self._window.add(now, failed=result == "failed")
        return self._open(now) if result == "failed" and self._too_many() else None

    def reset(self) -> None:
        """Close it and forget everything, results still to come included."""
        self._opened = None
        self._window.clear()
        self._next_era()

    def _tell_probe(self, result: Result, now: float) -> State | None:
        self._running = max(self._running - 1, 0)
        if result == "failed":
            return self._open(now)
        self._well += result == "well"
        if self._well < self.rules.probes:
            return None
        self.reset()
        return "closed"

    def _too_many(self) -> bool:
        tries, failed = self._window.totals()
        rules = self.rules
        return tries >= rules.least_requests and failed >= rules.failure_ratio * tries

    def _open(self, now: float) -> State:
        self._opened = now
        self._next_era()
        return "open"

    def _next_era(self) -> None:
        self._era += 1
        self._leave = Leave(self._era)
        self._probing = False
        self._running = self._well = 0


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
