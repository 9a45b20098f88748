"""The breakers of a router: one per flow and stack, and who is tried first because of them."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import msgspec

from router.breaker import Breaker
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.breaker import Leave, Result, State
    from router.driving import Ending
    from router.flow_settings import FlowSettings
    from router.rollout import Stack as StackName
    from router.sections import BreakerRules
    from router.stacks import Stack

log = logging.getLogger(__name__)


class Trial:
    """One try of a stack by somebody who is served; its first result counts."""

    def __init__(self, name: str, breaker: Breaker, leave: Leave, now: Callable[[], float]) -> None:
        self._name = name
        self._breaker = breaker
        self._leave: Leave | None = leave
        self._now = now

    def ended(self, ending: Ending | None) -> None:
        """Say how it ended; only the stack's own failures count against it."""
        leave, self._leave = self._leave, None
        if leave is None:
            return
        state = self._breaker.tell(leave, result_of(ending), self._now())
        if state is not None:
            log.warning("the breaker of %s is %s", self._name, state)


class Choice(msgspec.Struct, frozen=True):
    """Who is tried first and who may stand in.

    `instead` is `first` where it serves in place of the assigned one, which its breaker spares.
    """

    first: Stack
    fallback: Stack | None
    trial: Trial | None
    instead: Stack | None = None


class Breakers:
    """Made as they are needed; other rules begin with new ones."""

    def __init__(self, rules: Callable[[], BreakerRules], monotonic: Callable[[], float]) -> None:
        self._rules = rules
        self._monotonic = monotonic
        self._all: dict[tuple[str, StackName], Breaker] = {}

    def choose(self, name: str, flow: FlowSettings, assigned: Stack, other: Stack | None) -> Choice:
        """Say who is tried first; raises `Problem` 503 where nobody may be."""
        if not self._rules().enabled:
            return Choice(assigned, other, None)
        trial = self._try(name, assigned)
        if trial is not None:
            return Choice(assigned, other, trial)
        stand_in = None if other is None else self._try(name, other)
        if other is not None and stand_in is not None:
            return Choice(other, None, stand_in, instead=other)
        # Legacy is what was there before: the harness is no reason to refuse what it might serve.
        if flow.when_open == "refuse" and assigned.name == "graph":
            seconds = self.of(name, assigned.name).wait(self._monotonic())
            why = "this service fails too often right now"
            raise Problem(503, "breaker_open", why, retry_after=max(math.ceil(seconds), 1))
        return Choice(assigned, other, None)

    def of(self, flow: str, stack: StackName) -> Breaker:
        """Give the breaker of a stack's flow."""
        rules = self._rules()
        breaker = self._all.get((flow, stack))
        if breaker is None or (breaker.rules is not rules and breaker.rules != rules):
            breaker = self._all[flow, stack] = Breaker(rules)
        return breaker

    def reset(self, flow: str, stack: StackName) -> State:
        """Close a breaker by hand; gives the state it was in."""
        breaker = self.of(flow, stack)
        before = breaker.state(self._monotonic())
        breaker.reset()
        return before

    def states(self) -> Iterator[tuple[str, StackName, State]]:
        """Tell the state of every breaker there is."""
        now = self._monotonic()
        for flow, stack in sorted(self._all):
            yield flow, stack, self.of(flow, stack).state(now)

    def _try(self, flow: str, stack: Stack) -> Trial | None:
        breaker = self.of(flow, stack.name)
        leave = breaker.ask(self._monotonic())
        if leave is None:
            return None
        return Trial(f"{flow} on {stack.name}", breaker, leave, self._monotonic)


def result_of(ending: Ending | None) -> Result:
    """Say what a run's end tells of its stack."""
    if ending is None or ending.outcome == "cancelled" or ending.blame == "world":
        return "untold"
    return "failed" if ending.blame == "stack" else "well"
