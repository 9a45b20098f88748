"""The self-test: every seeded fault is one cause on its layer, and equal pairs raise no alarm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

import msgspec

from compare.findings import LAYERS, Layer
from contract.flow import Flow
from contract.flows.chat import CHAT
from contract.records import RunRecord
from cutover.selftest.effect_faults import EFFECT_FAULTS
from cutover.selftest.equal_pairs import Alarms, compare_equal_pairs
from cutover.selftest.exchanges import exchange
from cutover.selftest.run_faults import RUN_FAULTS, FaultPlace, RunFault
from cutover.selftest.runs import causes, chat_stack, on_virtual_time, serve, shadow
from cutover.selftest.stream_faults import SCENE, STREAM_FAULTS, CodeFault
from cutover.wiring.stacks import StackNotLoaded, load_stacks
from router.serving.stack import LocalStack

SeededFault = RunFault | CodeFault
SEEDED: tuple[SeededFault, ...] = (*RUN_FAULTS, *STREAM_FAULTS, *EFFECT_FAULTS)
PAIRS = 10_000
VERSION = 2

StartBar = Callable[[str, int], Callable[[int], None]]
"""Called with what begins and its total; returns the callback for each further count."""


class Trial(msgspec.Struct, frozen=True):
    """The result of one fault; `detected`: found as exactly one cause, of its layer and kind."""

    fault: str
    place: FaultPlace
    layer: Layer
    kind: str
    found: tuple[str, ...]
    detected: bool


class Outcome(msgspec.Struct, frozen=True):
    """The result of a self-test."""

    v: int
    trials: tuple[Trial, ...]
    alarms: Alarms

    @property
    def missed(self) -> tuple[Trial, ...]:
        """The faults that were not found as the one cause they are."""
        return tuple(trial for trial in self.trials if not trial.detected)

    @property
    def sound(self) -> bool:
        """Whether every fault was found and nothing else was."""
        return not list(self.reasons())

    def of_layer(self, layer: Layer) -> tuple[Trial, ...]:
        """Return the trials whose fault belongs to a layer."""
        return tuple(trial for trial in self.trials if trial.layer == layer)

    def reasons(self) -> Iterator[str]:
        """Yield what is not sound, one sentence each; no data is not sound either."""
        for layer in LAYERS:
            if not self.of_layer(layer):
                yield f"no fault was tried on the layer {layer!r}"
        if self.missed:
            yield f"{len(self.missed)} of {len(self.trials)} faults were not found as one cause"
        if not self.alarms.pairs:
            yield "no equal pair was compared"
        if self.alarms.raised:
            yield f"{self.alarms.raised} of {self.alarms.pairs} equal pairs raised an alarm"


def encode_outcome(outcome: Outcome) -> bytes:
    """Return an outcome as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(outcome), indent=2) + b"\n"


class Bench:
    """A sound serving run by legacy, and the graph flow into which faults are put."""

    def __init__(self, legacy: LocalStack, flow: Flow) -> None:
        self._flow = flow
        self._serving = on_virtual_time(serve(legacy, SCENE))

    def trial(self, fault: SeededFault) -> Trial:
        """Put a fault in and compare."""
        found = causes(self._runs(fault))
        return Trial(
            fault.name,
            fault.place,
            fault.layer,
            fault.kind,
            tuple(map(str, found)),
            [(cause.layer, cause.kind) for cause in found] == [(fault.layer, fault.kind)],
        )

    def _runs(self, fault: SeededFault) -> tuple[RunRecord, RunRecord]:
        match fault:
            case RunFault():
                return exchange(fault.sound, fault.script)
            case CodeFault():
                faulty = chat_stack("graph", fault.wrap(self._flow))
                return self._serving, on_virtual_time(shadow(faulty, SCENE, self._serving))
            case _:
                assert_never(fault)


def self_test(
    start_bar: StartBar, pairs: int = PAIRS, faults: Sequence[SeededFault] = SEEDED
) -> Outcome:
    """Test the comparison; raises `StackNotLoaded`, also where one of the stacks is retired."""
    stacks = load_stacks()
    for name in ("legacy", "graph"):
        if name not in stacks:
            raise StackNotLoaded(name, "", "it is not part of this deployment")
    legacy, graph = stacks["legacy"], stacks["graph"]
    with _logging_disabled():
        bench, trials = Bench(legacy, graph.flows[CHAT.name]), list[Trial]()
        advance = start_bar("faults", len(faults))
        for fault in faults:
            trials.append(bench.trial(fault))
            advance(1)
        alarms = compare_equal_pairs(legacy, graph, pairs, start_bar("equal pairs", pairs))
    return Outcome(VERSION, tuple(trials), alarms)


@contextmanager
def _logging_disabled() -> Iterator[None]:
    """Suppress what the stacks log about the faults that were put into them."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
