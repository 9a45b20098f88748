"""A circuit breaker: who has failed too often is spared, probed, and tried again. Pure."""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import msgspec

from router.breaker_news import BreakerNews
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from effects.stores import BreakerNote, NoteUpdate
    from router.config import BreakerSettings, FlowSettings
    from router.serving.run import RunOutcome
    from router.stack import Stack, StackName


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

    def __init__(self, rules: BreakerSettings) -> None:
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


_STACKS: Mapping[str, StackName] = {"legacy": "legacy", "graph": "graph"}

log = logging.getLogger(__name__)


class Trial:
    """One try of a stack by somebody who is served; its first result counts."""

    def __init__(self, name: str, breaker: Breaker, leave: Leave, all_of_them: Breakers) -> None:
        self._name = name
        self._breaker = breaker
        self._leave: Leave | None = leave
        self._all = all_of_them

    def ended(self, ending: RunOutcome | None) -> None:
        """Say how it ended; only the stack's own failures count against it."""
        leave, self._leave = self._leave, None
        if leave is None:
            return
        state = self._breaker.tell(leave, result_of(ending), self._all.monotonic())
        if state is not None:
            log.warning("the breaker of %s is %s", self._name, state)
            self._all.on_news()


class Choice(msgspec.Struct, frozen=True):
    """Who is tried first and who may stand in.

    `instead` is `first` where it serves in place of the assigned one, which its breaker spares.
    """

    first: Stack
    fallback: Stack | None
    trial: Trial | None
    instead: Stack | None = None


class Breakers:
    """Made as they are needed; other rules begin with new ones.

    `alone`, as they are until a board answers, none of them asks before it probes; `on_news` is
    called when one has something to tell.
    """

    def __init__(
        self, rules: Callable[[], BreakerSettings], monotonic: Callable[[], float]
    ) -> None:
        self.alone = True
        self.on_news: Callable[[], None] = _nobody
        self.monotonic = monotonic
        self._me = uuid4().hex
        self._rules = rules
        self._all: dict[tuple[str, StackName], Breaker] = {}
        self._news: dict[tuple[str, StackName], BreakerNews] = {}

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
            seconds = self.of(name, assigned.name).wait(self.monotonic())
            why = "this service fails too often right now"
            raise Problem(503, "breaker_open", why, retry_after=max(math.ceil(seconds), 1))
        return Choice(assigned, other, None)

    def of(self, flow: str, stack: StackName) -> Breaker:
        """Give the breaker of a stack's flow."""
        rules = self._rules()
        breaker = self._all.get((flow, stack))
        if breaker is None or (breaker.rules is not rules and breaker.rules != rules):
            breaker = self._all[flow, stack] = Breaker(rules)
            self._news_of(flow, stack).replaced()
        return breaker

    def reset(self, flow: str, stack: StackName) -> State:
        """Close a breaker by hand, here and wherever it is shared; gives the state it was in."""
        breaker = self.of(flow, stack)
        before = breaker.state(self.monotonic())
        breaker.reset()
        self._news_of(flow, stack).reset()
        self.on_news()
        return before

    def due(self) -> list[NoteUpdate]:
        """Give what other routers are to be told."""
        if not self._rules().enabled:
            return []
        now = self.monotonic()
        found = [self._news_of(*which).due(self.of(*which), now) for which in tuple(self._all)]
        return [post for post in found if post is not None]

    def hear(self, notes: Mapping[str, BreakerNote], flows: Collection[str], asked: float) -> None:
        """Take what other routers tell of these flows; `asked` is when they were asked."""
        if not self._rules().enabled:
            return
        for which in {*self._all, *(one for key in notes if (one := _which(key, flows)))}:
            breaker = self.of(*which)
            note = notes.get(_key(*which))
            if self._news_of(*which).hear(note, breaker, asked, self.monotonic()):
                log.warning("the breaker of %s on %s is open, as another router says", *which)

    def states(self) -> Iterator[tuple[str, StackName, State]]:
        """Tell the state of every breaker there is."""
        now = self.monotonic()
        for flow, stack in sorted(self._all):
            yield flow, stack, self.of(flow, stack).state(now)

    def _try(self, flow: str, stack: Stack) -> Trial | None:
        breaker = self.of(flow, stack.name)
        wished = breaker.wished
        leave = breaker.ask(self.monotonic(), alone=self.alone)
        if leave is not None:
            return Trial(f"{flow} on {stack.name}", breaker, leave, self)
        if breaker.wished and not wished:
            self.on_news()
        return None

    def _news_of(self, flow: str, stack: StackName) -> BreakerNews:
        news = self._news.get((flow, stack))
        if news is None:
            news = self._news[flow, stack] = BreakerNews(_key(flow, stack), self._me)
        return news


def result_of(ending: RunOutcome | None) -> Result:
    """Say what a run's end tells of its stack."""
    if ending is None or ending.outcome == "cancelled" or ending.blame == "world":
        return "untold"
    return "failed" if ending.blame == "stack" else "well"


def _key(flow: str, stack: StackName) -> str:
    """Name a breaker on the board."""
    return f"{stack}:{flow}"


def _which(key: str, flows: Collection[str]) -> tuple[str, StackName] | None:
    """Say which breaker a key names; None where it is no flow's of this router."""
    stack, _, flow = key.partition(":")
    name = _STACKS.get(stack)
    return (flow, name) if name is not None and flow in flows else None


def _nobody() -> None:
    """Tell nobody."""
