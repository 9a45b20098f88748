"""Circuit breaker: stop calling what fails, probe it after a rest, and close once it works.

One state machine serves the stacks, providers, stores and locks; what differs is the policy. It is
pure: every `now` is in seconds of one clock that never goes back. Around it are dependencies: those
that the next call probes, and servers that are probed in the background.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Final, Literal

State = Literal["closed", "open", "probing"]
Result = Literal["success", "failure", "ignored"]
"""How a permitted call ended; `ignored` says nothing of the callee: the client left, say."""

_SLOTS: Final = 10

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Open when the share `ratio` of at least `calls` calls failed within `window` seconds.

    After `rest` seconds up to `probes` calls are let through: it closes when that many succeed
    and rests again when one fails.
    """

    window: float = 30.0
    calls: int = 10
    ratio: float = 0.5
    rest: float = 10.0
    probes: int = 1


def after_each_failure(rest: float) -> BreakerPolicy:
    """Return the policy: after a failure skip calls for `rest` seconds, then let one through."""
    return BreakerPolicy(calls=1, ratio=0.0, rest=rest)


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission to make one call; its result counts only in the era it was given in.

    An era ends when the breaker opens, closes or is reset.
    """

    era: int


class CircuitBreaker:
    """Closed, open or probing.

    Calls under way when the breaker opens no longer count. A probe that has no result after
    `rest` seconds does not keep others from probing.
    """

    __slots__ = (
        "_permit",
        "_policy",
        "_probed",
        "_probing",
        "_until",
        "_window",
        "era",
        "refused",
        "running",
        "successes",
    )

    def __init__(self, policy: BreakerPolicy) -> None:
        self.era = 0
        self.refused = 0  # calls, since the start
        self.running = 0  # probes
        self.successes = 0  # of probes, in this era
        self._policy = policy
        self._permit = Permit(0)
        self._window = SlidingShare(policy.window)
        self._until: float | None = None
        self._probing = False
        self._probed = 0.0

    @property
    def policy(self) -> BreakerPolicy:
        """The policy in force."""
        return self._policy

    @policy.setter
    def policy(self, policy: BreakerPolicy) -> None:
        if policy.window != self._policy.window:
            self._window = SlidingShare(policy.window)
        self._policy = policy

    @property
    def closed(self) -> bool:
        """Whether every call is permitted."""
        return self._until is None

    def state(self, now: float) -> State:
        """Return the state; an open breaker whose rest is over waits for its first probe."""
        if self._until is None:
            return "closed"
        return "probing" if self.wait(now) == 0 else "open"

    def wait(self, now: float) -> float:
        """Return the seconds for which no call is permitted at all."""
        if self._until is None or self._probing:
            return 0.0
        return max(self._until - now, 0.0)

    def totals(self, now: float) -> tuple[int, int]:
        """Return the calls and the failures in the window."""
        return self._window.totals(now)

    def permit(self, now: float, *, probe: bool = True) -> Permit | None:
        """Permit a call, or refuse it; without `probe` only while closed.

        Report the result with `record`.
        """
        if self._until is None:
            return self._permit
        if probe and self.wait(now) == 0 and self._start_probe(now):
            return self._permit
        self.refused += 1
        return None

    def record(self, permit: Permit | None, result: Result, now: float) -> State | None:
        """Record the result of a call; returns the new state if it changed.

        Without a permit the result was merely observed: a success closes the breaker, a failure
        makes it rest again.
        """
        if (permit is not None and permit.era != self.era) or (
            permit is None and result == "ignored"
        ):
            return None
        if self._until is None:
            if result == "ignored":
                return None
            self._window.add(now, marked=result == "failure")
            return self._open(now) if result == "failure" and self._failed_enough(now) else None
        self.running -= permit is not None and self.running > 0
        if result == "failure":
            return self._open(now)
        self.successes += result == "success"
        if permit is not None and self.successes < self._policy.probes:
            return None
        self.reset()
        return "closed"

    def reset(self) -> None:
        """Close and forget everything, results still to come included."""
        self._until = None
        self._window.clear()
        self._begin_era()

    def open_until(self, until: float, successes: int = 0) -> None:
        """Open as decided elsewhere, with as many probes already successful."""
        self._until = until
        self._begin_era()
        self.successes = min(successes, self._policy.probes - 1)

    def _start_probe(self, now: float) -> bool:
        self._probing = True
        if self.running and now - self._probed >= self._policy.rest:
            self.running = 0
        if self.running + self.successes >= self._policy.probes:
            return False
        self.running += 1
        self._probed = now
        return True

    def _failed_enough(self, now: float) -> bool:
        calls, failures = self._window.totals(now)
        return calls >= self._policy.calls and failures >= self._policy.ratio * calls

    def _open(self, now: float) -> State:
        self._until = now + self._policy.rest
        self._begin_era()
        return "open"

    def _begin_era(self) -> None:
        self.era += 1
        self._permit = Permit(self.era)
        self._probing = False
        self.running = self.successes = 0


class SlidingShare:
    """Events of the last seconds, and how many of them are marked; `now` in seconds.

    Counted in tenths of the window: [slot, events, marked ones].
    """

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _SLOTS
        self._slots: deque[list[int]] = deque()

    def add(self, now: float, *, marked: bool) -> None:
        """Count an event."""
        slots, slot = self._slots, int(now / self._width)
        if not slots or slots[-1][0] != slot:
            slots.append([slot, 0, 0])
            self._drop_before(slot)
        slots[-1][1] += 1
        slots[-1][2] += marked

    def totals(self, now: float) -> tuple[int, int]:
        """Return the events in the window, and the marked ones."""
        self._drop_before(int(now / self._width))
        return sum(slot[1] for slot in self._slots), sum(slot[2] for slot in self._slots)

    def clear(self) -> None:
        """Forget all events."""
        self._slots.clear()

    def _drop_before(self, slot: int) -> None:
        while self._slots and self._slots[0][0] <= slot - _SLOTS:
            self._slots.popleft()


class Dependency:
    """A dependency that calls skip for a moment after a failure; logs when its state changes.

    `consequence` says what holds while it does not answer; `fault` is None while it answers.
    """

    def __init__(
        self, name: str, consequence: str, monotonic: Callable[[], float], *, rest: float = 1.0
    ) -> None:
        self.name = name
        self.consequence = consequence
        self.fault: str | None = None
        self._monotonic = monotonic
        self._breaker = CircuitBreaker(after_each_failure(rest))

    def permitted(self) -> bool:
        """Whether to call it now: after a failure only once per rest, until it answers."""
        return self.fault is None or self._breaker.permit(self._monotonic()) is not None

    def failed(self, detail: str) -> None:
        """Record that it did not answer."""
        if self.fault is None:
            log.warning("%s: %s; %s", self.name, detail, self.consequence)
        self.fault = f"{detail}; {self.consequence}"
        self._breaker.record(None, "failure", self._monotonic())

    def answered(self) -> None:
        """Record an answer."""
        if self.fault is not None:
            log.info("%s: answers again", self.name)
            self.fault = None
            self._breaker.reset()


CONSEQUENCE: Final = "calls fail at once until it answers"
PROBE_SECONDS: Final = 2.0
"""Between two probes."""


class OutageGuard:
    """Whether a server may be called; all of its callers report how their calls ended.

    The outage begins with a call that met silence while no other was answered for `quiet` seconds:
    a server that is merely busy answers others. Then `probe` is tried in the background, so that no
    request pays for finding out. Before its first answer a server is never skipped.
    """

    def __init__(
        self,
        name: str,
        probe: Callable[[], Awaitable[object]],
        *,
        quiet: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._probe = probe
        self._quiet = quiet
        self._monotonic = monotonic
        self._server = Dependency(name, CONSEQUENCE, monotonic)
        self._last_answer = math.inf
        self._probing: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def fault(self) -> str | None:
        """Why it is not called now, and what holds meanwhile; None while it is called."""
        return self._server.fault

    def answered(self) -> None:
        """Record an answer, be it that a call is wrong."""
        self._last_answer = self._monotonic()
        self._server.answered()

    def silent(self, detail: str) -> None:
        """Record a call that waited in vain, or found no server."""
        if self._closed or self._monotonic() - self._last_answer < self._quiet:
            return
        self._server.failed(detail)
        if self._probing is None or self._probing.done():
            # An empty context: the task outlives the request that happened to notice.
            self._probing = asyncio.get_running_loop().create_task(
                self._until_answered(), name=f"probe {self._name}", context=Context()
            )

    async def aclose(self) -> None:
        """Stop probing; idempotent."""
        self._closed = True
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    async def _until_answered(self) -> None:
        # A pool of connections may swallow the cancellation that meets its answer.
        while self._server.fault is not None and not self._closed:
            with suppress(Exception):  # whatever it is, the next probe is due
                await self._probe()
                self.answered()
                return
            await asyncio.sleep(PROBE_SECONDS)
