"""What pairs of load runs say to the gate: every figure compared, all together corrected by Holm.

`load.json` is checked as input is: a report that lacks a comparison, has figures that cannot be,
is too old or of other code is no reason to promote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Final, Self

import msgspec

from contract.errors import CutoverError
from evidence.decision import Check
from evidence.gate import RATIO, SHARE, STACKS
from evidence.tests import holm
from loadtests.report import FAILURE_RATE, GOODPUT, VERSION
from router.config.schema import GateSettings

LOAD_FILE: Final = "load.json"
_AHEAD: Final = 60.0
"""Seconds by which clocks of two machines may differ."""
_DAY: Final = 86_400.0
_PAIRS_OF_RUNS: Final = 5
_PERCENTILES: Final = ("p50", "p95", "p99")
_TIMES: Final = {"ttfe": "ttfe", "ttft": "ttft", "ttle": "e2e", "icl_max": "gap"}
"""Metrics of load runs that are compared, and what they are called here."""


class LoadUnreadable(CutoverError):
    """The folder given for load runs holds none that can be used."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(f"no load runs for the gate in {str(folder)!r}: {why}")


class _Paired(msgspec.Struct):
    metric: str
    figure: str = ""
    pairs: int = 0
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reason: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a figure, of enough pairs for a statement."""
        return self.value is not None and self.pairs >= _PAIRS_OF_RUNS

    @property
    def possible(self) -> bool:
        """Whether the figures can be those of a load run."""
        if self.value is None:
            return True
        least = -1.0 if self.metric == FAILURE_RATE else 0.0
        numbers = (self.value, self.low, self.high, self.p)
        known = [one for one in numbers if one is not None]
        if not all(map(isfinite, known)) or self.value < least:
            return False
        if self.low is None or self.high is None or self.p is None:
            return self.pairs < _PAIRS_OF_RUNS
        return self.low <= self.value <= self.high and 0 <= self.p <= 1


class _Stack(msgspec.Struct):
    stack: str
    code: tuple[str, ...] = ()


class _Load(msgspec.Struct):
    """What the gate reads of a load report; everything else in it is left alone."""

    flow: str
    basis: str
    stacks: tuple[_Stack, ...]
    paired: tuple[_Paired, ...]
    v: int = 0
    ended: float = 0.0


@dataclass(frozen=True, slots=True)
class _Figure:
    """One figure that is compared: its check's name, and where its margin is."""

    metric: str
    figure: str
    name: str
    margin: str
    sign: float = 1.0
    """-1: less is worse."""

    @property
    def least(self) -> float:
        """The value of equal stacks."""
        return 0.0 if self.metric == FAILURE_RATE else 1.0


def _figures() -> Iterator[_Figure]:
    for metric, name in _TIMES.items():
        for figure in _PERCENTILES:
            # A gap has a margin of its P95 alone, and no time has one of its P99.
            margin = f"{name}_{figure if figure == 'p50' and name != 'gap' else 'p95'}"
            yield _Figure(metric, figure, f"{name}_{figure}", margin)
    yield _Figure(FAILURE_RATE, "share", "failures", "failures")
    yield _Figure(GOODPUT, "rate", "goodput", "e2e_p95", sign=-1.0)


FIGURES: Final = {(one.metric, one.figure): one for one in _figures()}


@dataclass(frozen=True, slots=True)
class LoadRuns:
    """Pairs of load runs of one flow, in a file."""

    path: Path
    found: _Load

    @classmethod
    def read(cls, folder: Path, flow: str) -> Self:
        """Read the report in a folder of `cutover load`; raises `LoadUnreadable`."""
        path = folder / LOAD_FILE
        try:
            # Python's reader takes NaN, which is to be named and not to end the reading.
            found = msgspec.convert(json.loads(path.read_bytes()), _Load)
        except OSError as error:
            raise LoadUnreadable(folder, f"{LOAD_FILE} cannot be read") from error
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise LoadUnreadable(folder, f"{LOAD_FILE} is no report of `cutover load`") from error
        if found.flow != flow:
            raise LoadUnreadable(folder, f"they are of the flow {found.flow!r}, not {flow!r}")
        if tuple(one.stack for one in found.stacks) != STACKS:
            raise LoadUnreadable(folder, "they do not compare legacy with graph")
        return cls(path, found)

    def checks(self, needs: GateSettings, code: Mapping[str, str], now: float) -> Iterator[Check]:
        """Yield what they show at a Unix time in seconds.

        `code` are the fingerprints of the stacks' code in force, as far as they are known.
        """
        found, rows = self.found, str(self.path)
        if reason := _unusable(found, needs, code, now):
            yield Check(
                name="load",
                verdict="cannot_tell",
                reason=f"under load: {reason}",
                critical=True,
                rows=rows,
            )
            return
        compared = [one for one in found.paired if (one.metric, one.figure) in FIGURES]
        known = [one for one in compared if one.known]
        rejected = holm([1.0 if one.p is None else one.p for one in known])
        differing = {id(one) for one, sure in zip(known, rejected, strict=True) if sure}
        for one in compared:
            figure = FIGURES[one.metric, one.figure]
            yield _check(one, figure, needs, rows, differs=id(one) in differing)


