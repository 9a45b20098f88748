"""The study: whether legacy–graph exceeds legacy–legacy, over all messages and in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from compare.noise.distances import MEASURES, Distances, Measure
from evidence.intervals import CONFIDENCE, mean_interval
from evidence.permutation import (
    Chance,
    Choices,
    chance_of_all,
    chance_of_flag,
    chance_of_one,
    choices_of,
)
from evidence.power import needed_for_mean, needed_for_rare
from evidence.tests import holm

LEVEL = 1 - CONFIDENCE
MARGIN = 0.05
NAMED_AT_MOST = 20
Reading = Literal["exceeds", "within noise", "cannot tell"]


class MeasuredMessage(msgspec.Struct, frozen=True):
    """One message: how far other legacy runs, and the graph's, are from one legacy run."""

    exchange: str
    flow: str
    again: tuple[Distances, ...]
    graph: tuple[Distances, ...]


class FlaggedMessage(msgspec.Struct, frozen=True):
    """A message whose graph runs are farther from legacy than chance explains."""

    exchange: str
    p: float
    again: float
    graph: float


class Judgement(msgspec.Struct, frozen=True):
    """One measure of one flow.

    `again` and `graph` are mean distances legacy–legacy and legacy–graph, `difference` that of
    graph less that of legacy, between `low` and `high`. `more` and `less` count messages by its
    sign. `needed` messages would tell. Of the `flaggable` messages, those with runs enough, chance
    alone flags `by_chance`; `named` are the first that are.
    """

    flow: str
    measure: Measure
    reading: Reading
    messages: int
    again: float
    graph: float
    difference: float
    low: float
    high: float
    p: float
    resolution: float
    exact: bool
    more: int
    less: int
    needed: int
    flaggable: int
    flagged: int
    by_chance: float
    named: tuple[FlaggedMessage, ...] = ()


class Study(msgspec.Struct, frozen=True):
    """The noise of live model calls, measured; `left_out` counts messages by reason."""

    reading: Reading
    messages: int
    margin: float
    judgements: tuple[Judgement, ...]
    left_out: dict[str, int]


def study_of(
    messages: Sequence[MeasuredMessage],
    left_out: Mapping[str, int] | None = None,
    margin: float = MARGIN,
) -> Study:
    """Judge every measure of every flow; equal arguments give equal studies.

    `margin` is the least mean difference worth knowing, as a share.
    """
    ordered = sorted(messages, key=lambda message: (message.flow, message.exchange))
    samples = [
        _Sample(flow, measure, group)
        for flow, group in ((f, list(g)) for f, g in groupby(ordered, key=lambda m: m.flow))
        for measure in MEASURES
    ]
    real = holm([sample.chance.p for sample in samples], LEVEL)
    strictest = LEVEL / max(1, len(samples))
    judged = [s.judged(margin, strictest, real=r) for s, r in zip(samples, real, strict=True)]
    counts = dict(sorted((left_out or {}).items()))
    return Study(_whole(judged), len(ordered), margin, tuple(judged), counts)


def _whole(judged: Sequence[Judgement]) -> Reading:
    readings = {judgement.reading for judgement in judged}
    if "exceeds" in readings:
        return "exceeds"
    return "within noise" if readings == {"within noise"} else "cannot tell"


class _Sample:
    """The distances of one measure, in all messages of a flow."""

    def __init__(self, flow: str, measure: Measure, messages: Sequence[MeasuredMessage]) -> None:
        self._flow, self._measure, self._messages = flow, measure, messages
        index = MEASURES.index(measure)
        self._again = [[far[index] for far in message.again] for message in messages]
        self._graph = [[far[index] for far in message.graph] for message in messages]
        self._choices: list[Choices] = [
            choices_of(again, graph, seed)
            for seed, (again, graph) in enumerate(zip(self._again, self._graph, strict=True))
        ]
        self.chance: Chance = chance_of_all(self._choices)

    def judged(self, margin: float, strictest: float, *, real: bool) -> Judgement:
        seen = np.array([choices[0] for choices in self._choices])
        low, high = mean_interval(seen)
        enough = needed_for_rare(margin)
        within = len(seen) >= enough and high < margin
        flagged = self._flagged()
        return Judgement(
            flow=self._flow,
            measure=self._measure,
            reading="exceeds" if real else "within noise" if within else "cannot tell",
            messages=len(seen),
            again=_mean_of_means(self._again),
            graph=_mean_of_means(self._graph),
            difference=float(seen.mean()),
            low=low,
            high=high,
            p=self.chance.p,
            resolution=self.chance.resolution,
            exact=self.chance.exact,
            more=int(np.count_nonzero(seen > 0)),
            less=int(np.count_nonzero(seen < 0)),
            needed=0 if real or within else _needed(seen, margin, strictest, enough),
            flaggable=sum(1 / len(choices) <= LEVEL for choices in self._choices),
            flagged=len(flagged),
            by_chance=sum(chance_of_flag(choices, LEVEL) for choices in self._choices),
            named=tuple(flagged[:NAMED_AT_MOST]),
        )

    def _flagged(self) -> list[FlaggedMessage]:
        """List the messages in which what was seen is among the rarest choices."""
        found = [
            FlaggedMessage(message.exchange, chance_of_one(choices), _mean(again), _mean(graph))
            for message, choices, again, graph in zip(
                self._messages, self._choices, self._again, self._graph, strict=True
            )
        ]
        return sorted(
            (flag for flag in found if flag.p <= LEVEL),
            key=lambda flag: (flag.p, flag.again - flag.graph, flag.exchange),
        )


