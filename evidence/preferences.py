"""Preferences: which of two answers is better, by a person or a model, and what they add up to.

A judge sees two answers as A and B, in an order that is drawn, and never which stack wrote which.
Everything drawn follows from a seed and the exchange's id: it does not depend on the order in which
captures are read, and can be drawn again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from heapq import heappush, heapreplace
from typing import Final, Literal, NamedTuple

import msgspec

from evidence.decision import Check
from evidence.intervals import exact_share_interval
from evidence.tests import binomial

Choice = Literal["a", "b", "tie", "skip", "invalid"]
"""What a judge says of A and B; `invalid`: a model's answer is none of the others."""

Preferred = Literal["control", "candidate", "tie", "position", "invalid", "skipped"]
"""Which answer is better; `position`: the judge changed its mind with the order."""

PERSON: Final = "person"
"""The judge of every judgement that no model made."""
FEWEST_CHECKS: Final = 20
"""Comparisons of the control with itself before a model's preferences count."""
MOST_UNRELIABLE: Final = 0.3
"""Share of these in which it may follow the position, be invalid, or prefer one of equal texts."""
SIGNIFICANT: Final = 0.05


class AnswerPair(NamedTuple):
    """Two answers to one request; `began` in microseconds since the Unix epoch.

    Of a pair of two control runs `candidate` is the second one.
    """

    exchange: str
    flow: str
    began: int
    request: str
    control: str
    candidate: str


class ShownPair(NamedTuple):
    """A pair as a judge sees it."""

    pair: AnswerPair
    a: str
    b: str


class JudgedPair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One judgement, as it is stored: no text of it.

    `judge` is `person` or a model's id. `itself`: both answers were the control's; `same`: they
    were one and the same text.
    """

    exchange: str
    flow: str
    began: int
    judge: str
    preferred: Preferred
    itself: bool = False
    same: bool = False


class Sampler:
    """Draws up to `size` pairs, each exchange as likely as any other, with as many in memory."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._drawn: list[tuple[int, AnswerPair]] = []
        self.offered = 0

    def add(self, pair: AnswerPair) -> None:
        """Offer a pair; an exchange is to be offered once."""
        self.offered += 1
        entry = -_draw(self._seed, "sample", pair.exchange), pair
        if len(self._drawn) < self._size:
            heappush(self._drawn, entry)
        elif self._drawn and entry > self._drawn[0]:
            heapreplace(self._drawn, entry)

    @property
    def pairs(self) -> list[AnswerPair]:
        """The pairs, in the order in which they were drawn: a smaller sample begins a larger."""
        return [pair for _, pair in sorted(self._drawn, reverse=True)]


def shown(pair: AnswerPair, seed: int) -> ShownPair:
    """Draw which answer is A."""
    if candidate_first(pair.exchange, seed):
        return ShownPair(pair, pair.candidate, pair.control)
    return ShownPair(pair, pair.control, pair.candidate)


def candidate_first(exchange: str, seed: int) -> bool:
    """Whether the candidate's answer is A."""
    return bool(_draw(seed, "order", exchange) & 1)


def _draw(seed: int, what: str, exchange: str) -> int:
    name = f"{seed}\x1f{what}\x1f{exchange}".encode("utf-8", "replace")
    return int.from_bytes(blake2b(name, digest_size=8).digest())


def preferred(choice: Choice, *, candidate_is_a: bool) -> Preferred:
    """Return which answer a choice between A and B prefers."""
    match choice:
        case "a":
            return "candidate" if candidate_is_a else "control"
        case "b":
            return "control" if candidate_is_a else "candidate"
        case "skip":
            return "skipped"
        case _:
            return choice


def of_both_orders(control_first: Choice, candidate_first: Choice) -> Preferred:
    """Join a judge's choices with the control as A, and with the candidate as A.

    An invalid choice is no tie; two that disagree follow the position, whatever they prefer.
    L. Zheng et al., Judging LLM-as-a-judge, NeurIPS 2023, section 3.4.
    """
    one = preferred(control_first, candidate_is_a=False)
    other = preferred(candidate_first, candidate_is_a=True)
    if "invalid" in {one, other}:
        return "invalid"
    return one if one == other else "position"


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's comparisons of the control with itself: how far it can be relied on.

    `same` of them were of one text; `preferred` counts those of one text that it did not call a
    tie in both orders, but no `position` or `invalid` one.
    """

    pairs: int = 0
    same: int = 0
    position: int = 0
    invalid: int = 0
    preferred: int = 0

    @property
    def unreliable(self) -> float:
        """The share in which it was not to be relied on; 1 of none."""
        return (self.position + self.invalid + self.preferred) / self.pairs if self.pairs else 1.0

    @property
    def passed(self) -> bool:
        """Whether its preferences count."""
        return self.pairs >= FEWEST_CHECKS and self.unreliable <= MOST_UNRELIABLE


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """What one judge prefers in one flow.

    `share` is that of the candidate, of pairs with a preference; `low` and `high` are its exact
    95 % interval, and `p` is the two-sided sign test's, which leaves ties out. None without a
    preference. `itself` is None of a person.
    """

    flow: str
    judge: str
    control: int = 0
    candidate: int = 0
    ties: int = 0
    position: int = 0
    invalid: int = 0
    skipped: int = 0
    share: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    itself: SelfCheck | None = None

    @property
    def decided(self) -> int:
        """How many pairs have a preference."""
        return self.control + self.candidate

    @property
    def counts(self) -> bool:
        """Whether the judge's word counts."""
        return self.itself is None or self.itself.passed


