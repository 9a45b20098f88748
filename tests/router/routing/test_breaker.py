"""The circuit breaker: drawn sequences against a plain model, and the walks people draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from router.config import BreakerSettings
from router.routing.breakers import Breaker

if TYPE_CHECKING:
    from router.routing.breakers import Leave, Result

RULES = BreakerSettings(
    failure_ratio=0.5, least_requests=4, window_seconds=10.0, open_seconds=5.0, probes=2
)
RESULTS = st.sampled_from(["well", "failed", "failed", "untold"])


class Model(RuleBasedStateMachine):
    """All tries are kept with their times; what must follow is worked out from the whole list."""

    leaves = Bundle("leaves")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.breaker = Breaker(RULES)
        self.told: list[tuple[float, Result]] = []
        self.opened: float | None = None
        self.era = 0
        self.probes: list[Result | None] = []

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.75, 5.0, 12.0]))
    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.now += seconds

    @rule(target=leaves)
    def ask(self) -> tuple[int, Leave | None]:
        """Ask: closed always gives leave, open never, and then only to so many probes."""
        leave = self.breaker.ask(self.now)
        if self.opened is None:
            assert leave is not None
        elif self.now < self.opened + RULES.open_seconds:
            assert leave is None
        elif leave is not None:
            self.probes.append(None)
        return self.era, leave

    @rule(given=consumes(leaves), result=RESULTS)
    def tell(self, given: tuple[int, Leave | None], result: Result) -> None:
        """Tell a result: what was begun in an earlier era says nothing."""
        era, leave = given
        if leave is None:
            return
        changed = self.breaker.tell(leave, result, self.now)
        if era != self.era:
            assert changed is None
        elif self.opened is None:
            self.told.append((self.now, result))
            assert (changed == "open") == (result == "failed" and self.too_many())
        else:
            self.probes.remove(None)
            self.probes.append(result)
            well = self.probes.count("well")
            expected = "open" if result == "failed" else "closed" if well == RULES.probes else None
            assert changed == expected
        if changed is not None:
            self.begin(self.now if changed == "open" else None)

    @rule()
    def reset(self) -> None:
        """Close it by hand."""
        self.breaker.reset()
        self.begin(None)

    @invariant()
    def no_more_probes_than_allowed(self) -> None:
        """Nor a state that is not the model's."""
        state = self.breaker.state(self.now)
        assert (state == "closed") == (self.opened is None)
        if self.opened is not None:
            over = self.now >= self.opened + RULES.open_seconds
            assert state == ("probing" if over or self.probes else "open")

    def too_many(self) -> bool:
        """Whether the failures in the window are enough; it slides in tenths."""
        first = int(self.now) - 10
        recent = [result for at, result in self.told if int(at) > first and result != "untold"]
        return len(recent) >= 4 and recent.count("failed") * 2 >= len(recent)

    def begin(self, opened: float | None) -> None:
        """Begin an era."""
        self.opened = opened
        self.era += 1
        self.told.clear()
        self.probes.clear()


TestModel = pytest.mark.untraced(Model.TestCase)


def failing(breaker: Breaker, now: float, times: int = 4) -> None:
    """Fail so often."""
    for _ in range(times):
        leave = breaker.ask(now)
        assert leave is not None
        breaker.tell(leave, "failed", now)


def test_it_opens_is_probed_and_closes() -> None:
    """The whole walk; while it is open, it says how long."""
    breaker = Breaker(RULES)
    failing(breaker, 0.0)
    assert (breaker.state(1.0), breaker.wait(1.0), breaker.ask(1.0)) == ("open", 4.0, None)
    first, second, third = (breaker.ask(5.0) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is None, "two probes and no more"
    assert breaker.state(5.0) == "probing"
    assert breaker.tell(first, "well", 6.0) is None
    assert breaker.tell(second, "well", 6.0) == "closed"
    assert breaker.state(6.0) == "closed"
    failing(breaker, 7.0, times=3)
    assert breaker.state(7.0) == "closed", "what was before is forgotten"


def test_one_failed_probe_opens_it_again() -> None:
    """For as long as the first time; a probe that says nothing gives its place to another."""
    breaker = Breaker(RULES)
    failing(breaker, 0.0)
    probe = breaker.ask(5.0)
    assert probe is not None
    assert breaker.tell(probe, "untold", 5.0) is None
    probes = [breaker.ask(5.0), breaker.ask(5.0)]
    assert None not in probes
    assert probes[0] is not None
    assert breaker.tell(probes[0], "failed", 8.0) == "open"
    assert breaker.wait(8.0) == 5.0
    assert breaker.ask(12.9) is None
    assert breaker.ask(13.0) is not None


def test_a_probe_without_end_does_not_keep_it_open() -> None:
    """After as long as it was open, others may probe in its place."""
    breaker = Breaker(RULES)
    failing(breaker, 0.0)
    assert [breaker.ask(5.0), breaker.ask(5.0)].count(None) == 0
    assert breaker.ask(9.9) is None
    others = [breaker.ask(10.0), breaker.ask(10.0)]
    for other in others:
        assert other is not None
        breaker.tell(other, "well", 10.0)
    assert breaker.state(10.0) == "closed"


def test_few_requests_and_few_failures_say_nothing() -> None:
    """Three of three is no ratio; three of seven is too few; old ones leave the window."""
    breaker = Breaker(RULES)
    failing(breaker, 0.0, times=3)
    assert breaker.state(0.0) == "closed"
    failing(breaker, 11.0, times=3)
    assert breaker.state(11.0) == "closed"
    leave = breaker.ask(11.0)
    assert leave is not None
    for _ in range(4):
        breaker.tell(leave, "well", 11.0)
    assert breaker.state(11.0) == "closed"
    breaker.tell(leave, "failed", 11.0)
    assert breaker.state(11.0) == "open"
