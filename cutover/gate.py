"""The gate: everything measured of a flow, as one decision."""

from __future__ import annotations

from pathlib import Path

from compare.input.selection import Selection
from compare.tally import Tally
from compare.waivers import Waivers
from cutover.flows import flows_of, rules_at
from cutover.reports import CaptureComparison, waivers_at
from evidence.decision import Check, Decision
from loadtests.requests import FlowUnknown
from router.config.schema import Settings

ALL = 100.0


def decide(
    captures: Path,
    settings: Settings,
    flow: str,
    *,
    to: float | None,
    load: Path | None = None,
    since: int | None = None,
) -> Decision:
    """Decide whether a flow's candidate may serve `to` percent, everything if that is None.

    `since`, in microseconds since the epoch, leaves out what began earlier; `load` is a folder of
    `cutover load`. No data is a decision that cannot tell. Raises `FlowUnknown`,
    `CapturesUnreadable` and what reading rules and waivers raises.
    """
    del load
    known = flows_of(settings)
    if flow not in known:
        raise FlowUnknown(flow)
    waivers = waivers_at(None)
    comparison = CaptureComparison(
        str(captures),
        rules=rules_at(None, settings),
        waivers=waivers,
        processes=1,
        known={flow: known[flow]},
        selection=Selection(since=since),
    )
    check = findings(comparison.tally(lambda _: None), waivers)
    share = settings.flows[flow].configured_share
    return Decision(
        flow=flow,
        verdict=check.verdict,
        percent=share,
        to=ALL if to is None else to,
        checks=(check,),
    )


def findings(tally: Tally, waivers: Waivers) -> Check:
    """Ask whether any cause of a difference is not waived."""
    clusters = tally.clusters.by_key.values()
    found = [one for one in clusters if not waivers.accepts(one, tally.by_flow[one.flow])]
    if found:
        reason = f"{len(found)} causes of differences are not waived"
        return Check(name="findings", verdict="hold", reason=reason, n=tally.pairs, critical=True)
    reason = "outcomes by stack are not compared yet"
    return Check(name="outcomes", verdict="cannot_tell", reason=reason, critical=True)
