"""Mutants of the graph stack: which are tried, and what became of them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from cutover.selftest.mutant_process import MutantProcess, Result
from cutover.selftest.mutation import Mutant, modules_in, mutants_of
from cutover.selftest.survivors import reason_for

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLED = 60
SEED = "self-test"
SILENT_AT_MOST = 15.0
"""Seconds a mutant may take: a sound one takes less than one."""


class Survivor(msgspec.Struct, frozen=True):
    """A mutant nothing was found in; `reason` is why nothing can be seen of it, "": unknown."""

    place: str
    function: str
    change: str
    reason: str = ""


class Mutants(msgspec.Struct, frozen=True):
    """What became of the mutants that were tried, of so many there are."""

    there_are: int
    tried: int
    ways: dict[str, int]
    survivors: tuple[Survivor, ...]

    @property
    def found(self) -> int:
        """How many were found out."""
        return self.tried - len(self.survivors)

    @property
    def unexplained(self) -> tuple[Survivor, ...]:
        """Survivors nobody can explain."""
        return tuple(survivor for survivor in self.survivors if not survivor.reason)

    @property
    def telling(self) -> int:
        """How many of those tried behave otherwise at all."""
        return self.tried - len(self.survivors) + len(self.unexplained)

    @property
    def rate(self) -> float:
        """Share of the mutants that behave otherwise that was found; 1 when there were none."""
        return self.found / self.telling if self.telling else 1.0


Sourced = tuple[Mutant, str]
"""A mutant, and the source it is a change of."""


def all_mutants(folder: Path) -> list[Sourced]:
    """List every mutant of a package, in the order of files and lines."""
    sources = modules_in(folder)
    return [(mutant, text) for name, text in sources.items() for mutant in mutants_of(name, text)]


def sampled(there: list[Sourced], count: int) -> list[Sourced]:
    """Draw some, always the same of the same code, and keep their order."""
    if count >= len(there):
        return there
    drawn = sorted(Random(SEED).sample(range(len(there)), count))
    return [there[k] for k in drawn]


def try_mutants(
    there: list[Sourced], chosen: list[Sourced], done: Callable[[int], None]
) -> Mutants:
    """Try mutants, one after the other, in a process of their own; `done` hears of each."""
    results: list[Result] = []
    with MutantProcess(SILENT_AT_MOST) as process:
        for mutant, source in chosen:
            results.append(process.try_out(mutant, source))
            done(1)
    return _summed(len(there), results)


def _summed(there: int, results: list[Result]) -> Mutants:
    ways: dict[str, int] = {}
    for result in results:
        if result.way is not None:
            ways[result.way] = ways.get(result.way, 0) + 1
    survivors = tuple(
        Survivor(it.place, it.function, it.change, reason_for(it)) for it in results if it.survived
    )
    return Mutants(there, len(results), ways, survivors)
