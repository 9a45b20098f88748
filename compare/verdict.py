"""The verdict on captures: equal, different or no data, each with its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from compare.tally import Tally

Label = Literal["equal", "different", "no data"]


class Verdict(msgspec.Struct, frozen=True):
    """A label and why; no data is not a pass."""

    label: Label
    reasons: tuple[str, ...]


def verdict_on(tally: Tally) -> Verdict:
    """Decide; what could not be looked at is always among the reasons."""
    if not tally.pairs:
        return Verdict("no data", (_nothing(tally), *_passed_over(tally)))
    if tally.different:
        causes = len(tally.clusters.by_key)
        reason = (
            f"{tally.different} of {_counted(tally.pairs, 'pair')} "
            f"{'differs' if tally.different == 1 else 'differ'}, "
            f"from {_counted(causes, 'cause')}"
        )
        return Verdict("different", (reason, *_bases(tally), *_passed_over(tally)))
    equal = "the one pair is" if tally.pairs == 1 else f"all {tally.pairs} pairs are"
    return Verdict("equal", (f"{equal} equal", *_bases(tally), *_passed_over(tally)))


def _nothing(tally: Tally) -> str:
    if not tally.exchanges:
        return "no exchange was found"
    return f"none of {_counted(tally.exchanges, 'exchange')} could be compared"


def _bases(tally: Tally) -> list[str]:
    return [f"{_counted(count, 'pair')}: {basis}" for basis, count in sorted(tally.bases.items())]


def _passed_over(tally: Tally) -> list[str]:
    reasons = [
        f"{_counted(count, 'exchange')} not compared: {reason}"
        for reason, count in sorted(tally.not_comparable.items())
    ]
    damaged = sum(tally.damage.values())
    if damaged:
        reasons.append(f"{_counted(damaged, 'damaged line or batch')} passed over")
    return reasons


def _counted(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    plural = noun.replace("line or batch", "lines or batches") if "line" in noun else f"{noun}s"
    return f"{count:,} {plural}"
