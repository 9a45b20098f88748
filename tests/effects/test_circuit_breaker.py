"""The circuit breaker: drawn sequences against a plain model, and the usual walks."""

from __future__ import annotations

import logging

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from effects.circuit_breaker import (
    BreakerPolicy,
    CircuitBreaker,
    Dependency,
    Permit,
    Result,
    after_each_failure,
)

POLICY = BreakerPolicy(window=10.0, calls=4, ratio=0.5, rest=5.0, probes=2)
ONE_PROBE = BreakerPolicy(window=30, calls=4, ratio=0.5, rest=10)
RESULTS = st.sampled_from(["success", "failure", "failure", "ignored"])


class Model(RuleBasedStateMachine):
    """All results are stored with their times; what must follow is computed from the whole list."""

    permits = Bundle("permits")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.breaker = CircuitBreaker(POLICY)
        self.results: list[tuple[float, Result]] = []
        self.opened: float | None = None
        self.era = 0
        self.refused = 0
        self.running = 0
        self.successes = 0
        self.probed = 0.0

    @initialize(opened=st.booleans())
    def start(self, *, opened: bool) -> None:
        """Begin closed, or just opened."""
        for _ in range(4 if opened else 0):
            self.observe("failure")

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.75, 5.0, 5.0, 10.0]) | st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    @rule(target=permits, probe=st.booleans())
    def permit(self, *, probe: bool) -> tuple[int, Permit | None]:
        """Closed permits every call, open none, probing a few, and none without `probe`.

        A probe that has no result after a rest does not keep others from probing.
        """
        permit = self.breaker.permit(self.now, probe=probe)
        self.refused += permit is None
        if self.opened is None:
            assert permit is not None
        elif not probe or self.now < self.opened + POLICY.rest:
            assert permit is None
        else:
            if self.now - self.probed >= POLICY.rest:
                self.running = 0
            assert (permit is not None) == (self.running + self.successes < POLICY.probes)
            if permit is not None:
                self.running, self.probed = self.running + 1, self.now
        return self.era, permit

    @rule(given=consumes(permits), result=RESULTS)
    def record(self, given: tuple[int, Permit | None], result: Result) -> None:
        """A result of an earlier era says nothing."""
        era, permit = given
        if permit is None:
            return
        changed = self.breaker.record(permit, result, self.now)
        if era != self.era:
            assert changed is None
        elif self.opened is None:
            self.results.append((self.now, result))
            assert (changed == "open") == (result == "failure" and self.too_many())
        else:
            self.running = max(self.running - 1, 0)
            self.successes += result == "success"
            closed = self.successes == POLICY.probes
            expected = "open" if result == "failure" else "closed" if closed else None
            assert changed == expected
        if changed is not None:
            self.begin(self.now if changed == "open" else None)

    @rule(result=RESULTS)
    def observe(self, result: Result) -> None:
        """A result without a permit counts whenever its call began."""
        changed = self.breaker.record(None, result, self.now)
        if result == "ignored":
            assert changed is None
        elif self.opened is not None:
            assert changed == ("open" if result == "failure" else "closed")
            self.begin(self.now if changed == "open" else None)
        else:
            self.results.append((self.now, result))
            assert (changed == "open") == (result == "failure" and self.too_many())
            if changed is not None:
                self.begin(self.now)

    @rule()
    def reset(self) -> None:
        """Close it by hand."""
        self.breaker.reset()
        self.begin(None)

    @invariant()
    def the_state_is_the_models(self) -> None:
        """Nor is a wait longer than the rest, nor a failure no call."""
        state = self.breaker.state(self.now)
        assert (state == "closed") == (self.opened is None)
        if self.opened is not None:
            over = self.now >= self.opened + POLICY.rest
            assert state == ("probing" if over else "open")
        assert 0 <= self.breaker.wait(self.now) <= POLICY.rest
        if self.opened is None:
            recent = self.recent()
            totals = (len(recent), recent.count("failure"))
            assert self.breaker.totals(self.now) == totals
        assert self.breaker.refused == self.refused

    @invariant()
    def it_never_stays_open(self) -> None:
        """After another rest a call is permitted, even if no probe has ended."""
        if self.opened is not None and not self.running:
            later = max(self.now, self.opened + POLICY.rest)
            assert self.breaker.wait(later) == 0

    def recent(self) -> list[Result]:
        """Return the results in the window, which slides in tenths."""
        first = int(self.now) - 10
        return [result for at, result in self.results if int(at) > first and result != "ignored"]

    def too_many(self) -> bool:
        """Whether the failures in the window are enough."""
        recent = self.recent()
        return len(recent) >= 4 and recent.count("failure") * 2 >= len(recent)

    def begin(self, opened: float | None) -> None:
        """Begin an era."""
        self.opened = opened
        self.era += 1
        self.results.clear()
        self.running = self.successes = 0


