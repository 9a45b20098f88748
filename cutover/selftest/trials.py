"""The self-test: seeded faults are found, each as one cause on its layer; equal pairs raise none.

Faults of the fixed lists are tried one by one in one scene. Drawn faults change from seed to seed;
each is put into the graph stack of all its scenes, whose exchanges are served, shadowed, captured
and compared as in production.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from itertools import count as count_from
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final, Literal, assert_never

import msgspec

from compare.findings import LAYERS, Layer
from compare.sharing import ALONE, Workers, at_work, in_order
from contract.flow import Flow
from contract.flows.chat import CHAT
from contract.records import RunRecord
from cutover.selftest.deployment import compared
from cutover.selftest.drawn.grammar import DrawnFault, draw_fault
from cutover.selftest.effect_faults import EFFECT_FAULTS
from cutover.selftest.equal_pairs import NO_ALARMS, Alarms, compare_equal_pairs
from cutover.selftest.exchanges import exchange
from cutover.selftest.run_faults import RUN_FAULTS, FaultPlace, RunFault
from cutover.selftest.runs import causes, chat_stack, on_virtual_time, serve, shadow
from cutover.selftest.scenes import SCENES, WIRE_SPECS, wire_flow
from cutover.selftest.stream_faults import SCENE, STREAM_FAULTS, CodeFault
from cutover.wiring.stacks import DEFAULTS, StackNotLoaded, load_stacks
from evidence.intervals import share_interval
from router.serving.stack import LocalStack

SeededFault = RunFault | CodeFault
Measure = Literal["found", "on their layer", "as one cause"]
SEEDED: tuple[SeededFault, ...] = (*RUN_FAULTS, *STREAM_FAULTS, *EFFECT_FAULTS)
PAIRS = 4_000
DRAWN = 250
_LISTED, _DRAWN, _PAIRED = 8, 4, 50
"""Faults of the lists, drawn faults and equal pairs in a piece of work: about a second of each."""
_ONE_AT_A_TIME: Final = Lock()
VERSION = 3
FLOORS: Mapping[Measure, float] = {"found": 0.95, "on their layer": 0.95, "as one cause": 0.85}
"""Shares of drawn faults below which the comparison is not sound."""

StartBar = Callable[[str, int], Callable[[int], None]]
"""Called with what begins and its total; returns the callback for each further count."""


class Trial(msgspec.Struct, frozen=True):
    """The result of one fault of the lists; `detected`: found as one cause, of layer and kind."""

    fault: str
    place: FaultPlace
    layer: Layer
    kind: str
    found: tuple[str, ...]
    detected: bool


class DrawnTrial(msgspec.Struct, frozen=True):
    """The result of one drawn fault; `number` and the seed draw it again.

    `found` are the causes as the report has them; `layers` those the fault belongs to.
    """

    number: int
    fault: str
    scenes: str
    layers: tuple[Layer, ...]
    found: tuple[str, ...]
    on_layer: bool

    def holds(self, measure: Measure) -> bool:
        """Whether the fault counts as a hit."""
        match measure:
            case "found":
                return bool(self.found)
            case "on their layer":
                return self.on_layer
            case "as one cause":
                return len(self.found) == 1
            case _:
                assert_never(measure)


class Rate(msgspec.Struct, frozen=True):
    """A share of drawn faults, with its 95 % interval."""

    measure: Measure
    hits: int
    trials: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share itself."""
        return self.hits / self.trials

    @property
    def text(self) -> str:
        """The measure in words."""
        return self.measure if self.measure == "found" else f"found {self.measure}"


class Outcome(msgspec.Struct, frozen=True):
    """The result of a self-test."""

    v: int
    trials: tuple[Trial, ...]
    alarms: Alarms
    seed: int = 0
    drawn: tuple[DrawnTrial, ...] = ()
    rates: tuple[Rate, ...] = ()

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
        for rate in self.rates:
            floor = FLOORS[rate.measure]
            if rate.share < floor:
                yield (
                    f"{rate.hits} of {rate.trials} drawn faults were {rate.text}: fewer "
                    f"than {floor:.0%}"
                )
        if not self.alarms.pairs:
            yield "no equal pair was compared"
        if self.alarms.raised:
            yield f"{self.alarms.raised} of {self.alarms.pairs} equal pairs raised an alarm"


def rates_of(drawn: Sequence[DrawnTrial]) -> tuple[Rate, ...]:
    """Return the rates of drawn faults, missed ones included; none without faults."""
    if not drawn:
        return ()
    counted = {measure: sum(it.holds(measure) for it in drawn) for measure in FLOORS}
    return tuple(
        Rate(measure, hits, len(drawn), *share_interval(hits, len(drawn)))
        for measure, hits in counted.items()
    )


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


