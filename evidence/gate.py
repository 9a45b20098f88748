"""The gate: whether a candidate may serve more, from everything measured of a flow.

Rollback comes from evidence that may be looked at at any time (`evidence/sequential.py`), and only
where the best estimate is beyond the margin, too. Promotion needs every critical interval to end
within its margin, narrow enough that an equal candidate would be promoted. All else holds, or
cannot tell. docs/decisions/0058 says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, isfinite, log
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from evidence.decision import NAMED, Check, Decision, LastingWrites, StackFigure, Verdict
from evidence.in_force import CodeInForce, code_in_force
from evidence.intervals import (
    RatioEstimate,
    Sample,
    design_effect,
    difference_interval,
    mean_ratio,
    percentile,
    percentile_ratio,
    percentile_with_interval,
    share_interval,
)
from evidence.outcomes import ExchangeOutcome
from evidence.power import needed_for_no_more, needed_for_no_worse
from evidence.sequential import (
    TurnValues,
    evidence_by_turn,
    failure_evidence,
    percentile_evidence,
)
from evidence.tests import MISMATCH, binomial, holm

CONTROL: Final = "legacy"
CANDIDATE: Final = "graph"
STACKS: Final = (CONTROL, CANDIDATE)
FEWEST: Final = 30
"""Of a check that is not critical: with fewer requests on a side it says nothing."""
VOIDS: Final = frozenset({"rows", "sample_ratio"})
"""Checks without which no other one counts."""
_A_PERCENT: Final = 1_000
"""Buckets."""
_FIXED: Final = frozenset({"disabled", "forced_header", "force_list", "other_format", "retired"})
"""Why a stack was assigned that was not drawn."""
_FAILED: Final = frozenset({"failed", "truncated", "timeout"})
_LEAST: Final = 1.0
"""Microseconds: a ratio needs values above 0."""
_MILLISECOND: Final = 1_000.0
_MILLION: Final = 1_000_000.0
_MOST_DIGITS: Final = 99.0
_CAUSES: Final = 3
"""Unwaived causes that are named."""

Floats = NDArray[np.float64]
SHARE: Final = "share"
RATIO: Final = "ratio - 1"
"""Units of how much worse a candidate is: of a share in points, else as a share of the control."""
Kind = Literal["rate", "percentile", "mean"]


class GateMeasure(NamedTuple):
    """One figure of both stacks: `of` is None of an exchange that has no such value.

    `where` selects the rows that count most, as a condition of jq.
    """

    name: str
    title: str
    kind: Kind
    of: Callable[[ExchangeOutcome], float | None]
    where: str
    p: float = 0.0


def _whole(value: Callable[[ExchangeOutcome], float | None]) -> Callable[..., float | None]:
    """Leave out streams whose client left: how long they would have taken is unknown."""
    return lambda row: None if row.client_left or row.end == "cancelled" else value(row)


def _rate(
    name: str, title: str, of: Callable[[ExchangeOutcome], float | None], w: str
) -> GateMeasure:
    return GateMeasure(name, title, "rate", of, w)


def _times(
    name: str, title: str, of: Callable[[ExchangeOutcome], float | None], field: str, *ps: int
) -> list[GateMeasure]:
    return [
        GateMeasure(
            f"{name}_p{p}", f"P{p} of {title}", "percentile", of, f".{field} != null", p / 100
        )
        for p in ps
    ]


_ENDED_BADLY = '(.end | IN("failed", "truncated", "timeout"))'
MEASURES: Final[Mapping[str, GateMeasure]] = {
    one.name: one
    for one in (
        _rate(
            "failures",
            "requests that failed or that another stack had to serve",
            lambda row: float(row.end in _FAILED or bool(row.fallback)),
            f'.fallback != "" or {_ENDED_BADLY}',
        ),
        _rate(
            "errors",
            "requests whose client got an error",
            lambda row: float(row.end in _FAILED),
            _ENDED_BADLY,
        ),
        _rate(
            "truncated",
            "streams that broke off",
            lambda row: float(row.end == "truncated"),
            '.end == "truncated"',
        ),
        _rate(
            "fallbacks",
            "requests that another stack took over",
            lambda row: float(bool(row.fallback)),
            '.fallback != ""',
        ),
        _rate(
            "refusals",
            "refused requests",
            lambda row: float(row.end == "refused"),
            '.end == "refused"',
        ),
        _rate(
            "client_left",
            "clients that left before the end",
            lambda row: float(row.client_left),
            ".client_left",
        ),
        # Where there is no text there is no time to it either: such answers would flatter times.
        _rate(
            "no_text",
            "completed requests whose answer has no text",
            lambda row: float(row.first_text is None) if row.end == "completed" else None,
            '.end == "completed" and .first_text == null',
        ),
        _rate(
            "tool_failures",
            "requests with a failed tool call, of those with tool calls",
            lambda row: float(row.tool_failures > 0) if row.tool_calls else None,
            ".tool_failures > 0",
        ),
        _rate(
            "feedback",
            "bad ratings, of all ratings",
            lambda row: None if row.feedback is None else float(row.feedback < 0),
            ".feedback == -1",
        ),
        *_times("ttfe", "time to first event", lambda row: row.first_frame, "first_frame", 50, 95),
        *_times("ttft", "time to first text", lambda row: row.first_text, "first_text", 50, 95),
        *_times("e2e", "time to the end", _whole(lambda row: row.last_frame), "last_frame", 50, 95),
        *_times("gap", "the longest gap", _whole(lambda row: row.longest_gap), "longest_gap", 95),
        GateMeasure(
            "tokens",
            "mean tokens",
            "mean",
            lambda row: float(row.prompt_tokens + row.completion_tokens),
            ".prompt_tokens + .completion_tokens > 0",
        ),
        GateMeasure("cost", "mean cost", "mean", lambda row: row.cost, ".cost != null"),
    )
}
"""What is compared, by name."""


class GateRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a promotion needs.

    `margins` say how much worse the candidate may be, by measure: a share of requests for rates, a
    share of the control's figure for all others. `objectives` are limits of the candidate's own
    figures: a share, seconds, tokens, money. `requests` is the least a side for a critical check,
    `pairs` the least compared pairs; `losses` the share of records that may be missing.
    """

    margins: Mapping[str, float]
    critical: frozenset[str]
    objectives: Mapping[str, float] = {}
    requests: int = 500
    pairs: int = 100
    losses: float = 0.05


