"""Slots are counted once, moved and released in any order; rates hold over any stretch of time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.config.schema import BreakerSettings, FlowSettings, LimitSettings, Settings
from router.problems import Problem
from router.routing.admission import Admission, Admitted, TokenBuckets
from router.stack import StackName

FLOWS = st.sampled_from(["chat", "ops"])
STACKS: st.SearchStrategy[StackName] = st.sampled_from(["legacy", "graph"])
GAPS = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0, 100.0]), max_size=60)


def admission(most: int, **limits: Any) -> Admission:
    """Return an admission whose flows may have `most` streams each."""
    flow = FlowSettings(max_streams=most)
    settings = Settings(
        flows={"chat": flow, "ops": flow},
        limits=LimitSettings(**limits),
        breaker=BreakerSettings(enabled=False),
    )
    return Admission(lambda: settings, lambda: 0.0)


class Machine(RuleBasedStateMachine):
    """Streams open, move and close, some of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = admission(3, streams=4, legacy_streams=2, graph_streams=0)
        self.open: dict[Admitted, tuple[str, StackName]] = {}
        self.closed: list[Admitted] = []

    @rule(flow=FLOWS, stack=STACKS)
    def admit(self, flow: str, stack: StackName) -> None:
        """A request is taken exactly where router, flow and stack have a slot."""
        flows = Counter(f for f, _ in self.open.values())
        full = len(self.open) >= 4 or flows[flow] >= 3
        if full or (stack == "legacy" and self.stacks()["legacy"] >= 2):
            with pytest.raises(Problem, match="503 overloaded"):
                self.admission.admit(flow, stack, None)
        else:
            self.open[self.admission.admit(flow, stack, None)] = flow, stack

    @rule(data=st.data(), stack=STACKS)
    def move(self, data: st.DataObject, stack: StackName) -> None:
        """Another stack serves: always possible, and without effect on a released slot."""
        if slots := [*self.open, *self.closed]:
            slot = data.draw(st.sampled_from(slots))
            slot.fell_back(None, stack)
            if slot in self.open:
                self.open[slot] = self.open[slot][0], stack

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A slot may be released twice."""
        if slots := [*self.open, *self.closed]:
            slot = data.draw(st.sampled_from(slots))
            slot.release(None)
            if self.open.pop(slot, None):
                self.closed.append(slot)

    def stacks(self) -> Counter[StackName]:
        """Count the open ones by stack."""
        return Counter(stack for _, stack in self.open.values())

    @invariant()
    def the_count_is_right(self) -> None:
        """In all, by flow and by stack."""
        streams = self.admission.streams
        assert streams.total == len(self.open)
        assert +streams.stacks == self.stacks()
        assert +streams.flows == Counter(flow for flow, _ in self.open.values())


TestMachine = Machine.TestCase


def test_without_limits_nothing_is_full() -> None:
    """0 is no limit."""
    unlimited = admission(0, streams=0, legacy_streams=0, graph_streams=0)
    for _ in range(100):
        unlimited.admit("chat", "legacy", None)
    assert unlimited.streams.total == 100


@given(GAPS, st.integers(1, 5))
def test_no_stretch_of_time_gets_more_than_burst_and_rate(gaps: list[float], burst: int) -> None:
    """Two a second, whatever the pattern."""
    buckets = TokenBuckets(2.0, burst, 10)
    now, taken = 0.0, list[float]()
    for gap in gaps:
        now += gap
        wait = buckets.take("k", now)
        if not wait:
            taken.append(now)
        else:
            assert 0 < wait <= 0.5
    for first, began in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + 2.0 * (taken[last] - began) + 1e-9


def test_a_client_that_waits_as_long_as_stated_is_taken() -> None:
    """The burst at once, then one for each half second; keys do not share."""
    buckets = TokenBuckets(2.0, 3, 10)
    assert [buckets.take("a", 5.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", 5.0) == 0.0
    assert buckets.take("a", 5.25) == 0.25
    assert buckets.take("a", 5.5) == 0.0
    assert buckets.take("a", 5.5) == 0.5
    assert [buckets.take("a", 1_000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_the_least_recently_used_key_is_forgotten() -> None:
    """Memory is bounded; a key forgotten begins anew, one in use is kept."""
    buckets = TokenBuckets(1.0, 1, 2)
    assert buckets.take("a", 0.0) == 0.0
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.0) == 1.0
    assert buckets.take("c", 0.0) == 0.0
    assert len(buckets) == 2
    assert buckets.take("a", 0.0) == 1.0
    assert buckets.take("b", 0.0) == 0.0
