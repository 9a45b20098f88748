"""Breakers of several routers and a board that loses and delays: drawn, and step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from effects.circuit_breaker import Permit, Result
from effects.stores import MemorySharedState, NoteUpdate
from router.config.schema import BreakerSettings
from router.routing.breakers import LEAST_CLAIM_SECONDS, BreakerSync, StackBreaker
from tests.support.clocks import Clock

pytestmark = pytest.mark.untraced

RULES = BreakerSettings(
    failure_ratio=0.5, least_requests=2, window_seconds=10.0, open_seconds=6.0, probes=2
)

KEY = "graph:chat"
ROUTERS = st.integers(0, 2)


@dataclass
class One:
    """A router: a breaker, its news, and who is tried just now."""

    name: str
    clock: Clock
    board: MemorySharedState
    alone: bool = False
    told: int = 0
    leaves: list[Permit] = field(default_factory=list)
    probes: list[Permit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.news = BreakerSync(KEY, self.name, RULES)

    @property
    def breaker(self) -> StackBreaker:
        """Its breaker."""
        return self.news.breaker

    def ask(self) -> bool:
        """Ask for leave; returns whether there is."""
        leave = self.breaker.permit(self.clock.now, alone=self.alone)
        if leave is not None:
            (self.leaves if self.breaker.circuit.closed else self.probes).append(leave)
        return leave is not None

    def end(self, result: Result) -> None:
        """End what has been tried for the longest."""
        tried = self.probes or self.leaves
        if tried:
            self.breaker.record(tried.pop(0), result, self.clock.now)

    def due(self) -> list[NoteUpdate]:
        """Return what is to be told."""
        post = self.news.due(self.clock.now)
        return [post] if post else []

    def exchange(self) -> None:
        """Exchange news, and be answered."""
        asked, notes = self.clock.now, self.board.update_now(self.due())
        self.told += self.news.receive(notes.get(KEY), asked, self.clock.now)
        self.alone = False

    def lose(self) -> list[NoteUpdate]:
        """Have sent something and never be answered; returns what may still arrive."""
        sent = self.due()
        self.alone = True
        return sent


class Machine(RuleBasedStateMachine):
    """Three routers, one stack that is up or down, one board."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock(0.0)
        self.board = MemorySharedState(self.clock)
        self.all = [One(name, self.clock, self.board) for name in "abc"]
        self.down = False
        self.late: list[NoteUpdate] = []

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 6.0, 9.0]))
    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.clock.now += seconds

    @rule(down=st.booleans())
    def change(self, *, down: bool) -> None:
        """The stack breaks down, or recovers."""
        self.down = down

    @rule(which=ROUTERS, at_once=st.booleans())
    def ask(self, which: int, *, at_once: bool) -> None:
        """A request arrives; where the state is shared, no other router probes meanwhile."""
        one = self.all[which]
        if one.ask() and not one.breaker.circuit.closed and not one.alone:
            holders = [other for other in self.all if self.may_probe(other)]
            assert holders == [one]
        if at_once:
            self.end(which)

    @rule(which=ROUTERS)
    def end(self, which: int) -> None:
        """What was tried there ends, as the stack is."""
        self.all[which].end("failure" if self.down else "success")

    @rule(which=ROUTERS)
    def leave(self, which: int) -> None:
        """A client leaves, which says nothing."""
        self.all[which].end("ignored")

    @rule(which=ROUTERS)
    def exchange(self, which: int) -> None:
        """One looks at the board and is answered."""
        self.all[which].exchange()

    @rule(which=ROUTERS)
    def lose_answer(self, which: int) -> None:
        """What it tells arrives, its answer does not."""
        self.board.update_now(self.all[which].lose())

    @rule(which=ROUTERS)
    def lose_news(self, which: int) -> None:
        """Its report is under way, and may arrive late."""
        self.late += self.all[which].lose()

    @rule()
    def arrive(self) -> None:
        """What was late arrives, all of it."""
        self.board.update_now(self.late)
        self.late = []

    @rule()
    def forget(self) -> None:
        """The board comes back empty."""
        self.board = MemorySharedState(self.clock)
        for one in self.all:
            one.board = self.board
            one.alone = True

    @rule(which=ROUTERS)
    def reset(self, which: int) -> None:
        """It is closed by hand there: after one exchange each it is closed everywhere."""
        self.all[which].news.reset()
        self.gather(which)
        assert all(one.breaker.circuit.closed for one in self.all)

    @rule(which=ROUTERS)
    def open_all(self, which: int) -> None:
        """The stack is down, and all know once one has told and each has looked."""
        self.gather()
        one = self.all[which]
        if one.breaker.circuit.state(self.clock.now) != "closed":
            return
        one.leaves.clear()
        fail_until_open(one)
        self.gather(which)
        assert not any(other.breaker.circuit.closed for other in self.all)
        assert not any(other.ask() for other in self.all), "no router calls it any more"

    @rule(which=ROUTERS)
    def close_all(self, which: int) -> None:
        """It recovers: one router that is still called closes it everywhere."""
        self.down = False
        for one in self.all:
            one.leaves.clear()
            one.probes.clear()
            one.breaker.circuit.running = 0  # what was under way has ended
        for _ in range(60):
            self.gather()
            if all(one.breaker.circuit.closed for one in self.all):
                return
            self.all[which].ask()
            self.all[which].end("success")
            self.clock.now += 1.0
        raise AssertionError([one.breaker.circuit.state(self.clock.now) for one in self.all])

    def gather(self, first: int = 0) -> None:
        """Each exchanges its news, and then hears of what the later ones had."""
        order = [self.all[first], *(one for one in self.all if one is not self.all[first])]
        for one in order:
            one.exchange()

    def may_probe(self, one: One) -> bool:
        """Whether a claim of this one holds."""
        return not one.breaker.circuit.closed and one.breaker.claimed(self.clock.now)

    @invariant()
    def at_most_one_claim_holds(self) -> None:
        """Whatever was lost: that is what compare-and-set is for."""
        assert sum(self.may_probe(one) for one in self.all) <= 1