class PairFindings(msgspec.Struct, frozen=True, kw_only=True):
    """What comparing pairs of runs of the code in force found.

    `other_code` pairs more have runs of other code. `unwaived` are the causes that are not waived,
    with the share of pairs they are in; `noise` is the share in which the control differs from
    itself. `due` pairs should be there, of whatever code, `lost` of them are missing, dropped or
    unreadable. `expected`: a promotion needs pairs.
    """

    pairs: int = 0
    other_code: int = 0
    unwaived: Mapping[str, float] = {}
    noise: float = 0.0
    replayed: int = 0
    due: int = 0
    lost: int = 0
    expected: bool = True


class GateEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything measured of a flow whose candidate is configured to serve `percent`.

    `in_force`: routers read this percentage, and assignments under another one are no evidence.
    `code` is the code in force; None where outcomes alone show it.
    `outcomes` are in any order. `live` is false where the candidate is to serve nobody yet: only
    pairs and what else was checked count. `checks` were made elsewhere: load, self-test, noise.
    """

    flow: str
    percent: float
    to: float
    in_force: bool = False
    code: CodeInForce | None = None
    outcomes: Sequence[ExchangeOutcome] = ()
    findings: PairFindings = PairFindings()
    checks: Sequence[Check] = ()
    lasting: Sequence[LastingWrites] = ()
    live: bool = True
    captures: str = ""


def decision_of(evidence: GateEvidence, rules: GateRules) -> Decision:
    """Decide; never raises, whatever the rows are."""
    rows = sorted(evidence.outcomes, key=lambda row: (row.began, row.exchange))
    sound = [row for row in rows if not _unsound(row)]
    share = share_in_force(sound, evidence.percent)
    window, left_out = comparable(sound, share, evidence.code or code_in_force(sound))
    checks: list[Check] = [_rows_check(len(rows) - len(sound), len(rows))]
    if evidence.live:
        checks.append(_sample_ratio(window, share, evidence.percent if evidence.in_force else None))
        checks += _compared(window, rules)
        checks += _enough(window, rules)
    checks += _findings(evidence.findings, rules)
    checks += evidence.checks
    return Decision(
        flow=evidence.flow,
        verdict=verdict_of(checks),
        percent=evidence.percent,
        to=evidence.to,
        checks=tuple(sorted(checks, key=_order(verdict_of(checks)))),
        captures=evidence.captures,
        compared=len(window),
        first=window[0].began if window else 0,
        last=window[-1].began if window else 0,
        left_out=dict(sorted(left_out.items())),
        lasting=tuple(evidence.lasting),
    )


def verdict_of(checks: Iterable[Check]) -> Verdict:
    """Return what checks say together.

    Void data is no reason for anything. Else the first of: a critical rollback, a hold, a critical
    check that cannot tell.
    """
    found = [*checks]
    if any(one.name in VOIDS and one.verdict == "cannot_tell" for one in found):
        return "cannot_tell"
    if any(one.verdict == "rollback" for one in found):
        return "rollback"
    if any(one.verdict == "hold" for one in found):
        return "hold"
    critical = [one for one in found if one.critical]
    if not critical or any(one.verdict == "cannot_tell" for one in critical):
        return "cannot_tell"
    return "promote"


def _order(verdict: Verdict) -> Callable[[Check], tuple[bool, bool]]:
    return lambda one: (one.verdict != verdict, not one.critical)


# Which rows may be compared ---------------------------------------------------------------------


def _unsound(row: ExchangeOutcome) -> bool:
    """Whether a row has a number that no clock and no bill gives."""
    numbers = (row.began, row.first_frame, row.first_text, row.last_frame, row.longest_gap)
    counts = (row.prompt_tokens, row.completion_tokens, row.tool_calls, row.tool_failures, row.cost)
    return any(one is not None and not (isfinite(one) and one >= 0) for one in (*numbers, *counts))


def share_in_force(rows: Sequence[ExchangeOutcome], configured: float) -> float | None:
    """Return the percentage under which the last rows, in order of time, were assigned.

    Buckets below it went to the candidate, the others to the control: the rows of the last
    configuration bound it. The configured one where that fits, else the middle of the bounds. None
    where no percentage does.
    """
    drawn = [row for row in rows if row.assigned_by == "percent" and row.bucket >= 0]
    if not drawn:
        return None
    last = [row for row in drawn if row.config == drawn[-1].config]
    low = max((row.bucket + 1 for row in last if row.assigned == CANDIDATE), default=0)
    high = min((row.bucket for row in last if row.assigned != CANDIDATE), default=100 * _A_PERCENT)
    if low > high:
        return None
    if low <= configured * _A_PERCENT <= high:
        return configured
    return (low + high) / 2 / _A_PERCENT


def comparable(
    rows: Sequence[ExchangeOutcome], share: float | None, code: CodeInForce
) -> tuple[list[ExchangeOutcome], Counter[str]]:
    """Return the rows, in order of time, drawn under one percentage and served by the same code.

    Left out are those from before it was in force, forced ones, and conversations that began before
    and kept their stack: shares that change would mix old conversations into one side. What other
    code of a stack did is no evidence of what this one does.
    """
    left: Counter[str] = Counter()
    drawn: list[ExchangeOutcome] = []
    for row in rows:
        if row.assigned_by in _FIXED:
            left["forced or switched off"] += 1
            continue
        if share is not None and _contradicts(row, share) and row.assigned_by == "percent":
            left["under another percentage"] += len(drawn) + 1
            drawn = []
            continue
        if not code.counts(row):
            left["served by other code"] += 1
            continue
        drawn.append(row)
    kept: list[ExchangeOutcome] = []
    begun: dict[str, bool] = {}
    for row in drawn:
        new = row.assigned_by != "pinned" and not (share is not None and _contradicts(row, share))
        if begun.setdefault(row.conversation, new) if row.conversation else new:
            kept.append(row)
        else:
            left["of a conversation that began before"] += 1
    return kept, left


def _contradicts(row: ExchangeOutcome, share: float) -> bool:
    """Whether a percentage would have assigned a row to another stack."""
    return row.bucket >= 0 and (row.assigned == CANDIDATE) != (row.bucket < share * _A_PERCENT)


def _rows_check(unsound: int, rows: int) -> Check:
    if unsound:
        return Check(
            name="rows",
            verdict="cannot_tell",
            reason=f"{unsound:,} of {rows:,} exchanges have figures that are no number",
            value=unsound,
            bound=0,
            unit="exchanges",
            n=rows,
            critical=True,
        )
    return Check(
        name="rows",
        verdict="promote",
        reason="all figures of all exchanges are numbers",
        value=0,
        bound=0,
        unit="exchanges",
        n=rows,
    )


def _sample_ratio(
    rows: Sequence[ExchangeOutcome], share: float | None, in_force: float | None
) -> Check:
    """Ask whether each stack has the route keys that the percentage gives it.

    `share` is what assignments show, `in_force` what it has to be, where that is known. Keys with
    the same bucket count once: heavy users are no skew.
    """
    stacks = {row.bucket: row.assigned for row in rows if row.bucket >= 0}
    hits, n = sum(stack == CANDIDATE for stack in stacks.values()), len(stacks)
    query = "group_by(.bucket) | map(.[0].assigned) | group_by(.) | map({(.[0]): length})"
    check = Check(
        name="sample_ratio",
        verdict="cannot_tell",
        reason="",
        n=n,
        critical=True,
        unit="%",
        rows=f"jq -s '{query}' rows.jsonl",
    )
    replace = msgspec.structs.replace
    if not n:
        return replace(check, reason="no assignment was drawn: there is no split to check")
    if share is None:
        return replace(
            check,
            reason="assignments fit no one percentage: hosts, or rules of a flag service, differ",
        )
    if in_force is not None and share != in_force:
        why = f"assignments are of some {share:.3g} %, and {in_force:g} % is in force"
        return replace(check, reason=f"{why}: routers read other flags, or have not read these yet")
    if not 0 < share < 100:  # noqa: PLR2004
        return replace(check, reason=f"at {share:g} % one stack has all requests")
    p, seen = binomial(hits, n, share / 100), 100 * hits / n
    text = f"{seen:.2f} % of {n:,} route keys at a percentage of {share:g}"
    check = replace(check, value=seen, bound=share)
    if p < MISMATCH:
        return replace(check, reason=f"the split is skewed: {text}, p = {p:.1g}; nothing counts")
    return replace(check, verdict="promote", reason=f"the split is as configured: {text}")


def _enough(rows: Sequence[ExchangeOutcome], rules: GateRules) -> list[Check]:
    """Ask for enough requests where no critical measure does: without data nothing passes."""
    if rules.critical & MEASURES.keys():
        return []
    fewest = min(sum(row.assigned == stack for row in rows) for stack in STACKS)
    return [
        Check(
            name="requests",
            verdict="promote" if fewest >= rules.requests else "cannot_tell",
            reason=f"{fewest:,} requests on a side, {rules.requests:,} are due",
            value=fewest,
            bound=rules.requests,
            unit="requests",
            n=len(rows),
            critical=True,
        )
    ]


# Both stacks compared ---------------------------------------------------------------------------


class _Values(NamedTuple):
    """Values in order of time, each with its conversation, its turn, and the index of its row."""

    sample: Sample
    turns: NDArray[np.int64]
    at: NDArray[np.int64]

    @property
    def by_turn(self) -> TurnValues:
        """The values with the turns of conversations that they are of."""
        return TurnValues(self.sample.values, self.turns)

    def of(self, rows: NDArray[np.bool_]) -> _Values:
        """Return those of some rows, their conversations numbered from 0."""
        kept = rows[self.at]
        _, conversations = np.unique(self.sample.conversations[kept], return_inverse=True)
        sample = Sample(self.sample.values[kept], conversations)
        return _Values(sample, self.turns[kept], self.at[kept])


class _Window:
    """The rows that are compared, in order of time: every measure chooses among them alike."""

    def __init__(self, rows: Sequence[ExchangeOutcome]) -> None:
        self.rows = rows
        self.assigned, self.served = (
            {stack: np.array([name == stack for name in names], dtype=bool) for stack in STACKS}
            for names in ([row.assigned for row in rows], [row.served for row in rows])
        )
        # A row of no conversation is one by itself.
        numbers: dict[str | int, int] = {}
        named = (row.conversation or i for i, row in enumerate(rows))
        self._conversations = np.array(
            [numbers.setdefault(name, len(numbers)) for name in named], dtype=np.int64
        )

    def values(self, measure: GateMeasure) -> _Values:
        """Return the values of all rows that have one.

        Turns are those of both sides: a conversation has one value of each, on one of them.
        """
        found = list(map(measure.of, self.rows))
        values = np.array([value for value in found if value is not None], dtype=float)
        if measure.kind == "percentile":
            values = np.maximum(values, _LEAST)
        at = np.flatnonzero(np.array([value is not None for value in found], dtype=bool))
        conversations = self._conversations[at]
        return _Values(Sample(values, conversations), _turns(conversations), at)


def _turns(conversations: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count, for each value, those of its conversation before it."""
    order = np.argsort(conversations, kind="stable")
    begins = np.flatnonzero(np.diff(conversations[order], prepend=-1))
    sizes = np.diff(begins, append=len(order))
    turns = np.empty(len(order), dtype=np.int64)
    turns[order] = np.arange(len(order)) - np.repeat(begins, sizes)
    return turns


