"""Summary: what was measured and how, in words for people."""

from __future__ import annotations

from collections.abc import Mapping

from compare.noise.control import ControlCheck
from compare.noise.distances import Measure
from compare.noise.study import Judgement, Study

MEASURED: Mapping[Measure, str] = {
    "text": "final text",
    "tools": "tools and arguments",
    "structure": "events",
}
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


def control_text(check: ControlCheck) -> str:
    """Describe what the check of legacy against legacy on one tape found."""
    if not check.checked:
        return "legacy against legacy on one tape: not checked, there are no two such runs"
    pairs = "1 pair" if check.checked == 1 else f"{check.checked:,} pairs"
    if not check.differing:
        return f"legacy against legacy on one tape: checked, exactly zero differences in {pairs}"
    verb = "differs" if check.differing == 1 else "differ"
    return (
        f"legacy against legacy on one tape: {check.differing:,} of {pairs} {verb}, and none may: "
        "legacy was changed since, or reads something that is not on the tape"
    )


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