def fail_until_open(one: One) -> None:
    """Fail as often as it takes; what went well before counts against it."""
    while one.breaker.circuit.state(one.clock.now) == "closed":
        assert one.ask()
        one.end("failure")


TestMachine = pytest.mark.slow(Machine.TestCase)


def trio() -> tuple[Clock, list[One]]:
    """Return three routers that share a board."""
    clock = Clock(0.0)
    board = MemorySharedState(clock)
    return clock, [One(name, clock, board) for name in "abc"]


def fail(one: One, times: int = 2) -> None:
    """Fail so often."""
    for _ in range(times):
        assert one.ask()
        one.end("failure")


def opened(seconds: float = RULES.open_seconds) -> tuple[One, One]:
    """Return two routers that know, for so many seconds, of a breaker that one has opened."""
    clock, (a, b, _) = trio()
    fail(a)
    a.exchange()
    b.exchange()
    clock.now += seconds
    return a, b


def test_who_has_seen_no_failure_spares_it_too() -> None:
    """It says that it was told; its own failures are none."""
    _, (a, b, c) = trio()
    fail(a)
    for one in (a, b, c):
        one.exchange()
    assert [one.breaker.circuit.state(0.0) for one in (a, b, c)] == ["open"] * 3
    assert [one.breaker.reported for one in (a, b, c)] == [False, True, True]
    assert [one.told for one in (a, b, c)] == [0, 1, 1]
    assert not b.ask()


def test_one_probes_and_all_hear_how_it_went() -> None:
    """Who wishes to and is first; the others spare the stack until they hear that it is closed."""
    clock, (a, b, c) = trio()
    fail(a)
    for one in (a, b, c):
        one.exchange()
    clock.now += 6.0
    assert not any(one.ask() for one in (a, b, c)), "a claim comes first"
    for one in (b, a, c):
        one.exchange()
    assert [one.ask() for one in (a, b, c)] == [False, True, False]
    assert b.ask(), "two probes are due"
    for _ in range(2):
        b.end("success")
    assert b.breaker.circuit.closed
    for one in (b, a, c):
        one.exchange()
    assert all(one.breaker.circuit.closed for one in (a, b, c))


def test_probes_of_several_routers_add_up() -> None:
    """Where each is asked seldom, one well here and one there close it."""
    a, b = opened()
    for one in (a, b):
        one.ask()
        one.exchange()
    assert a.ask()
    a.end("success")
    a.exchange()
    b.exchange()
    a.clock.now += 6.0
    assert not b.ask()
    b.exchange()
    assert b.ask()
    b.end("success")
    assert b.breaker.circuit.closed


def test_a_failed_probe_is_told() -> None:
    """All wait as long as the first time."""
    a, b = opened()
    b.ask()
    b.exchange()
    assert b.ask()
    b.end("failure")
    b.exchange()
    a.exchange()
    assert (a.breaker.circuit.state(a.clock.now), a.breaker.circuit.wait(a.clock.now)) == (
        "open",
        6.0,
    )


def test_a_claim_goes_on_while_a_probe_runs_and_ends_with_its_router() -> None:
    """A long stream keeps its claim; a killed router's claim ends with its lease."""
    a, b = opened()
    a.ask()
    a.exchange()
    assert a.ask()
    for _ in range(10):
        a.clock.now += 3.0
        assert not b.ask()
        a.exchange()
        b.exchange()
    a.clock.now += max(RULES.open_seconds, LEAST_CLAIM_SECONDS)  # a was killed
    assert not b.ask()
    b.exchange()
    assert b.ask()


def test_without_the_board_each_is_for_itself() -> None:
    """It probes without a claim; back again, what became of it is told."""
    a, b = opened()
    a.lose()
    assert a.ask()
    a.end("success")
    assert a.ask()
    a.end("success")
    assert a.breaker.circuit.closed
    a.exchange()
    a.exchange()
    b.exchange()
    assert b.breaker.circuit.closed


def test_another_breaker_has_nothing_to_tell() -> None:
    """After an edit of the rules; nor does it take old news for new."""
    a, b = opened(0.0)
    b.news.replace(RULES)
    b.exchange()
    assert b.breaker.circuit.closed
    assert b.due() == []
    assert a.breaker.circuit.state(a.clock.now) == "open"


def test_who_still_wishes_takes_no_claim_that_holds() -> None:
    """It waits until the other one's is over."""
    a, b = opened()
    for one in (a, b, b):
        one.ask()
        one.exchange()
    assert (a.breaker.claimed(a.clock.now), b.breaker.claimed(a.clock.now)) == (True, False)
    assert b.due() == []


def test_what_happens_while_news_are_under_way_is_told_next() -> None:
    """It is closed by hand while its opening is on its way: the board hears of both."""
    clock, (a, _, _) = trio()
    fail(a)
    notes = a.board.update_now(a.due())
    a.breaker.reset()
    a.news.receive(notes.get(KEY), clock.now, clock.now)
    assert [post.note.phase for post in a.due()] == ["closed"]
