"""Advice: what to do next after a comparison, in one line, and what live model calls leave open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Literal, NamedTuple

import msgspec

from compare.findings import Layer
from compare.input.damage import UNBOUNDED
from compare.input.pairing import ONE_RUN, REDACTED
from compare.noise import Noise
from compare.tally import Tally
from compare.verdict import Label, bounds_of, counted
from evidence.power import needed_for_rare

SHARE_WORTH_KNOWING = 0.01
"""More equal exchanges are advised until no larger share can differ."""
MANY_UNSHADOWED = 0.05
"""The share of exchanges without a second run, for one reason, from which that is to be mended."""

Case = Literal[
    "read",
    "select",
    "record",
    "pair",
    "duplicates",
    "missing",
    "control",
    "gateway",
    "noise",
    "cause",
    "renew",
    "overflow",
    "fix",
    "unshadowed",
    "more",
    "folds",
    "go on",
]

NOT_SAMPLED = "not_sampled()"
_QUEUE = "raise `[shadow] queue` or, of services, `streams`; else lower `shadow_percent`"
_DRAIN = "raise `[server] drain_seconds`"
REMEDIES: Mapping[str, str] = {
    "dropped(queue_full)": _QUEUE,
    "cancelled(queue_full)": _QUEUE,
    "dropped(budget)": "raise the budget in `[shadow]`, or lower `shadow_percent` so that it lasts "
    "all day",
    "dropped(loop_busy)": "let graph yield, which computed for over 20 ms at once, or run it as a "
    "service",
    "dropped(size)": "raise `[limits] exchange_bytes`",
    "dropped(no_history)": "mirror conversations from their first turn, through one router "
    "(docs/conversations.md)",
    "dropped(stopping)": _DRAIN,
    "cancelled(stopping)": _DRAIN,
    "cancelled(client_left)": "record clients that read to the end",
    "cancelled(world_failed)": "mend the model or store that failed the served runs",
    "not_sampled(cannot)": "declare `shadow_safe = true` for the service if that is true of it",
    NOT_SAMPLED: "raise `shadow_percent`",
}
"""What to do about exchanges without a second run, by state and reason in the ledger."""


class NextStep(msgspec.Struct, frozen=True):
    """What to do next: the case that applies, and the step in words; commands in backquotes.

    `cause` is the id of the cause to open, "" where there is none.
    """

    case: Case
    text: str
    cause: str = ""


class FirstCause(NamedTuple):
    """The cause to look at first; `lapsed`: a waiver was made for it and no longer holds."""

    id: str
    flow: str
    title: str
    layer: Layer
    lapsed: bool


class FirstWaiver(NamedTuple):
    """The waiver in force that ends first; `until` is a day."""

    id: str
    owner: str
    until: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the next step depends on; `cause` is None where every cause is waived, or none is."""

    captures: str
    label: Label
    tally: Tally
    cause: FirstCause | None = None
    waiver: FirstWaiver | None = None
    noise: Noise | None = None


def next_step(facts: Facts) -> NextStep:
    """Return the first case of the verdict's that applies; the last one of each always does."""
    found = ((case, step(facts)) for case, step in TABLE[facts.label])
    case, text = next((case, text) for case, text in found if text)
    opened = facts.cause if case in {"cause", "renew"} else None
    return NextStep(case, text, opened.id if opened else "")


def _read(facts: Facts) -> str:
    damage = next((one for one in facts.tally.named if one.kind in UNBOUNDED), None)
    return "" if damage is None else f"restore or remove {damage.place}, then compare again"


def _select(facts: Facts) -> str:
    if facts.tally.exchanges or not facts.tally.left_out.exchanges:
        return ""
    return "select exchanges that there are: by `--since`, `--until` or `--configuration`, as above"


def _record(facts: Facts) -> str:
    if facts.tally.exchanges:
        return ""
    # Of an object store the folders of other days are not read: there may be exchanges in them.
    other = "select other exchanges, or " if facts.tally.selection.text else ""
    return (
        f"{other}record exchanges: serve with `[captures] path` at this place and "
        "`shadow_percent` above 0, then compare again"
    )


