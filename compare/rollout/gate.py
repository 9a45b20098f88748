"""Whether the share of graph may be raised, judged by what the clients of both stacks had.

Exchanges count for the stack that they were drawn to, whichever served them in the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from compare.rollout import statistics
from compare.rollout.measures import LEAST_MARGIN, Measure, measures

Verdict = Literal["promote", "hold", "roll_back", "cannot_tell"]

SKEWED: Final = 0.001
"""The p-value below which units were not drawn by the share."""
FEWEST: Final = 20
"""Units of a stack below which nothing is said of it."""
PLANNED: Final = math.ceil(statistics.Z**2 * (1 / LEAST_MARGIN["rate"] - 1))
"""Exchanges of a stack that show its rate to be within the margin if none fails (Wilson)."""
_STACKS: Final = ("legacy", "graph")
_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
_DAYS: Final = 72
"""Hours beyond which a time is said in days."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is judged: exchanges of a flow drawn by `share`, 0 to 1, and which of them count.

    `config` is the digest of the configuration in force, "" for that of the newest exchange.
    `since` and `now` are in microseconds since 1970.
    """

    flow: str
    share: float
    config: str
    now: int
    since: int = 0


def planned(share: float) -> int:
    """Return how many exchanges a share between 0 and 1 needs, so that each stack has `PLANNED`."""
    return math.ceil(PLANNED / min(share, 1 - share))


class Arm(msgspec.Struct, frozen=True):
    """A stack's exchanges; `failed` also where the other one served instead."""

    exchanges: int
    units: int
    failed: int
    taken_over: int


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its reasons, what to do next, and the figures that it is made of.

    `missing` is how many more exchanges may change it, 0 where more will not. `unit` is what
    evidence is clustered by, as `user_id`; `loose` counts exchanges that stand for themselves, all
    of them where no unit is known. `evidence` rolls back at `needed`.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    next: str
    flow: str
    share: float
    config: str
    code_version: str
    missing: int
    unit: str
    loose: int
    arms: dict[str, Arm]
    measures: tuple[Measure, ...]
    evidence: float
    needed: float = 1 / statistics.ALPHA


