"""Places: counted once, moved and given back, whatever the order."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.config import LimitSettings
from router.routing.limits import OpenStreams, StreamSlot
from router.stack import StackName

LIMITS = LimitSettings(streams=4, legacy_streams=2, graph_streams=0)
FLOWS = st.sampled_from(["chat", "ops"])
STACKS: st.SearchStrategy[StackName] = st.sampled_from(["legacy", "graph"])


class Machine(RuleBasedStateMachine):
    """Streams come, move and go, some of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = OpenStreams()
        self.open: dict[StreamSlot, tuple[str, StackName]] = {}
        self.gone: list[StreamSlot] = []

    @rule(flow=FLOWS, stack=STACKS)
    def take(self, flow: str, stack: StackName) -> None:
        """Take a place where there is one."""
        flows, stacks = Counter(f for f, _ in self.open.values()), self.stacks()
        expected = "router" if len(self.open) >= 4 else "flow" if flows[flow] >= 3 else None
        assert self.streams.full(LIMITS, flow, 3) == expected
        full = self.streams.stack_full(LIMITS, stack)
        assert full == (stack == "legacy" and stacks["legacy"] >= 2)
        if expected is None and not full:
            self.open[self.streams.take(flow, stack)] = flow, stack

    @rule(data=st.data(), stack=STACKS)
    def move(self, data: st.DataObject, stack: StackName) -> None:
        """Be served by another stack: always possible, and nothing for who has gone."""
        if everybody := [*self.open, *self.gone]:
            place = data.draw(st.sampled_from(everybody))
            place.move(stack)
            if place in self.open:
                self.open[place] = self.open[place][0], stack

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """Go, perhaps again."""
        if everybody := [*self.open, *self.gone]:
            place = data.draw(st.sampled_from(everybody))
            place.release()
            if self.open.pop(place, None):
                self.gone.append(place)

    def stacks(self) -> Counter[StackName]:
        """Count the open ones by stack."""
        return Counter(stack for _, stack in self.open.values())

    @invariant()
    def the_count_is_right(self) -> None:
        """In all, by flow and by stack."""
        assert self.streams.total == len(self.open)
        assert +self.streams.stacks == self.stacks()
        assert +self.streams.flows == Counter(flow for flow, _ in self.open.values())


TestMachine = Machine.TestCase


def test_without_limits_nothing_is_full() -> None:
    """0 is no limit."""
    places = OpenStreams()
    limits = LimitSettings(streams=0, legacy_streams=0, graph_streams=0)
    for _ in range(100):
        places.take("chat", "legacy")
    assert places.full(limits, "chat", 0) is None
    assert not places.stack_full(limits, "legacy")
