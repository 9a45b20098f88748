"""The gate: everything measured of a flow, as one decision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from compare.captures import KnownParts
from compare.input.selection import Selection
from compare.noise import read_noise
from compare.noise.study import Reading, study_text
from compare.report import Report
from compare.rules import Rules
from compare.tally import Tally
from compare.waivers import Waivers
from contract.errors import CutoverError
from contract.flow import FlowSpec
from cutover.flows import flows_of, rules_at
from cutover.judge.judgements import (
    QUALITY_FILE,
    JudgementsUnreadable,
    read_judged,
    read_judged_beside,
)
from cutover.load_checks import LoadRuns, code_in_force
from cutover.reports import CaptureComparison, report_on, waivers_at
from cutover.selftest.trials import self_test
from evidence.decision import Check, Decision, Verdict
from evidence.gate import (
    GateEvidence,
    GateRules,
    PairFindings,
    decision_of,
)
from evidence.outcomes import ExchangeOutcome
from evidence.preferences import quality_check
from loadtests.requests import FlowUnknown
from router.config.schema import FlowSettings, GateSettings, Settings

EVERYTHING: Final = 100.0
"""Percent."""
SELFTEST_PAIRS: Final = 20
_READINGS: Final[Mapping[Reading, Verdict]] = {
    "exceeds": "hold",
    "within noise": "promote",
    "cannot tell": "cannot_tell",
}


@dataclass(frozen=True, slots=True)
class GateResult:
    """A decision, the outcomes behind it and the comparison of pairs behind its findings."""

    decision: Decision
    outcomes: Sequence[ExchangeOutcome]
    report: Report


def decide(
    captures: Path,
    settings: Settings,
    flow: str,
    *,
    to: float | None,
    load: Path | None = None,
    noise: Sequence[str] = (),
    since: int | None = None,
    known_parts: KnownParts | None = None,
) -> Decision:
    """Decide whether a flow's candidate may serve `to` percent, everything if that is None.

    The flags of the settings are those that routers read: assignments have to show them.
    `since`, in microseconds since the epoch, leaves out what began earlier; `load` is a folder of
    `cutover load`, `noise` are places where legacy answered the same messages again. What the last
    decision read of captures that have not changed since is in `known_parts`. No data
    is a decision that cannot tell. Raises `FlowUnknown`, `LoadUnreadable`,
    `CapturesUnreadable` and what reading rules and waivers raises.
    """
    found = evaluate(
        str(captures),
        settings,
        flow,
        to=to,
        load=load,
        noise=noise,
        since=since,
        in_force=True,
        known_parts=known_parts,
    )
    return found.decision


def evaluate(
    captures: str,
    settings: Settings,
    flow: str,
    *,
    to: float | None = None,
    load: Path | None = None,
    quality: Path | None = None,
    noise: Sequence[str] = (),
    since: int | None = None,
    rules: Rules | None = None,
    waivers: Waivers | None = None,
    processes: int | None = 1,
    on_bytes: Callable[[int], None] = lambda _: None,
    in_force: bool = False,
    known_parts: KnownParts | None = None,
) -> GateResult:
    """Decide as `decide` does, and return what the decision rests on.

    `in_force`: the flags of the settings are those that routers read. `rules` and `waivers` are
    those of the working folder where none are given, `quality` the judgements beside the captures.
    `noise` are places where legacy answered the same messages again.
    Raises `JudgementsUnreadable`, too.
    """
    specs = flows_of(settings)
    if flow not in specs:
        raise FlowUnknown(flow)
    known, needs, configured = {flow: specs[flow]}, settings.gate_of(flow), settings.flows[flow]
    selection = Selection(since=since)
    comparison = CaptureComparison(
        captures,
        rules=rules_at(None, settings) if rules is None else rules,
        waivers=waivers_at(None) if waivers is None else waivers,
        processes=processes,
        known=known,
        # Why a stack failed that another one saved is no difference on equal terms: it is counted.
        selection=Selection(since=since, fallbacks=False),
        served=selection,
    )
    # What it is asked with is read first: it may be refused, and captures take long.
    loaded = None if load is None else LoadRuns.read(load, flow)
    tally = comparison.tally(on_bytes, known_parts)
    outcomes = [*tally.served.outcomes.values()]
    checks = [] if loaded is None else [*loaded.checks(needs, code_in_force(outcomes), time.time())]
    checks += [*_noise_checks(captures, noise, known, selection, tally, settings)]
    checks += [*_quality_checks(captures, quality, flow, since, needs)]
    if needs.selftest:
        checks.append(_self_test())
    evidence = GateEvidence(
        flow=flow,
        percent=configured.configured_share,
        to=EVERYTHING if to is None else to,
        in_force=in_force,
        outcomes=outcomes,
        findings=pair_findings(tally, comparison.waivers, flow, configured, settings),
        checks=checks,
        lasting=tally.served.lasting(),
        live=configured.stage != "shadow",
        captures=captures,
    )
    decision = decision_of(evidence, gate_rules(needs))
    return GateResult(decision, outcomes, report_on(comparison, tally))


def gate_rules(needs: GateSettings) -> GateRules:
    """Return what the gate asks for, from the configuration."""
    return GateRules(
        margins=needs.margins.model_dump(),
        critical=frozenset(needs.critical),
        objectives={str(name): limit for name, limit in needs.objectives.items()},
        requests=needs.requests,
        pairs=needs.pairs,
        losses=needs.losses,
    )


def pair_findings(
    tally: Tally, waivers: Waivers, flow: str, configured: FlowSettings, settings: Settings
) -> PairFindings:
    """Sum up what the comparison of pairs found in one flow."""
    pairs = tally.by_flow[flow]
    clusters = [one for one in tally.clusters.by_key.values() if one.flow == flow]
    unwaived = {
        one.id: one.exchanges / pairs for one in clusters if not waivers.accepts(one, pairs)
    }
    if tally.clusters.overflow:
        unwaived["others"] = 1.0
    control = tally.control
    dropped = sum(n for state, n in tally.unshadowed.items() if state.startswith("dropped"))
    # A torn batch holds any number of exchanges up to that of a whole one; a file, all there are.
    damaged = tally.runs_damaged + tally.damage["torn"] * (settings.captures.batch - 1)
    lost = tally.missing + dropped + damaged
    due = pairs + lost
    return PairFindings(
        pairs=pairs,
        unwaived=unwaived,
        noise=control.differing / control.checked if control.checked else 0.0,
        replayed=sum(tally.bases.values()),
        due=due,
        lost=due if tally.damage["unreadable"] else lost,
        expected=configured.shadow_percent > 0 or pairs > 0,
    )


# Noise and the comparison itself -----------------------------------------------------------------


def _noise_checks(
    captures: str,
    again: Sequence[str],
    known: dict[str, FlowSpec],
    selection: Selection,
    tally: Tally,
    settings: Settings,
) -> Iterator[Check]:
    """Ask whether live shadows differ from legacy by more than legacy does from itself."""
    if not again and (settings.shadow.mode != "live" or not tally.own_answers):
        return
    study = read_noise(captures, again, known, selection=selection).study
    yield Check(
        name="noise",
        verdict=_READINGS[study.reading],
        reason=study_text(study),
        n=study.messages,
        rows="report.html",
    )


def _quality_checks(
    captures: str, file: Path | None, flow: str, since: int | None, needs: GateSettings
) -> Iterator[Check]:
    """Ask which answers people or a judge model prefer, where that was asked or is critical."""
    if file is not None and not file.is_file():
        raise JudgementsUnreadable(str(file), "there is no such file")
    stored = read_judged_beside(captures) if file is None else read_judged(file)
    judged = (one for one in stored if since is None or one.began >= since)
    critical = "quality" in needs.critical
    rows = f"{captures.rstrip('/')}/{QUALITY_FILE}" if file is None else str(file)
    check = quality_check(judged, flow, needs.quality, critical=critical, rows=rows)
    if check is not None:
        yield check


@cache
def _self_test() -> Check:
    """Test the comparison once a process, in a thread of its own: it runs event loops."""
    check = Check(
        name="selftest",
        verdict="promote",
        reason="the comparison finds every seeded fault, and no difference in equal pairs",
        n=SELFTEST_PAIRS,
        critical=True,
        rows="cutover selftest",
    )
    try:
        with ThreadPoolExecutor(1) as thread:
            reasons = thread.submit(_unsound).result()
    except CutoverError as error:
        reasons = [str(error)]
    if not reasons:
        return check
    reason = f"the comparison cannot be relied on: {'; '.join(reasons)}"
    return msgspec.structs.replace(check, verdict="cannot_tell", reason=reason)


def _unsound() -> list[str]:
    tested = self_test(lambda _what, _total: lambda _n: None, SELFTEST_PAIRS, drawn=0)
    return [*tested.reasons()]