def _figure(measure: GateMeasure, values: Floats) -> float | None:
    """Return the figure of some values: a percentile in ms, a share, a mean."""
    if not len(values):
        return None
    if measure.kind == "percentile":
        return percentile(np.sort(values).tolist(), measure.p) / _MILLISECOND
    return float(values.mean())


def _figure_of(
    measure: GateMeasure, stack: str, side: _Values, served: _Values, window: _Window
) -> StackFigure:
    order = np.argsort(-side.sample.values, kind="stable")[:NAMED]
    if measure.kind == "rate":
        order = order[side.sample.values[order] > 0]
    return StackFigure(
        stack=stack,
        value=_figure(measure, side.sample.values),
        n=len(side.at),
        as_served=_figure(measure, served.sample.values),
        exchanges=tuple(window.rows[i].exchange for i in side.at[order]),
    )


class _Comparison(NamedTuple):
    """A check, and the log e-value against "the candidate is no worse"."""

    check: Check
    evidence: float = 0.0


def _compared(rows: Sequence[ExchangeOutcome], rules: GateRules) -> list[Check]:
    """Compare every measure; of the critical ones, those with evidence enough roll back.

    Each e-value is turned into the p-value 1 / e, so that many measures raise no more false alarms
    than one (V. Vovk and R. Wang, E-values: calibration, combination and applications, Annals of
    Statistics 49, 2021).
    """
    window = _Window(rows)
    found = [_comparison(one, window, rules) for one in MEASURES.values()]
    alarms = [one for one in found if one.check.critical]
    rejected = holm([exp(-max(one.evidence, 0.0)) for one in alarms])
    worse = {
        one.check.name
        for one, sure in zip(alarms, rejected, strict=True)
        if sure and one.check.value is not None and one.check.value > (one.check.bound or 0.0)
    }
    checks = [
        msgspec.structs.replace(
            one.check, verdict="rollback", reason=_alarm(one) if one.check.name in worse else ""
        )
        if one.check.name in worse
        else one.check
        for one in found
    ]
    return checks + [
        _objective(MEASURES[name], limit, window)
        for name, limit in sorted(rules.objectives.items())
    ]


