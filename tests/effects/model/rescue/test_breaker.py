"""Circuit breakers: when they open, whom they let through, when they close."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effects.model import BreakerPolicy, ModelEntry, Provider
from effects.model.rescue import Breakers
from effects.model.rescue.breaker import Admission, Breaker

POLICY = BreakerPolicy(window=30, calls=4, ratio=0.5, rest=10)
ENTRY = ModelEntry("m", Provider("here", "http://127.0.0.1:1/v1"), "loop-1")


def told(breaker: Breaker, now: float, ends: str) -> None:
    """Let calls through, and let them end well (+) or badly (-)."""
    for end in ends:
        admission = breaker.admit(now)
        assert admission is not None
        admission.end(now, ok=end == "+")


def state(breaker: Breaker, now: float) -> str:
    """Return the state's name."""
    return breaker.state(("here", "loop-1"), now).state


def opened() -> Breaker:
    """Make a breaker that opened at 0."""
    breaker = Breaker(POLICY)
    told(breaker, 0, "----")
    return breaker


def test_it_opens_on_a_ratio_of_enough_calls() -> None:
    """Three failures are too few to tell, two of four are enough."""
    breaker = Breaker(POLICY)
    told(breaker, 0, "++-")
    assert state(breaker, 0) == "closed"
    told(breaker, 0, "-")
    assert state(breaker, 0) == "open"
    assert breaker.admit(9.9) is None
    assert breaker.state(("here", "loop-1"), 4).rests == 6


def test_failures_of_long_ago_do_not_count() -> None:
    """Only those of the window."""
    breaker = Breaker(POLICY)
    told(breaker, 0, "---")
    told(breaker, 30, "-")
    assert state(breaker, 30) == "closed"
    assert breaker.state(("here", "loop-1"), 30).failures == 1


def test_one_probe_closes_it() -> None:
    """While that is under way nobody else is let through."""
    breaker = opened()
    probe = breaker.admit(10)
    assert probe is not None
    assert breaker.admit(10) is None
    assert state(breaker, 10) == "half_open"
    probe.end(11, ok=True)
    assert state(breaker, 11) == "closed"
    told(breaker, 11, "-")
    assert state(breaker, 11) == "closed", "what was before is forgotten"


def test_a_probe_that_fails_opens_it_again() -> None:
    """For another rest."""
    breaker = opened()
    probe = breaker.admit(10)
    assert probe is not None
    probe.end(12, ok=False)
    assert breaker.admit(21.9) is None
    assert breaker.admit(22) is not None


def test_a_probe_that_tells_nothing_is_followed_by_another() -> None:
    """Its caller left, or the request itself was wrong."""
    breaker = opened()
    probe = breaker.admit(10)
    assert probe is not None
    probe.end(10, ok=None)
    assert breaker.admit(10) is not None


def test_calls_from_before_it_opened_say_nothing_any_more() -> None:
    """Neither do they close it, nor prolong its rest."""
    breaker = Breaker(POLICY)
    early = [breaker.admit(0), breaker.admit(0)]
    told(breaker, 0, "----")
    for admission, ok in zip(early, (True, False), strict=True):
        assert admission is not None
        admission.end(5, ok=ok)
    assert state(breaker, 5) == "open"
    assert breaker.admit(10) is not None


def test_breakers_are_per_provider_and_model() -> None:
    """Two ids of one model share one; states are read and reset."""
    breakers = Breakers(POLICY)
    told(breakers.of(ENTRY), 0, "----")
    same = ModelEntry("other-id", ENTRY.provider, "loop-1")
    other = ModelEntry("m2", ENTRY.provider, "loop-2")
    assert breakers.of(same).admit(1) is None
    assert breakers.of(other).admit(1) is not None
    states = [(one.model, one.state, one.failures, one.refused) for one in breakers.states(1)]
    assert states == [("loop-1", "open", 4, 1), ("loop-2", "closed", 0, 0)]
    assert breakers.reset("elsewhere") == 0
    assert breakers.reset("here", "loop-1") == 1
    assert breakers.of(ENTRY).admit(1) is not None


def test_a_changed_policy_holds_for_those_there_are() -> None:
    """At once."""
    breakers = Breakers(POLICY)
    breaker = breakers.of(ENTRY)
    breakers.policy = BreakerPolicy(calls=1)
    told(breaker, 0, "-")
    assert state(breaker, 0) == "open"


class BreakerMachine(RuleBasedStateMachine):
    """Any order of calls, ends and pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.breaker = Breaker(POLICY)
        self.under_way: list[Admission] = []
        self.admitted_while_open = 0

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    @rule()
    def begin(self) -> None:
        """Begin a call, if that is allowed."""
        resting = self.breaker.rests(self.now) > 0
        admission = self.breaker.admit(self.now)
        assert not (resting and admission)
        if admission is not None:
            self.under_way.append(admission)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), ok=st.none() | st.booleans())
    def end(self, data: st.DataObject, ok: bool | None) -> None:  # noqa: FBT001 - drawn by name
        """End any call under way."""
        index = data.draw(st.integers(0, len(self.under_way) - 1))
        self.under_way.pop(index).end(self.now, ok=ok)

    @rule()
    def reset(self) -> None:
        """Close it by hand."""
        self.breaker.reset()
        assert self.breaker.admit(self.now) is not None

    @invariant()
    def the_books_balance(self) -> None:
        """Failures are some of the calls; a rest is never longer than the policy says."""
        told = self.breaker.state(("p", "m"), self.now)
        assert 0 <= told.failures <= told.calls
        assert 0 <= told.rests <= POLICY.rest

    @invariant()
    def it_never_stays_shut(self) -> None:
        """After a rest, with no probe under way, somebody is let through."""
        if not self.under_way:
            admission = self.breaker.admit(self.now + POLICY.rest)
            assert admission is not None
            admission.end(self.now, ok=None)


TestBreakerMachine = pytest.mark.untraced(BreakerMachine.TestCase)