def _pair(facts: Facts) -> str:
    """Advise where there are exchanges and no pairs, by what most of them lack."""
    tally = facts.tally
    if tally.unshadowed.total() * 2 >= tally.exchanges:
        [(ledger, count)] = tally.unshadowed.most_common(1)
        return _remedy(ledger, count)
    reason = max(tally.not_comparable, key=lambda known: tally.not_comparable[known])
    if reason in {REDACTED, ONE_RUN}:
        return f"run `cutover replay {quote(facts.captures)} --stack graph -o replayed`"
    if reason.startswith("unknown flow"):
        return f"give `--config` with the file that declares the {reason.removeprefix('unknown ')}"
    return f"record exchanges that can be compared; most of these cannot: {reason}"


def _remedy(ledger: str, count: int) -> str:
    known = REMEDIES.get(ledger, "look into the router's log")
    return f"{known}: {count:,} second runs ended as {ledger}"


def _duplicates(facts: Facts) -> str:
    copies = facts.tally.damage["duplicate"]
    if copies * 2 <= facts.tally.lost:
        return ""
    return f"remove the copies of segments, then compare again: {copies:,} duplicates were read"


def _missing(facts: Facts) -> str:
    return (
        f"find what ended the router before {facts.tally.lost:,} runs were written (SIGTERM and "
        "`[server] drain_seconds` let shadows end), then record again"
    )


def _control(facts: Facts) -> str:
    check = facts.tally.control
    if not check.differing:
        return ""
    return f"mend legacy first: on one tape it differs from itself, as in {check.named[0]}"


def _gateway(facts: Facts) -> str:
    """Advise where each service asked a model for itself, and the answers differ."""
    untaped = facts.tally.untaped
    if facts.noise or not untaped or not _by_an_answer(facts):
        return ""
    return (
        "let both services call the model through the gateway (docs/gateway.md), so that both get "
        f"one answer: in {_pairs(untaped)} each asked for itself"
    )


def _pairs(count: int) -> str:
    return counted(count, "pair")


def _by_an_answer(facts: Facts) -> bool:
    """Whether another answer of a model may be the first cause."""
    return facts.cause is None or facts.cause.layer in {"frames", "text"}


def _noise(facts: Facts) -> str:
    """Advise where answers of a model on both sides differ by chance."""
    live, found = facts.tally.own_answers, facts.noise
    if not (live or found) or not _by_an_answer(facts):
        return ""
    if found is None:
        return (
            f"measure noise: `cutover diff {quote(facts.captures)} --noise AGAIN -o DIR`, with "
            f"captures of legacy answering again; in {_pairs(live)} both stacks asked the model"
        )
    if found.study.reading == "exceeds":
        named = [flag.exchange for judged in found.study.judgements for flag in judged.named]
        where = f", first {named[0]}" if named else ""
        return f"look at the section on noise{where}: graph differs by more than legacy from itself"
    if found.study.reading == "cannot tell":
        wanted = max((judged.needed for judged in found.study.judgements), default=0)
        more = max(wanted - found.study.messages, 1)
        few = f"{found.study.messages:,} are too few to measure noise"
        return f"have legacy answer {more:,} more messages again: {few}"
    return ""


def _cause(facts: Facts) -> str:
    cause = facts.cause
    if cause is None or cause.lapsed:
        return ""
    return (
        f"open cause {cause.id} ({cause.title}, in {cause.flow}), then mend "
        f"{facts.tally.sides[1]} or accept it: `{waive_command(cause.id, cause.flow)}`"
    )


def _renew(facts: Facts) -> str:
    cause = facts.cause
    if cause is None:
        return ""
    return (
        f"open cause {cause.id} ({cause.title}, in {cause.flow}), whose waiver no longer holds, "
        f"then mend it or renew: `{waive_command(cause.id, cause.flow)} --replace`"
    )


def waive_command(cause: str, flow: str) -> str:
    """Return how a cause is waived, but for owner, reason and day."""
    until = "--owner NAME --reason WHY --until YYYY-MM-DD"
    return f"cutover waive {cause} --flow {quote(flow)} {until}"


def _overflow(facts: Facts) -> str:
    return (
        f"mend what is waived, then compare again: {facts.tally.clusters.overflow:,} findings of "
        "further causes were counted, not kept"
    )