def _alarm(comparison: _Comparison) -> str:
    digits = min(comparison.evidence / log(10), _MOST_DIGITS)
    what = comparison.check.reason.partition("; ")[0]
    return f"{what}; so much worse by chance: less than once in 10^{digits:.1f}, at any look"


def _comparison(measure: GateMeasure, window: _Window, rules: GateRules) -> _Comparison:
    values = window.values(measure)
    control, candidate = sides = [values.of(window.assigned[stack]) for stack in STACKS]
    figures = tuple(
        _figure_of(measure, stack, side, values.of(window.served[stack]), window)
        for stack, side in zip(STACKS, sides, strict=True)
    )
    critical = measure.name in rules.critical
    check = Check(
        name=measure.name,
        verdict="cannot_tell",
        reason="",
        bound=rules.margins[measure.name],
        unit=SHARE if measure.kind == "rate" else RATIO,
        n=sum(figure.n for figure in figures),
        critical=critical,
        figures=figures,
        figure_unit={"rate": "share", "percentile": "ms", "mean": ""}[measure.kind],
        rows=f"jq -c 'select({measure.where})' rows.jsonl",
    )
    fewest = min(len(side.at) for side in sides)
    if not fewest:
        missing = " and ".join(s for s, side in zip(STACKS, sides, strict=True) if not len(side.at))
        reason = f"{measure.title}: no such request of {missing}"
        return _Comparison(msgspec.structs.replace(check, reason=reason))
    least = rules.requests if critical else FEWEST
    compare = {"rate": _rates, "percentile": _percentiles, "mean": _means}[measure.kind]
    found = compare(measure, check, control, candidate)
    text = _text(measure, found.check)
    if fewest < least:
        reason, verdict = f"{text}; {fewest:,} requests on a side, {least:,} are due", "cannot_tell"
    else:
        harmonic = 2 / sum(1 / len(side.at) for side in sides)
        verdict, why = _judged(found, harmonic)
        reason = f"{text}; {why}" if why else text
    return _Comparison(
        msgspec.structs.replace(found.check, verdict=verdict, reason=reason), found.evidence
    )


