"""A breaker: a stack that fails too often is left alone for a while."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from cutover.errors import Completed, Failed, Outcome, Pause, Refusal


class BreakerSettings(msgspec.Struct, frozen=True):
    """When a breaker opens: at a share of failures among enough runs of the last seconds.

    It stays open for `rest_seconds`, and then lets one run try; another one when that says nothing.
    """

    failures: float
    runs: int
    window_seconds: float
    rest_seconds: float


State = Literal["closed", "open", "half_open"]


@dataclass(slots=True, eq=False)
class Breaker:
    """The breaker of one flow and stack, in this process."""

    settings: BreakerSettings
    _ended: deque[tuple[float, bool]] = field(default_factory=deque)
    """When runs ended, in the loop's time, and whether the stack was to blame."""
    _rests_until: float | None = None
    _tried: bool = False
    """Whether a run tries; it rests from its start, so that one that never ends locks nothing."""

    @property
    def state(self) -> State:
        """Whether runs begin: all of them, none, or the one that tries."""
        if self._rests_until is None:
            return "closed"
        return "open" if asyncio.get_running_loop().time() < self._rests_until else "half_open"

    def allows(self) -> bool:
        """Whether a run may begin; where only one may try, it is this one."""
        state = self.state
        if state == "half_open":
            self._rest()
            self._tried = True
        return state != "open"

    def record(self, outcome: Outcome | None) -> None:
        """Note how a run ended; while one tries, the next end decides.

        Failures of the world and of the configuration, and clients that left, say nothing of it.
        """
        now, failed = asyncio.get_running_loop().time(), _failed(outcome)
        if self._rests_until is not None:
            if not self._tried:
                return  # it began before the breaker opened
            self._tried = False
            if failed:
                self._rest()
            else:
                self._rests_until = now if failed is None else None
            return
        while self._ended and self._ended[0][0] <= now - self.settings.window_seconds:
            self._ended.popleft()
        if failed is None:
            return
        self._ended.append((now, failed))
        if not failed or len(self._ended) < self.settings.runs:
            return
        failures = sum(one for _, one in self._ended)
        if failures >= self.settings.failures * len(self._ended):
            self._rest()
            self._ended.clear()

    def _rest(self) -> None:
        self._rests_until = asyncio.get_running_loop().time() + self.settings.rest_seconds


def _failed(outcome: Outcome | None) -> bool | None:
    match outcome:
        case Failed(blame="stack"):
            return True
        case Completed() | Refusal() | Pause():
            return False
        case _:
            return None