def decide(exchanges: pd.DataFrame, scope: Scope, findings: Sequence[str] = ()) -> Decision:
    """Return what is to become of a rollout; `findings` of a comparison hold it.

    Of the exchanges count those drawn by the share, under the configuration in force and served by
    the newest code.
    """
    rows = exchanges[(exchanges["flow"] == scope.flow) & (exchanges["at"] >= scope.since)]
    seen, rows = len(rows), rows[rows["why"] == "percent"].sort_values("at")
    config = scope.config or (str(rows["config"].iloc[-1]) if len(rows) else "")
    rows = rows[rows["config"] == config]
    code = str(rows["code_version"].iloc[-1]) if len(rows) else ""
    drawn = _Drawn(rows[rows["code_version"] == code], scope)
    judged = drawn.judge(seen, findings)
    missing, advice = max(math.ceil(judged.total) - len(drawn.rows), 0), judged.next
    if missing:
        advice += f" {missing} more exchanges: {drawn.how_long(missing)}"
    kinds = drawn.rows.loc[drawn.rows["unit"] != "", "unit_kind"].unique()
    return Decision(
        verdict=judged.verdict,
        reasons=judged.reasons,
        next=advice,
        flow=scope.flow,
        share=scope.share,
        config=config,
        code_version=code,
        missing=missing,
        unit=", ".join(sorted(kinds)),
        loose=drawn.loose,
        arms=drawn.arms,
        measures=drawn.measures,
        evidence=drawn.evidence,
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """A verdict; `total` exchanges, those there are among them, may change it; 0: no number."""

    verdict: Verdict
    reasons: tuple[str, ...]
    next: str
    total: float = 0.0


class _Drawn:
    """The exchanges that count, by stack and unit.

    A unit with exchanges of both stacks was not drawn as one: its exchanges stand for themselves.
    """

    def __init__(self, rows: pd.DataFrame, scope: Scope) -> None:
        self.rows, self.scope = rows, scope
        graph, alone = rows["assigned"] == "graph", rows["unit"] == ""
        named = (rows["unit_kind"] + "=" + rows["unit"]).mask(alone, rows["exchange"])
        alone |= graph.groupby(named).transform("nunique") > 1
        self.loose = int(alone.sum())
        self.units = pd.factorize(named.mask(alone, rows["exchange"]))[0].astype(np.intp)
        self.graph = graph.to_numpy(dtype=np.bool_)
        taken_over = (rows["served"] != rows["assigned"]) | (rows["failed_behind"] != "")
        self.failed = (taken_over | (rows["end"] == "failed")).to_numpy(dtype=np.bool_)
        self.arms = {
            name: Arm(
                exchanges=int(mask.sum()),
                units=len(np.unique(self.units[mask])),
                failed=int(self.failed[mask].sum()),
                taken_over=int(taken_over[mask].sum()),
            )
            for name, mask in zip(_STACKS, (~self.graph, self.graph), strict=True)
        }
        self.measures: tuple[Measure, ...] = ()
        self.evidence = 0.0
        if all(one.exchanges for one in self.arms.values()) and 0 < scope.share < 1:
            self.evidence = statistics.evidence(self.failed, self.graph, self.units, scope.share)
            if min(one.units for one in self.arms.values()) >= FEWEST:
                self.measures = measures(rows, self.failed, self.graph, self.units)

    def judge(self, seen: int, findings: Sequence[str]) -> _Judged:
        """Return the first verdict that applies; `seen` counts the exchanges not drawn, too.

        To promote, every measure is within its margin: each is tested at its own level, which needs
        no adjustment (Berger 1982, Technometrics 24, 295-300).
        """
        share, (legacy, graph) = self.scope.share, (self.arms[name] for name in _STACKS)
        if not 0 < share < 1:
            why = f"at a share of {share:.0%} there is nothing to compare with"
            return _Judged("cannot_tell", (why,), "set a share between 0 and 100 %")
        least, units = planned(share), legacy.units + graph.units
        if not units:
            why = f"of {seen} exchanges none was drawn under the configuration in force"
            check = "see that the router captures, and has taken up the file; wait for"
            return _Judged("cannot_tell", (why,), check, least)
        for name, arm, due in (("legacy", legacy, 1 - share), ("graph", graph, share)):
            if not arm.units:
                why = f"{name} has none of {units} units; {due:.3g} of them were to be drawn to it"
                check = f"see that {name} is served (/readyz, the breaker); wait for"
                return _Judged("cannot_tell", (why,), check, least)
        if (chance := statistics.skewed(graph.units, units, share)) < SKEWED:
            why = f"the split is skewed: graph has {graph.units} of {units} units, "
            why += f"{share:.3g} of them were to be drawn to it (p = {chance:.1g})"
            return _Judged("cannot_tell", (why,), "find out which exchanges are not captured")
        failures = f"{graph.failed} of {graph.exchanges} exchanges of graph failed, "
        failures += f"{legacy.failed} of {legacy.exchanges} of legacy"
        if self.evidence >= 1 / statistics.ALPHA:
            why = f"graph fails more: {failures} (evidence {self.evidence:.3g}, "
            why += f"{1 / statistics.ALPHA:.0f} rolls back)"
            return _Judged("roll_back", (why,), f"cutover rollback; failed: {self._codes()}")
        if min(legacy.units, graph.units) < FEWEST:
            why = f"too few: legacy has {legacy.units} units, graph {graph.units}; {FEWEST} are "
            return _Judged("cannot_tell", (f"{why}the least ({failures})",), "wait for", least)
        worse = [f"worse: {one}" for one in self.measures if one.state == "worse"]
        if worse or findings:
            check = "find out why (cutover diff); more exchanges will not change it"
            return _Judged("hold", (*worse, *findings), check)
        if waiting := [one for one in self.measures if one.state == "open"]:
            reasons = tuple(f"not shown to be within its margin: {one}" for one in waiting)
            total = len(self.rows) * max(one.growth for one in waiting)
            return _Judged("hold", reasons, "wait for", max(total, least))
        reasons = tuple(f"within its margin: {one}" for one in self.measures)
        return _Judged("promote", reasons, "raise the share")

    def how_long(self, missing: int) -> str:
        """Return how long exchanges take to come at the rate of the last 24 hours."""
        times = self.rows["at"][self.rows["at"] > self.scope.now - _DAY_US]
        if times.empty:
            return "none came in the last 24 hours"
        rate = len(times) * _HOUR_US / max(self.scope.now - int(times.iloc[0]), _HOUR_US // 60)
        hours = missing / rate
        took = f"{hours:.0f} h" if hours > 1 else f"{math.ceil(hours * 60)} min"
        took = f"{hours / 24:.0f} days" if hours > _DAYS else took
        return f"about {took} at today's rate of {rate:.{0 if rate > 1 else 2}f} an hour"

    def _codes(self) -> str:
        codes = self.rows["code"][self.failed & self.graph].replace("", "not served by graph")
        return ", ".join(f"{code} ({count})" for code, count in codes.value_counts()[:3].items())