def drawn_trial(
    legacy: LocalStack, graph: LocalStack, fault: DrawnFault, number: int, place: Path
) -> DrawnTrial | None:
    """Put a drawn fault into its scenes; None where it has changed nothing."""
    scenes = SCENES[fault.scenes]
    name = scenes[0].spec.name
    if fault.scenes in WIRE_SPECS:
        control = candidate = wire_flow(fault.scenes)
    else:
        control, candidate = legacy.flows[name], graph.flows[name]
    tally = compared(scenes, control, fault.flow(candidate), place, fault.wire)
    if not fault.probe.fired:
        return None
    found = tuple(tally.clusters.by_key.values())
    return DrawnTrial(
        number,
        fault.name,
        fault.scenes,
        tuple(layer for layer in LAYERS if layer in fault.layers),
        tuple(f"{it.layer}: {it.kind} at {it.path}" for it in found),
        any(it.layer in fault.layers for it in found),
    )


def self_test(
    start_bar: StartBar,
    pairs: int = PAIRS,
    *,
    drawn: int = DRAWN,
    seed: int = 0,
    workers: Workers = ALONE,
) -> Outcome:
    """Test the comparison; however many workers do it, the outcome is the same.

    Raises `StackNotLoaded`, also where one of the stacks is retired, and `WorkerLost`.
    """
    stacks_under_test()
    trials, alarms = list[Trial](), NO_ALARMS
    places = (place.partition(":")[0] for place in DEFAULTS.values())
    with at_work(workers, __name__, *places) as there:
        advance = start_bar("faults", len(SEEDED))
        for seen, found in in_order(_listed_trials, _ranges(_LISTED, len(SEEDED)), there):
            trials += found
            advance(len(seen))
        tried = _drawn_until(drawn, seed, there, start_bar("drawn faults", drawn))
        advance = start_bar("equal pairs", pairs)
        for seen, some in in_order(_equal_pairs, _ranges(_PAIRED, pairs), there):
            alarms = alarms.merged(some)
            advance(len(seen))
    return Outcome(VERSION, tuple(trials), alarms, seed, tried, rates_of(tried))


def _ranges(size: int, stop: int | None = None) -> Iterator[range]:
    """Yield ranges of a size, one after the other, up to `stop` or without an end."""
    for start in count_from(0, size):
        if stop is not None and start >= stop:
            return
        yield range(start, start + size if stop is None else min(start + size, stop))


def _drawn_until(
    count: int, seed: int, workers: Workers, advance: Callable[[int], None]
) -> tuple[DrawnTrial, ...]:
    """Try faults of a seed, in their order, until `count` of them have changed something."""
    tried = list[DrawnTrial]()
    with closing(in_order(partial(drawn_trials, seed), _ranges(_DRAWN), workers)) as found:
        while len(tried) < count:
            _, trials = next(found)
            kept = trials[: count - len(tried)]
            tried += kept
            advance(len(kept))
    return tuple(tried)


@cache
def stacks_under_test() -> tuple[LocalStack, LocalStack]:
    """Load legacy and graph; raises `StackNotLoaded`, also where one of them is retired."""
    stacks = load_stacks()
    for name in ("legacy", "graph"):
        if name not in stacks:
            raise StackNotLoaded(name, "", "it is not part of this deployment")
    return stacks["legacy"], stacks["graph"]


@cache
def _bench() -> Bench:
    legacy, graph = stacks_under_test()
    return Bench(legacy, graph.flows[CHAT.name])


def _listed_trials(numbers: range) -> list[Trial]:
    with _undisturbed():
        return [_bench().trial(SEEDED[number]) for number in numbers]


def drawn_trials(seed: int, numbers: range) -> list[DrawnTrial]:
    """Try the faults of these numbers, of a seed; those that changed nothing are left out."""
    draw, trials = Random(seed), list[DrawnTrial]()
    with _undisturbed(), TemporaryDirectory(prefix="cutover-selftest-") as folder:
        for number in range(numbers.stop):
            fault = draw_fault(draw)
            if number in numbers:
                place = Path(folder, str(number))
                trial = drawn_trial(*stacks_under_test(), fault, number, place)
                trials += [] if trial is None else [trial]
    return trials


def _equal_pairs(seeds: range) -> Alarms:
    with _undisturbed():
        return compare_equal_pairs(*stacks_under_test(), seeds)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Do one piece of the self-test at a time, whatever threads a worker has, and log nothing."""
    with _ONE_AT_A_TIME, _logging_disabled():
        yield


@contextmanager
def _logging_disabled() -> Iterator[None]:
    """Suppress what the stacks log about the faults that were put into them."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