def _unusable(found: _Load, needs: GateSettings, code: Mapping[str, str], now: float) -> str:
    """Return why nothing follows from a report; "" where something does."""
    if found.v != VERSION:
        return f"{LOAD_FILE} is of another version of cutover: run `cutover load` again"
    if found.basis != "valid":
        return "a stack has no valid load run"
    if not isfinite(found.ended) or found.ended > now + _AHEAD:
        return f"{LOAD_FILE} does not say when it was measured, or a time to come"
    if now - found.ended > needs.load_seconds:
        days = (now - found.ended) / _DAY
        return f"measured {days:.1f} days ago, allowed: {needs.load_seconds / _DAY:g}"
    for stack in found.stacks:
        if len(stack.code) > 1:
            return f"{stack.stack} had different code while it was measured"
        if stack.code and stack.code[0] != code.get(stack.stack, stack.code[0]):
            return f"{stack.stack} had other code than it serves with now: {stack.code[0]}"
    return _flaw(found)


def _flaw(found: _Load) -> str:
    """Return what a report lacks, or has that cannot be."""
    named = [(one.metric, one.figure) for one in found.paired]
    missing = [one.name for key, one in FIGURES.items() if named.count(key) != 1]
    if missing:
        return f"{LOAD_FILE} does not have one comparison of each of {', '.join(missing)}"
    flawed = [one for one in found.paired if not one.possible]
    if flawed:
        names = ", ".join(f"{one.metric} {one.figure}" for one in flawed)
        return f"{LOAD_FILE} has figures that cannot be: {names}"
    [failures] = [one for one in found.paired if one.metric == FAILURE_RATE]
    if not failures.known:  # every load run has them, so this is of the report as a whole
        return f"{failures.pairs} pairs of load runs, {_PAIRS_OF_RUNS} are due"
    return ""


def _check(
    paired: _Paired, figure: _Figure, needs: GateSettings, rows: str, *, differs: bool
) -> Check:
    margin = getattr(needs.margins, figure.margin)
    share = figure.metric == FAILURE_RATE
    check = Check(
        name=f"load_{figure.name}",
        verdict="promote",
        reason="",
        bound=margin,
        unit=SHARE if share else RATIO,
        n=paired.pairs,
        critical=figure.name in needs.critical,
        rows=rows,
    )
    value, low, high = paired.value, paired.low, paired.high
    if not paired.known or value is None or low is None or high is None:
        why = paired.reason or f"{paired.pairs} pairs of load runs, {_PAIRS_OF_RUNS} are due"
        reason = f"under load, {figure.name}: {why}"
        return msgspec.structs.replace(check, verdict="cannot_tell", reason=reason)
    value, low, high = (one - figure.least for one in (value, low, high))
    worst, least = sorted((figure.sign * low, figure.sign * high), reverse=True)
    worse = differs and least > 0 and figure.sign * value > margin
    unproven = check.critical and worst >= margin
    unit = "points" if share else "% of legacy's"
    allowed = f"{'+' if figure.sign > 0 else '-'}{100 * margin:g} {unit.split(maxsplit=1)[0]}"
    return msgspec.structs.replace(
        check,
        verdict="hold" if worse or unproven else "promote",
        reason=(
            f"under load, {figure.name} of graph differs by {100 * value:+.2f} {unit} "
            f"({100 * low:+.2f} to {100 * high:+.2f}), allowed: {allowed}"
        ),
        value=value,
        low=low,
        high=high,
    )
