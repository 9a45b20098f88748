"""The verdict on captures: equal, waived, different or no data, each with its reasons."""

from __future__ import annotations

from typing import Literal

import msgspec

from compare.input.damage import UNBOUNDED
from compare.noise.control import control_text
from compare.rules.table import MISSING_AT_MOST
from compare.tally import Tally, drift_of, drift_text
from compare.waivers import NO_WAIVERS, Waivers, lapse

Label = Literal["equal", "waived", "different", "incomplete", "no data"]
NOT_ENOUGH = "not enough read"
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
    rest = (*_compared(tally), *_left_out(tally))
    if not tally.pairs:
        reason = "no exchange was found"
        if tally.exchanges:
            reason = f"none of {_counted(tally.exchanges, 'exchange')} could be compared"
        return Verdict("no data", (reason, *rest), "no data")
    if not tally.different:
        return Verdict("equal", (_equal(tally), *rest), "equal")
    clusters = tally.clusters.by_key.values()
    waived = [c for c in clusters if waivers.accepts(c, tally.by_flow[c.flow])]
    reasons = (_different(tally, len(waived)), *_lapsed(tally, waivers), *rest)
    if len(waived) == len(clusters) and not tally.clusters.overflow:
        held = len({cluster.id for cluster in waived})
        return Verdict("waived", reasons, f"parity modulo {_counted(held, 'waiver')}")
    return Verdict("different", reasons, "different")


def _lost(tally: Tally, missing: float) -> str:
    if any(tally.damage[kind] for kind in UNBOUNDED):
        return "how many runs could not be read is unknown: a batch or a file is damaged"
    due = _counted(tally.pairs + tally.lost, "pair")
    return (
        f"{tally.lost:,} of {due} that should be there "
        f"{'is' if tally.lost == 1 else 'are'} missing, unreadable or duplicated: "
        f"{_percent(tally.lost_share)}, and {_percent(missing)} may be"
    )


def _different(tally: Tally, waived: int) -> str:
    causes = len(tally.clusters.by_key)
    many = f", {waived} of them waived" if waived < causes else ", waived"
    return (
        f"{tally.different:,} of {_counted(tally.pairs, 'pair')} "
        f"{'differs' if tally.different == 1 else 'differ'}, "
        f"from {_counted(causes, 'cause')}{many if waived else ''}"
    )


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


def _compared(tally: Tally) -> list[str]:
    """List what was compared with what, and what the model's own answers leave open."""
    reasons = []
    if 0 < tally.pairs < tally.exchanges:
        share = _percent(tally.pairs / tally.exchanges)
        reasons.append(f"compared: {tally.pairs:,} of {tally.exchanges:,} exchanges ({share})")
    reasons += [
        f"{_counted(count, 'pair')}: {basis}" for basis, count in sorted(tally.bases.items())
    ]
    if tally.folds:
        folds = ", ".join(f"{fold} {count:,}" for fold, count in sorted(tally.folds.items()))
        reasons.append(f"pairs whose calls client libraries wrote in different forms: {folds}")
    if tally.own_answers:
        pairs = _counted(tally.own_answers, "pair")
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
        f"{_counted(count, 'exchange')} not compared: {reason}"
        for reason, count in sorted(tally.not_comparable.items())
    ]
    duplicates = tally.damage["duplicate"]
    damaged = sum(tally.damage.values()) - duplicates
    if damaged:
        reasons.append(f"{_counted(damaged, _DAMAGE)} passed over")
    if duplicates:
        reasons.append(f"{_counted(duplicates, 'duplicate')} passed over: each counts once")
    return reasons


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {_PLURALS.get(noun, f'{noun}s')}"