TestModel = pytest.mark.untraced(Model.TestCase)


def permitted(breaker: CircuitBreaker, now: float) -> Permit:
    """Return a permit, which there must be."""
    permit = breaker.permit(now)
    assert permit is not None
    return permit


def call(breaker: CircuitBreaker, now: float, results: str) -> None:
    """Make calls that succeed (+) or fail (-)."""
    for result in results:
        breaker.record(permitted(breaker, now), "success" if result == "+" else "failure", now)


def opened(policy: BreakerPolicy = ONE_PROBE) -> CircuitBreaker:
    """Make a breaker that opened at 0."""
    breaker = CircuitBreaker(policy)
    call(breaker, 0, "----")
    return breaker


def test_few_calls_and_few_failures_do_not_open_it() -> None:
    """Three of three is no ratio; three of seven is too few; old ones leave the window."""
    breaker = CircuitBreaker(POLICY)
    call(breaker, 0.0, "---")
    assert breaker.state(0.0) == "closed"
    call(breaker, 11.0, "---")
    assert breaker.state(11.0) == "closed"
    call(breaker, 11.0, "++++")
    assert breaker.state(11.0) == "closed"
    call(breaker, 11.0, "-")
    assert breaker.state(11.0) == "open"


def test_it_opens_is_probed_and_closes() -> None:
    """The whole walk; while it is open, it says how long."""
    breaker = opened(POLICY)
    assert (breaker.state(1.0), breaker.wait(1.0), breaker.permit(1.0)) == ("open", 4.0, None)
    first, second = permitted(breaker, 5.0), permitted(breaker, 5.0)
    assert breaker.permit(5.0) is None, "two probes and no more"
    assert breaker.state(5.0) == "probing"
    assert breaker.record(first, "success", 6.0) is None
    assert breaker.record(second, "success", 6.0) == "closed"
    assert breaker.state(6.0) == "closed"
    call(breaker, 7.0, "---")
    assert breaker.state(7.0) == "closed", "what was before is forgotten"


def test_an_ignored_probe_is_followed_by_another() -> None:
    """Its caller left, or the request itself was wrong."""
    breaker = opened(POLICY)
    assert breaker.record(permitted(breaker, 5.0), "ignored", 5.0) is None
    later = [breaker.permit(5.0) is None for _ in range(3)]
    assert later == [False, False, True]


def test_one_successful_probe_closes_it() -> None:
    """While it is under way no other call is permitted."""
    breaker = opened()
    probe = permitted(breaker, 10)
    assert breaker.permit(10) is None
    assert breaker.state(10) == "probing"
    breaker.record(probe, "success", 11)
    assert breaker.state(11) == "closed"
    call(breaker, 11, "-")
    assert breaker.state(11) == "closed", "what was before is forgotten"


def test_a_changed_policy_applies_at_once() -> None:
    """Another window begins empty."""
    breaker = CircuitBreaker(ONE_PROBE)
    breaker.policy = BreakerPolicy(window=30, calls=1)
    call(breaker, 0, "-")
    assert breaker.state(0) == "open"
    breaker.reset()
    call(breaker, 0, "+")
    breaker.policy = POLICY
    assert breaker.totals(0) == (0, 0)


def test_it_opens_as_decided_elsewhere() -> None:
    """Until a given time; the other's successful probes count, but never all of them."""
    breaker = CircuitBreaker(POLICY)
    breaker.open_until(7.0, successes=5)
    assert (breaker.wait(1.0), breaker.successes) == (6.0, 1)
    assert breaker.permit(7.0, probe=False) is None
    assert breaker.record(permitted(breaker, 7.0), "success", 7.0) == "closed"


def test_after_each_failure_one_call_per_rest_is_permitted() -> None:
    """Until one succeeds, wherever its result was observed."""
    breaker = CircuitBreaker(after_each_failure(1.0))
    call(breaker, 0, "++++-")
    assert breaker.state(0) == "open"
    assert [breaker.permit(now) is not None for now in (0.9, 1.0, 1.5, 2.0, 2.5)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert breaker.record(None, "success", 2.6) == "closed"


def test_a_dependency_is_skipped_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """For a second, then one call at a time; failure and recovery are logged once each."""
    now = 0.0
    caplog.set_level(logging.INFO, "effects.circuit_breaker")
    dependency = Dependency("pins", "nothing is pinned", lambda: now)
    dependency.answered()
    assert dependency.permitted()
    dependency.failed("no answer")
    dependency.failed("store_failed")
    assert dependency.fault == "store_failed; nothing is pinned"
    assert not dependency.permitted()
    now = 1.0
    assert [dependency.permitted(), dependency.permitted()] == [True, False]
    dependency.answered()
    after = [dependency.fault, dependency.permitted(), dependency.permitted()]
    assert after == [None, True, True]
    assert caplog.messages == ["pins: no answer; nothing is pinned", "pins: answers again"]