class _Estimate(NamedTuple):
    """A check with its value and interval, the evidence, and the requests a side that would tell.

    `flaw` is why the figures say nothing; "" where they do.
    """

    check: Check
    evidence: float = 0.0
    needed: int = 0
    flaw: str = ""


def _judged(found: _Estimate, n: float) -> tuple[Verdict, str]:
    """Return what an estimate over `n` requests a side says by itself, and why."""
    check, margin = found.check, found.check.bound or 0.0
    if found.flaw or check.value is None:
        return "cannot_tell", found.flaw
    if not check.critical:
        worse = check.low is not None and check.low > 0 and check.value > margin
        return ("hold", "worse, and by more than its margin") if worse else ("promote", "")
    if check.low is None or check.high is None:
        return "cannot_tell", "too few conversations for an interval"
    if check.low > margin:
        return "hold", "worse by more than its margin"
    if check.high >= margin:
        return "hold", f"not shown to be within its margin; {found.needed:,} a side may show it"
    if n < found.needed:
        return "hold", f"within its margin; {found.needed:,} requests a side are planned"
    return "promote", ""


def _rates(measure: GateMeasure, check: Check, control: _Values, candidate: _Values) -> _Estimate:
    del measure
    sides = control, candidate
    (hits_a, n_a), (hits_b, n_b) = ((float(s.sample.values.sum()), len(s.at)) for s in sides)
    one, other = (design_effect(side.sample) for side in sides)
    low, high = difference_interval((hits_a / one, hits_b / other), (n_a / one, n_b / other))
    # Of a share of 0 the interval still has a width: that of one case more.
    share = min((hits_a + hits_b + 1) / (n_a + n_b), 0.5)
    margin = check.bound or 0.0
    needed = needed_for_no_more(share, margin) * max(one, other) if margin else 0
    value = hits_b / n_b - hits_a / n_a
    few = min(n_a / one, n_b / other) < FEWEST
    return _Estimate(
        msgspec.structs.replace(check, value=value, low=low, high=high),
        evidence_by_turn(control.by_turn, candidate.by_turn, failure_evidence),
        round(needed),
        "a few conversations have most of them" if few else "",
    )