def _fix(facts: Facts) -> str:
    if facts.waiver is None:
        return "mend what is waived"
    waiver = facts.waiver
    return f"mend cause {waiver.id} by {waiver.until}, when the waiver of {waiver.owner} ends"


def _unshadowed(facts: Facts) -> str:
    """Advise where, for one reason, many exchanges that were sampled have no second run."""
    tally = facts.tally
    sampled = Counter({k: n for k, n in tally.unshadowed.items() if k != NOT_SAMPLED})
    ledger, count = next(iter(sampled.most_common(1)), ("", 0))
    return _remedy(ledger, count) if count > MANY_UNSHADOWED * tally.exchanges else ""


def _more(facts: Facts) -> str:
    """Advise where too few exchanges are equal to prove much."""
    needed = needed_for_rare(SHARE_WORTH_KNOWING)
    weakest = next(iter(bounds_of(facts.tally)), None)
    if weakest is None or weakest.exchanges >= needed:
        return ""
    lacking = needed - weakest.exchanges
    aside = facts.tally.unshadowed[NOT_SAMPLED]
    how = f", or raise `shadow_percent` ({aside:,} were not sampled)" if aside else ""
    return (
        f"record {lacking:,} more exchanges of {weakest.flow}{how}: {needed} without a difference "
        f"leave at most {SHARE_WORTH_KNOWING * 100:.0f} % that may differ"
    )


def _folds(facts: Facts) -> str:
    if not facts.tally.folds:
        return ""
    return (
        "look once at what was folded (`normalise = false` in diff.toml shows it), then raise "
        "`langgraph_percent` by one step"
    )


def _go_on(facts: Facts) -> str:
    tally = facts.tally
    if tally.bases:
        return f"release {tally.sides[1].removesuffix(' now')} as it is now"
    flows = ", ".join(sorted(tally.by_flow)[:3])
    return f"raise `langgraph_percent` of {flows} by one step, then compare what is recorded"


def noise_note(own_answers: int, untaped: int, noise: Noise | None) -> str:
    """Explain in two sentences what answers of a live model leave open; "" where there are none.

    `own_answers` and `untaped` are pairs, as the report counts them.
    """
    if own_answers:
        chance = f"in {_pairs(own_answers)} the shadow asked for itself, and what may follow from "
        chance += "another answer is no cause"
    elif untaped:
        chance = f"in {_pairs(untaped)} each stack asked for itself, and causes in frames and text "
        chance += "may be chance"
    elif noise is not None:
        chance = "so legacy answered again"
    else:
        return ""
    return f"A model that is asked twice answers twice, differently: {chance}. {_measured(noise)}"


def _measured(noise: Noise | None) -> str:
    """Describe how far legacy is from itself (A/A) where graph exceeds that most."""
    if noise is None or not noise.study.judgements:
        return (
            "`cutover noise` measures whether graph is farther from legacy than legacy is from "
            "itself (A/A): docs/noise.md."
        )
    widest = max(noise.study.judgements, key=lambda judged: judged.difference)
    return (
        f"Legacy is {widest.again:.3f} from itself (A/A) and graph {widest.graph:.3f} from legacy, "
        f"measured in {widest.measure} of {widest.flow} from 0, equal, to 1 by `cutover noise`: "
        "docs/noise.md."
    )


Step = Callable[[Facts], str]
TABLE: Mapping[Label, tuple[tuple[Case, Step], ...]] = {
    "no data": (("read", _read), ("select", _select), ("record", _record), ("pair", _pair)),
    "incomplete": (("read", _read), ("duplicates", _duplicates), ("missing", _missing)),
    "different": (
        ("control", _control),
        ("gateway", _gateway),
        ("noise", _noise),
        ("cause", _cause),
        ("renew", _renew),
        ("overflow", _overflow),
    ),
    "waived": (("control", _control), ("fix", _fix)),
    "equal": (
        ("control", _control),
        ("unshadowed", _unshadowed),
        ("noise", _noise),
        ("more", _more),
        ("folds", _folds),
        ("go on", _go_on),
    ),
}
"""The cases of each verdict, in the order in which they are tried; "" is: it does not apply."""
