"""The self-test itself: faults, equal pairs, mutants, one after the other."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from contract.flows.chat import CHAT
from cutover.selftest.alarms import alarms
from cutover.selftest.mutants import SAMPLED, all_mutants, sampled, try_mutants
from cutover.selftest.outcome import VERSION, Outcome
from cutover.selftest.trials import SEEDED, trials
from cutover.wiring.stacks import DEFAULTS, load_stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cutover.selftest.faults import Fault
    from cutover.selftest.mutants import Mutants

    Told = Callable[[str, int], Callable[[int], None]]
    """Hears what begins and how many there are; gives who is told of each that is done."""

PAIRS = 10_000


@dataclass(frozen=True)
class Wishes:
    """What a self-test was asked for; `mutants` is how many are drawn, None: all there are."""

    pairs: int = PAIRS
    mutants: int | None = SAMPLED
    faults: Sequence[Fault] = SEEDED


def self_test(wishes: Wishes, told: Told) -> Outcome:
    """Test the comparison; raises `StackNotLoaded`, `NotStarted`."""
    stacks = load_stacks()
    legacy, graph = stacks["legacy"], stacks["graph"]
    with _quiet():
        faults = wishes.faults
        tried = trials(legacy, graph.flows[CHAT.name], faults, told("faults", len(faults)))
        raised = alarms(legacy, graph, wishes.pairs, told("equal pairs", wishes.pairs))
    return Outcome(VERSION, tried, raised, _mutants(wishes, told))


def _mutants(wishes: Wishes, told: Told) -> Mutants | None:
    package = import_module(DEFAULTS["graph"].partition(":")[0])
    there = all_mutants(Path(str(package.__file__)).parent)
    chosen = there if wishes.mutants is None else sampled(there, wishes.mutants)
    return try_mutants(there, chosen, told("mutants", len(chosen))) if chosen else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to ourselves what the stacks log of faults that were put into them."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