def _percentiles(
    measure: GateMeasure, check: Check, control: _Values, candidate: _Values
) -> _Estimate:
    a, b = (np.sort(side.sample.values) for side in (control, candidate))
    value = percentile(b.tolist(), measure.p) / percentile(a.tolist(), measure.p) - 1
    check = msgspec.structs.replace(check, value=value)
    if len(a) > 1 and len(b) > 1 and (a[0] == a[-1] or b[0] == b[-1]):
        return _Estimate(check, flaw="all requests of a stack took the same time: no clock does so")
    if not check.critical and value <= (check.bound or 0.0):
        return _Estimate(check)  # drawing an interval takes long, and it cannot be worse
    ratio = percentile_ratio(control.sample, candidate.sample, measure.p)
    evidence = 0.0
    if check.critical:
        evidence = evidence_by_turn(
            control.by_turn,
            candidate.by_turn,
            lambda a, b: percentile_evidence(np.sort(a), np.sort(b), measure.p),
        )
    return _with_ratio(check, ratio, (len(a), len(b)), evidence)


def _means(measure: GateMeasure, check: Check, control: _Values, candidate: _Values) -> _Estimate:
    del measure
    mean = float(control.sample.values.mean())
    if not mean:
        return _Estimate(check, flaw="the mean of legacy is 0")
    check = msgspec.structs.replace(check, value=float(candidate.sample.values.mean()) / mean - 1)
    ratio = mean_ratio(control.sample, candidate.sample)
    return _with_ratio(check, ratio, (len(control.at), len(candidate.at)))