def _needed(seen: NDArray[np.float64], margin: float, level: float, enough: int) -> int:
    """Return how many messages would tell, were they like these: one way or the other."""
    mean = float(seen.mean())
    spread = float(seen.std(ddof=1)) if len(seen) > 1 else margin
    told = needed_for_mean(spread, max(margin - mean, mean), level)
    return max(told, enough, len(seen) + 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_of_means(values: Sequence[Sequence[float]]) -> float:
    return _mean([_mean(of_message) for of_message in values])


_METHOD = """
A model that is asked twice answers twice, differently. So legacy answers a message again, and the
graph is held against that: how far is its run from a legacy run, and how far is another legacy run
from the same one?

Distances go from 0 (equal) to 1 (nothing in common). Final text: insertions, removals and
replacements of words (of characters, where words are not spaced) as a share of the longer text
(Levenshtein; computed after Myers 1999). Tools: the share of calls, and of arguments with their
values, that only one run has (Ružička). Events: edits of the sequence of event names and the
outcome, as a share of the longer.

Over all messages: were the graph like legacy, it would be chance which of a message's runs are the
graph's. The p-value is the share of all such choices that give at least the mean difference seen,
one-sided (permutation test, Pitman 1937; with one run of each it flips signs); exact up to 65,536
choices, else from 9,999 seeded draws (Phipson and Smyth 2010). Over all measures and flows together
it errs in 5 % at most (Holm 1979).

The interval of the mean difference is 95 %, by the bootstrap over messages (BCa, Efron 1987, 2,000
seeded draws).

Exceeds: the test says so. Within noise: it does not, the interval ends below the margin, and there
are messages enough to have met a change that hits as small a share of them as the margin (rule of
three, Hanley and Lippman-Hand 1983). Otherwise it cannot be told, and the number of messages is
given that would (power 80 %, Cohen 1988).

One message is flagged when the graph's distance is so high among all choices of its runs that
chance puts it there in 5 % at most: with one run of the graph it must exceed those of 19 other
legacy runs, with three runs of the graph those of three other legacy runs. How many chance alone
would flag stands beside.
"""
METHOD = tuple(" ".join(part.split()) for part in _METHOD.split("\n\n"))


def study_text(found: Study) -> str:
    """Describe in one sentence what the study found."""
    messages = "1 message" if found.messages == 1 else f"{found.messages:,} messages"
    if not found.messages:
        return "noise of live model calls: cannot tell, no message was answered twice by legacy"
    wanted = max((judged.needed for judged in found.judgements), default=0)
    more = f"; about {wanted:,} messages would tell" if wanted else ""
    said = {
        "exceeds": "the graph differs from legacy by more than legacy does from itself",
        "within noise": "the graph differs from legacy no more than legacy does from itself",
        "cannot tell": f"cannot tell whether the graph differs by more{more}",
    }[found.reading]
    return f"noise of live model calls, in {messages}: {said}"


def reading_text(judged: Judgement) -> str:
    """Describe the reading of one measure."""
    if judged.reading == "cannot tell":
        return f"cannot tell (about {judged.needed:,} messages would)"
    return judged.reading


def p_value_text(judged: Judgement) -> str:
    """Write a p-value with its resolution."""
    if judged.resolution == 1:
        return "1 (no distance differs)"
    how = "exact" if judged.exact else "drawn"
    least = judged.p <= judged.resolution
    said = f"{'≤ ' if least and not judged.exact else ''}{judged.p:.2g}"
    return f"{said} ({how}, steps of {judged.resolution:.2g})"


def flags_text(judged: Judgement) -> str:
    """Write how many messages are flagged, and how many chance would."""
    if not judged.flaggable:
        return "cannot tell, too few runs of a message"
    return f"{judged.flagged:,} of {judged.flaggable:,} (by chance {judged.by_chance:.1f})"