def tally(judged: Iterable[JudgedPair]) -> list[Preferences]:
    """Sum up judgements, in any order, by flow and judge; a person stands first."""
    found: dict[tuple[str, str], list[JudgedPair]] = {}
    for one in judged:
        found.setdefault((one.flow, one.judge), []).append(one)
    ordered = sorted(found, key=lambda key: (key[0], key[1] != PERSON, key[1]))
    return [_preferences(flow, judge, found[flow, judge]) for flow, judge in ordered]


def _preferences(flow: str, judge: str, judged: list[JudgedPair]) -> Preferences:
    counts = Counter(one.preferred for one in judged if not one.itself)
    wins, n = counts["candidate"], counts["candidate"] + counts["control"]
    low, high = exact_share_interval(wins, n) if n else (None, None)
    return Preferences(
        flow=flow,
        judge=judge,
        control=counts["control"],
        candidate=wins,
        ties=counts["tie"],
        position=counts["position"],
        invalid=counts["invalid"],
        skipped=counts["skipped"],
        share=wins / n if n else None,
        low=low,
        high=high,
        p=binomial(wins, n, 0.5) if n else None,
        itself=None if judge == PERSON else _self_check(judged),
    )


def _self_check(judged: Iterable[JudgedPair]) -> SelfCheck:
    checks = [one for one in judged if one.itself]
    counts = Counter(one.preferred for one in checks)
    return SelfCheck(
        pairs=len(checks),
        same=sum(one.same for one in checks),
        position=counts["position"],
        invalid=counts["invalid"],
        preferred=sum(one.same and one.preferred in {"control", "candidate"} for one in checks),
    )


def preferences_text(found: Preferences) -> str:
    """Describe in one sentence what a judge prefers."""
    judge = "people" if found.judge == PERSON else f"the judge model {found.judge}"
    if found.share is None or found.low is None or found.high is None:
        return f"{judge} preferred neither answer in any pair"
    return (
        f"{judge} preferred graph in {found.candidate:,} of {found.decided:,} pairs with a "
        f"preference ({100 * found.low:.1f} to {100 * found.high:.1f} %, p = {found.p:.2g})"
    )


def self_check_text(check: SelfCheck) -> str:
    """Describe in one sentence whether a judge model may be relied on, and why."""
    text = (
        f"against itself, in {check.pairs:,} pairs of legacy answers, {check.same:,} of them one "
        f"text: {check.position:,} followed the position, {check.invalid:,} were invalid, "
        f"{check.preferred:,} preferred one of equal texts"
    )
    if check.passed:
        return f"{text}; its preferences count"
    if check.pairs < FEWEST_CHECKS:
        return f"{text}; {FEWEST_CHECKS} pairs are due before its preferences count"
    limit = f"{100 * MOST_UNRELIABLE:g} %"
    return f"{text}; that is more than {limit}, and its preferences do not count"


def quality_check(
    judged: Iterable[JudgedPair],
    flow: str,
    margin: float,
    *,
    critical: bool,
    rows: str,
    left_out: int = 0,
) -> Check | None:
    """Ask whether the candidate's answers are liked less; None where nobody was asked.

    People count before models. It holds where the candidate is preferred less than half the time,
    by a sign test, and by more than `margin`, a share; a critical check also where that is not
    ruled out by the interval. A critical check that nobody judged cannot tell. `left_out` further
    judgements are of pairs that were not compared; the reason says so.
    """
    found = [one for one in tally(judged) if one.flow == flow]
    check = Check(
        name="quality",
        verdict="cannot_tell",
        reason="answers were not judged in pairs: `cutover judge`",
        bound=0.5 - margin,
        unit="share preferred",
        critical=critical,
        rows=rows,
    )
    if not found and not critical and not left_out:
        return None
    if found:
        check = _judged_check(check, found, 0.5 - margin)
    if left_out:
        reason = (
            f"{check.reason}; judgements left out, of pairs that were not compared: {left_out:,}"
        )
        check = msgspec.structs.replace(check, reason=reason)
    return check


def _judged_check(check: Check, found: Sequence[Preferences], least: float) -> Check:
    """Return a check with the preferences of people, else of a judge that may be relied on."""
    best = next((one for one in found if one.counts and one.decided), found[0])
    replace = msgspec.structs.replace
    check = replace(check, n=best.decided, reason=preferences_text(best))
    if best.itself is not None and not best.itself.passed:
        return replace(check, reason=f"{best.judge}, {self_check_text(best.itself)}")
    if best.share is None or best.p is None or best.low is None:
        return check
    check = replace(check, value=best.share, low=best.low, high=best.high)
    if best.share < least and best.p < SIGNIFICANT:
        return replace(check, verdict="hold")
    if check.critical and best.low < least:
        reason = f"{check.reason}: more pairs are due to rule out less than {100 * least:g} %"
        return replace(check, verdict="cannot_tell", reason=reason)
    return replace(check, verdict="promote")
