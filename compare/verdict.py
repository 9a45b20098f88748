"""The verdict on captures: equal, waived, different or no data, each with its reasons."""

from __future__ import annotations

from typing import Literal

import msgspec

from compare.input.damage import UNBOUNDED
from compare.input.selection import EVERYTHING, moment
from compare.noise.control import control_text
from compare.rules.table import MISSING_AT_MOST
from compare.tally import Tally, drift_of, drift_text
from compare.waivers import NO_WAIVERS, Waivers, lapse
from evidence.intervals import CONFIDENCE, share_at_most

Label = Literal["equal", "waived", "different", "incomplete", "no data"]
NOT_ENOUGH = "not enough read"
FLOWS_NAMED = 2
CONFIGURATIONS_NAMED = 3
_DAMAGE = "damaged file, batch or line"
_PLURALS = {_DAMAGE: "damaged files, batches or lines"}


class Verdict(msgspec.Struct, frozen=True):
    """A label, the reasons, and the label in words; no data is not a pass.

    `waived`: there are differences, and every one of them is waived. `incomplete`: it would be
    `equal` or `waived`, but too many of the runs that should be there are missing, unreadable or
    duplicated.
    """

    label: Label
    reasons: tuple[str, ...]
    text: str = ""

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        return self.text or self.label


class FlowBound(msgspec.Struct, frozen=True):
    """What equal pairs of a flow prove: with `confidence`, at most the share `at_most` differs.

    True of `exchanges` that are independent. Turns of one conversation and repeated requests are
    not: they prove less.
    """

    flow: str
    exchanges: int
    at_most: float
    confidence: float = CONFIDENCE


def bounds_of(tally: Tally) -> tuple[FlowBound, ...]:
    """Return what is proved of each flow where nothing differs, the least proved first."""
    if tally.different or tally.unsound:
        return ()
    flows = sorted(tally.by_flow.items(), key=lambda counted: (counted[1], counted[0]))
    return tuple(FlowBound(flow, pairs, share_at_most(pairs)) for flow, pairs in flows)


def bounds_text(bounds: tuple[FlowBound, ...]) -> str:
    """Describe in a line what equal pairs prove."""
    shown = [
        f"{_percent(bound.at_most)} of {bound.flow} (n = {counted(bound.exchanges, 'exchange')})"
        for bound in bounds[:FLOWS_NAMED]
    ]
    left = len(bounds) - len(shown)
    shown += [f"less of {counted(left, 'further flow')}"] if left else []
    return (
        f"rule of three, {_percent(CONFIDENCE)} sure: at most {', '.join(shown)} may differ; turns "
        "of one conversation and repeats are not independent and prove less"
    )


def verdict_on(
    tally: Tally, waivers: Waivers = NO_WAIVERS, missing: float = MISSING_AT_MOST
) -> Verdict:
    """Decide; what could not be looked at is always among the reasons.

    No more than the share `missing` of the pairs that should be there may lack in a pass.
    """
    found = _found(tally, waivers)
    if found.label not in {"equal", "waived"} or tally.lost_share <= missing:
        return found
    return Verdict("incomplete", (_lost(tally, missing), *found.reasons), NOT_ENOUGH)


def _found(tally: Tally, waivers: Waivers) -> Verdict:
    """Decide on what was read."""
    rest = (*_selected(tally), *_compared(tally), *_left_out(tally))
    if not tally.pairs:
        reason = "no exchange was found" if tally.selection == EVERYTHING else "none is selected"
        if tally.exchanges:
            reason = f"none of {counted(tally.exchanges, 'exchange')} could be compared"
        return Verdict("no data", (reason, *rest), "no data")
    if not (tally.different or tally.unsound):
        bounds = bounds_of(tally)
        proved = (bounds_text(bounds),) if bounds else ()
        return Verdict("equal", (_equal(tally), *proved, *rest), "equal")
    clusters = tally.clusters.by_key.values()
    waived = [c for c in clusters if waivers.accepts(c, tally.by_flow[c.flow])]
    reasons = (_different(tally, len(waived)), *_lapsed(tally, waivers), *rest)
    if len(waived) == len(clusters) and not tally.clusters.overflow:
        held = len({cluster.id for cluster in waived})
        return Verdict("waived", reasons, f"parity modulo {counted(held, 'waiver')}")
    return Verdict("different", reasons, "different")


def _lost(tally: Tally, missing: float) -> str:
    if any(tally.damage[kind] for kind in UNBOUNDED):
        return "how many runs could not be read is unknown: a batch or a file is damaged"
    due = counted(tally.pairs + tally.lost, "pair")
    return (
        f"{tally.lost:,} of {due} that should be there "
        f"{'is' if tally.lost == 1 else 'are'} missing, unreadable or duplicated: "
        f"{_percent(tally.lost_share)}, and {_percent(missing)} may be"
    )


