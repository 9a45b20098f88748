"""The breakers of a router: one per flow and stack, and who is tried first because of them."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from router.breaker import Breaker
from router.breaker_news import BreakerNews
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from effects.board import Note, Post
    from router.breaker import Leave, Result, State
    from router.driving import Ending
    from router.flow_settings import FlowSettings
    from router.rollout import Stack as StackName
    from router.sections import BreakerRules
    from router.stacks import Stack

_STACKS: Mapping[str, StackName] = {"legacy": "legacy", "graph": "graph"}

log = logging.getLogger(__name__)


class Trial:
    """One try of a stack by somebody who is served; its first result counts."""

    def __init__(self, name: str, breaker: Breaker, leave: Leave, all_of_them: Breakers) -> None:
        self._name = name
        self._breaker = breaker
        self._leave: Leave | None = leave
        self._all = all_of_them

    def ended(self, ending: Ending | None) -> None:
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

    def __init__(self, rules: Callable[[], BreakerRules], monotonic: Callable[[], float]) -> None:
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

    def due(self) -> list[Post]:
        """Give what other routers are to be told."""
        if not self._rules().enabled:
            return []
        now = self.monotonic()
        found = [self._news_of(*which).due(self.of(*which), now) for which in tuple(self._all)]
        return [post for post in found if post is not None]

    def hear(self, notes: Mapping[str, Note], flows: Collection[str], asked: float) -> None:
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


def result_of(ending: Ending | None) -> Result:
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