def _with_ratio(
    check: Check, ratio: RatioEstimate | None, n: tuple[int, int], evidence: float = 0.0
) -> _Estimate:
    if ratio is None or not isfinite(ratio.high):
        return _Estimate(check, evidence)
    check = msgspec.structs.replace(check, low=ratio.low - 1, high=ratio.high - 1)
    margin, harmonic = check.bound or 0.0, 2 / (1 / n[0] + 1 / n[1])
    # The interval at hand says how wide one of `harmonic` requests a side is.
    needed = needed_for_no_worse(ratio, round(harmonic), margin) if margin and ratio.low > 0 else 0
    return _Estimate(check, evidence, needed)


def _objective(measure: GateMeasure, limit: float, window: _Window) -> Check:
    """Ask whether the candidate's own figure is within a limit."""
    side = window.values(measure).of(window.assigned[CANDIDATE])
    value, high = _figure(measure, side.sample.values), None
    if measure.kind == "percentile" and value is not None:
        value /= _MILLISECOND
        bound = percentile_with_interval(np.sort(side.sample.values).tolist(), measure.p).high
        high = None if bound is None else bound / _MILLION
    elif measure.kind == "rate" and len(side.at):
        high = share_interval(float(side.sample.values.sum()), len(side.at))[1]
    elif value is not None:
        high = value
    unit = {"rate": "share", "percentile": "s", "mean": ""}[measure.kind]
    check = Check(
        name=f"objective_{measure.name}",
        verdict="promote",
        reason=(
            f"{measure.title} of graph: {plain_text(value, unit)}, "
            f"allowed: {plain_text(limit, unit)}"
        ),
        value=value,
        high=high,
        bound=limit,
        unit=unit,
        n=len(side.at),
        critical=True,
        rows=f"jq -c 'select({measure.where})' rows.jsonl",
    )
    if value is None or high is None:
        reason = f"{check.reason}: too few requests"
        return msgspec.structs.replace(check, verdict="cannot_tell", reason=reason)
    if high > limit:
        reason = check.reason if value > limit else f"{check.reason}: its interval ends beyond"
        return msgspec.structs.replace(check, verdict="hold", reason=reason)
    return check