def _different(tally: Tally, waived: int) -> str:
    causes = len(tally.clusters.by_key)
    many = f", {waived} of them waived" if waived < causes else ", waived"
    pairs = counted(tally.pairs, "pair")
    counts = []
    if tally.different:
        differ = "differs" if tally.different == 1 else "differ"
        counts.append(f"{tally.different:,} of {pairs} {differ}")
    if tally.unsound:
        their = "breaks its" if tally.unsound == 1 else "break their"
        counts.append(f"{tally.unsound:,} of {pairs} {their} grammar on both sides alike")
    return f"{' and '.join(counts)}, from {counted(causes, 'cause')}{many if waived else ''}"


def _lapsed(tally: Tally, waivers: Waivers) -> list[str]:
    """Name the waivers that no longer hide what was found."""
    said: dict[str, str] = {}
    for cluster in tally.clusters.by_key.values():
        waiver = waivers.of(cluster.id, cluster.flow)
        if waiver is None:
            continue
        what = f"the waiver of {cluster.id} ({waiver.owner})"
        if not waivers.in_force(waiver):
            said[cluster.id] = f"{what} expired on {waiver.until}"
        elif why := lapse(waiver, cluster, tally.by_flow[cluster.flow]):
            said[cluster.id] = f"{what} has lapsed: {why}"
    return [reason for _, reason in sorted(said.items())]


def _equal(tally: Tally) -> str:
    pairs = "the one pair is" if tally.pairs == 1 else f"all {tally.pairs} pairs are"
    ruled = tally.equal_by_rules
    if not ruled:
        return f"{pairs} equal"
    by_rules = "by the rules" if ruled == tally.pairs else f"{ruled:,} of them by the rules"
    return f"{pairs} equal, {by_rules}"


def _selected(tally: Tally) -> list[str]:
    """Describe the selection, and where it is empty what it leaves out."""
    if tally.selection == EVERYTHING:
        return []
    left = tally.left_out
    of = f"{tally.exchanges:,} of {tally.exchanges + left.exchanges:,}"
    reasons = [f"only exchanges {tally.selection.text}: {of}, {left.exchanges:,} left out"]
    if left.exchanges and not tally.exchanges:
        known = left.configurations.most_common(CONFIGURATIONS_NAMED)
        named = ", ".join(f"{name or 'unknown'} ({count:,})" for name, count in known)
        more = len(left.configurations) - len(known)
        reasons.append(
            f"left out: from {moment(left.first)} to {moment(left.last)}, under configuration "
            f"{named}{f' and {more} more' if more else ''}"
        )
    return reasons


def _compared(tally: Tally) -> list[str]:
    """List what was compared with what, and what the model's own answers leave open."""
    reasons = []
    if tally.own_histories:
        count = counted(tally.own_histories, "exchange")
        reasons.append(
            "each stack stores its own conversations: a turn after one that it lacks is not "
            f"compared, and one difference may lead to the next ({count})"
        )
    if 0 < tally.pairs < tally.exchanges:
        share = _percent(tally.pairs / tally.exchanges)
        reasons.append(f"compared: {tally.pairs:,} of {tally.exchanges:,} exchanges ({share})")
    reasons += [
        f"{counted(count, 'pair')}: {basis}" for basis, count in sorted(tally.bases.items())
    ]
    if tally.folds:
        folds = ", ".join(f"{fold} {count:,}" for fold, count in sorted(tally.folds.items()))
        reasons.append(f"pairs whose calls client libraries wrote in different forms: {folds}")
    if tally.own_answers:
        pairs = counted(tally.own_answers, "pair")
        reasons.append(
            f"{pairs}: the shadow asked the model itself, what may follow from that is left out"
        )
        if tally.drift:
            reasons.append(drift_text(drift_of(tally.drift)))
    if tally.control.checked:
        reasons.append(control_text(tally.control))
    return reasons


def _left_out(tally: Tally) -> list[str]:
    reasons = [
        f"{counted(count, 'exchange')} not compared: {reason}"
        for reason, count in sorted(tally.not_comparable.items())
    ]
    duplicates = tally.damage["duplicate"]
    damaged = sum(tally.damage.values()) - duplicates
    if damaged:
        reasons.append(f"{counted(damaged, _DAMAGE)} passed over")
    if duplicates:
        reasons.append(f"{counted(duplicates, 'duplicate')} passed over: each counts once")
    return reasons


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def counted(count: int, noun: str) -> str:
    """Return a count of things, the noun in its number."""
    return f"1 {noun}" if count == 1 else f"{count:,} {_PLURALS.get(noun, f'{noun}s')}"