# What was found beside --------------------------------------------------------------------------


def _findings(found: PairFindings, rules: GateRules) -> list[Check]:
    # Together: many causes, each as rare as noise, are not noise.
    total = min(sum(found.unwaived.values()), 1.0)
    above = found.unwaived if total > found.noise else {}
    worst = max(above.values(), default=0.0)
    replayed = f", {found.replayed:,} of them replays" if found.replayed else ""
    others = f"; {found.other_code:,} of other code are left out" if found.other_code else ""
    check = Check(
        name="findings",
        verdict="promote",
        reason=f"no unwaived difference in {found.pairs:,} pairs of runs{replayed}{others}",
        value=total if above else 0.0,
        bound=found.noise,
        unit="share",
        n=found.pairs,
        critical=found.expected,
        rows="report.html",
    )
    if above:
        causes = "1 cause" if len(above) == 1 else f"{len(above):,} causes"
        named = ", ".join(list(above)[:_CAUSES])
        reason = (
            f"{causes} of differences not waived, in up to {100 * worst:.2f} % of "
            f"{found.pairs:,} pairs{replayed}: {named}{others}"
        )
        check = msgspec.structs.replace(check, verdict="hold", reason=reason)
    elif found.pairs < rules.pairs:
        reason = f"{found.pairs:,} pairs of runs were compared, {rules.pairs:,} are due{others}"
        check = msgspec.structs.replace(check, verdict="cannot_tell", reason=reason)
    share = found.lost / found.due if found.due else 0.0
    lost = Check(
        name="losses",
        verdict="promote" if share <= rules.losses else "cannot_tell",
        reason=(
            f"{found.lost:,} of {found.due:,} pairs are missing, dropped or unreadable: "
            f"{100 * share:.2f} %, allowed: {100 * rules.losses:g} %"
        ),
        value=share,
        bound=rules.losses,
        unit="share",
        n=found.due,
        critical=share > rules.losses,
        rows="report.html",
    )
    return [check, lost]


# Words ------------------------------------------------------------------------------------------


def _text(measure: GateMeasure, check: Check) -> str:
    """Describe both figures and how they compare."""
    control, candidate = (plain_text(one.value, check.figure_unit) for one in check.figures)
    text = f"{measure.title}: legacy {control}, graph {candidate}"
    if check.value is None:
        return text
    between = ""
    if check.low is not None and check.high is not None:
        between = f" ({change_text(check, check.low)} to {change_text(check, check.high)})"
    changed, allowed = change_text(check, check.value), change_text(check, check.bound)
    return f"{text}: {changed}{between}, allowed: {allowed}"


def change_text(check: Check, value: float | None) -> str:
    """Write how much worse a figure is than the control's, or may be."""
    if value is None:
        return "?"
    return f"{100 * value:+.2f} points" if check.unit == SHARE else f"{100 * value:+.1f} %"


def plain_text(value: float | None, unit: str) -> str:
    """Write a figure in its unit."""
    match unit:
        case _ if value is None:
            return "none"
        case "share":
            return f"{100 * value:.2f} %"
        case _:
            return f"{value:,.4g}{f' {unit}' if unit else ''}"
